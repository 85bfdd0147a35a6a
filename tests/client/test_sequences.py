"""Idempotent numbering of one partition's batches."""

from gregor.client.producer.batch_cy import BatchState, ProducerBatch
from gregor.client.producer.compression_estimator import CompressionRatioEstimator
from gregor.client.producer.sequences_cy import MAX_EPOCH, PartitionSequence
from gregor.client.producer.splitting import split
from gregor.protocol.records.compression import Codec


def sealed(record_count: int) -> ProducerBatch:
    batch = ProducerBatch("t", 0, codec=Codec.NONE, ratio=1.0, size_limit=1000, created_at=0.0)
    for _ in range(record_count):
        batch.append(0, None, b"v", ())
    batch.seal(CompressionRatioEstimator())
    return batch


def sent(sequence: PartitionSequence, record_count: int) -> ProducerBatch:
    batch = sealed(record_count)
    assert sequence.may_send(batch)
    sequence.assign(batch)
    batch.sent()
    return batch


def new_sequence() -> PartitionSequence:
    """Return one that the broker has acknowledged a record of."""
    sequence = PartitionSequence()
    sequence.adopt(7, 0)
    sequence.delivered(sent(sequence, 1))
    return sequence


async def test_sequence_numbers_continue_after_the_last_record_of_a_batch() -> None:
    sequence = new_sequence()
    assert [sent(sequence, n).base_sequence for n in (3, 1, 2)] == [1, 4, 5]


async def test_only_one_batch_is_in_flight_until_the_first_is_acknowledged() -> None:
    """A broker accepts any first sequence number of a producer."""
    sequence = PartitionSequence()
    sequence.adopt(7, 0)
    first = sent(sequence, 1)
    assert not sequence.may_send(sealed(1))
    first.back_to_queue(0.0)
    assert not sequence.may_send(sealed(1))
    assert sequence.may_send(first)
    first.sent()
    sequence.delivered(first)
    assert sequence.may_send(sealed(1))
    sequence.adopt(8, 0)
    sent(sequence, 1)
    assert not sequence.may_send(sealed(1))


async def test_retried_batches_are_sent_one_by_one_in_sequence_order() -> None:
    sequence = new_sequence()
    first, second, third = sent(sequence, 1), sent(sequence, 1), sent(sequence, 1)
    for batch in (third, first, second):
        batch.back_to_queue(0.0)
    queue: list[ProducerBatch] = []
    for batch in (third, first, second):
        queue.insert(sequence.place_among(batch, queue), batch)
    assert queue == [first, second, third]
    assert sequence.may_send(first)
    assert not sequence.may_send(second)
    first.sent()
    sequence.delivered(first)
    assert sequence.may_send(second)
    assert second.base_sequence == 2, "sequence numbers are kept while the outcome is unknown"


async def test_a_lost_batch_starts_a_new_epoch_when_nothing_is_under_way() -> None:
    sequence = new_sequence()
    lost, later = sent(sequence, 5), sent(sequence, 2)
    lost.failed(ValueError())
    sequence.given_up(lost)
    assert not sequence.may_send(sealed(1))
    later.back_to_queue(0.0)
    assert sequence.may_send(later)
    sequence.assign(later)
    assert (later.producer_id, later.producer_epoch, later.base_sequence) == (7, 1, 0)
    assert sequence.next_sequence == 2


async def test_the_parts_of_a_split_batch_take_its_sequence_numbers() -> None:
    sequence = new_sequence()
    whole, later = sent(sequence, 4), sent(sequence, 1)
    parts = split(whole, len(whole.payload) - 1, CompressionRatioEstimator())
    sequence.replaced(whole, parts)
    assert [batch.base_sequence for batch in sequence.tracked] == [1, 4, 5]
    assert sequence.tracked == [*parts, later]
    assert sequence.may_send(parts[0])
    assert not sequence.may_send(parts[1])
    assert whole.state is BatchState.SPLIT


async def test_a_lost_batch_at_the_last_epoch_requires_a_new_producer_id() -> None:
    sequence = PartitionSequence()
    sequence.adopt(7, MAX_EPOCH)
    lost = sent(sequence, 1)
    sequence.given_up(lost)
    assert sequence.needs_new_producer
