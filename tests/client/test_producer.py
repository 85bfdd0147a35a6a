"""The producer against a broker process: every codec, splitting, transactions, faults."""

from __future__ import annotations

import random
import signal
from collections.abc import Sequence
from typing import Any

import pytest
import trio

from gregor.client import Admin, Consumer, Delivery, Producer
from gregor.client.consumer.consumer_record import ConsumerRecord
from gregor.client.errors import AbandonedError, ClosedError, DeadlineExceededError, RecordTooLargeError
from gregor.protocol.errors import BrokerError, ErrorCode
from gregor.protocol.records.compression import Codec
from tests.broker_process import BrokerProcess
from tests.client.topics import new_topic
from tests.waiting import PATIENCE_S

CODECS = [codec.name.lower() for codec in Codec]


async def read_all(broker: BrokerProcess, topic: str, partitions: int = 1, **config: object) -> list[ConsumerRecord]:
    """Return every record up to the ends as they are now."""
    records: list[ConsumerRecord] = []
    async with Consumer(broker.bootstrap, auto_offset_reset="earliest", **config) as consumer:
        places = [(topic, partition) for partition in range(partitions)]
        ends = await consumer.end_offsets(places)
        consumer.assign(places)
        with trio.fail_after(PATIENCE_S):
            while any((consumer.position(*place) or 0) < end for place, end in ends.items()):
                records += await consumer.poll(200)
    return records


def values(records: Sequence[ConsumerRecord]) -> list[bytes | None]:
    return [record.value for record in records]


@pytest.mark.parametrize("codec", CODECS)
async def test_records_arrive_as_they_were_sent(broker_process: BrokerProcess, codec: str) -> None:
    topic = await new_topic(broker_process.bootstrap)
    async with Producer(broker_process.bootstrap, compression_type=codec, linger_ms=5) as producer:
        sent = [
            await producer.send(topic, b"v%d" % n, key=None if n % 3 else b"k", headers=[("h", b"%d" % n), ("n", None)])
            for n in range(1000)
        ]
        null = await producer.send(topic, None, key=b"k", timestamp_ms=12345)
        assert (await null).timestamp == 12345
    assert [delivery.offset for delivery in sent] == list(range(1000))
    records = await read_all(broker_process, topic)
    assert values(records) == [b"v%d" % n for n in range(1000)] + [None]
    assert records[7].headers == ((b"h", b"7"), (b"n", None))
    assert [record.key for record in records[:4]] == [b"k", None, None, b"k"]
    assert records[-1].timestamp == 12345


@pytest.mark.parametrize("acks", ["all", "1", "0"])
async def test_records_are_produced_with_each_acks_setting(broker_process: BrokerProcess, acks: str) -> None:
    topic = await new_topic(broker_process.bootstrap)
    async with Producer(broker_process.bootstrap, acks=acks) as producer:
        delivery = await producer.send(topic, b"v")
        assert (await delivery).offset == (-1 if acks == "0" else 0)
        # With acks=0 only an answer on the same connection shows that the record has arrived.
        await producer.partitions_for(topic)
    with trio.fail_after(PATIENCE_S):
        while not await read_all(broker_process, topic):
            await trio.lowlevel.checkpoint()


async def test_partitions_are_chosen_by_key_as_in_java_or_as_configured(broker_process: BrokerProcess) -> None:
    topic = await new_topic(broker_process.bootstrap, 8)
    async with Producer(broker_process.bootstrap) as producer:
        assert (await producer.send(topic, b"v", key=b"foobar")).partition == (-790332482 & 0x7FFFFFFF) % 8
    async with Producer(broker_process.bootstrap, max_block_ms=50) as producer:
        with pytest.raises(DeadlineExceededError, match=f"{topic}-8 is not known"):
            await producer.send(topic, b"v", partition=8)
    async with Producer(broker_process.bootstrap, partitioner_ignore_keys=True, batch_size=1) as producer:
        spread = {(await producer.send(topic, b"v", key=b"foobar")).partition for _ in range(100)}
        assert len(spread) > 4

    def last(topic: str, key: bytes | None, value: bytes | None, partition_count: int) -> int:
        return partition_count - 1

    async with Producer(broker_process.bootstrap, partitioner_class=last) as producer:
        assert (await producer.send(topic, b"v")).partition == 7


async def test_too_large_batches_are_split_until_only_the_too_large_record_fails(broker_process: BrokerProcess) -> None:
    topic = await new_topic(broker_process.bootstrap, max_message_bytes="10000")
    noise = random.Random(1)
    sizes = [3_000] * 10 + [30_000] + [3_000] * 10
    bodies = [noise.randbytes(size) for size in sizes]
    async with Producer(
        broker_process.bootstrap, batch_size=100_000, linger_ms=60_000, compression_type="lz4"
    ) as producer:
        deliveries = [await producer.send(topic, body) for body in bodies]
        await producer.flush()
        assert producer.metrics().value("batch-split-total") == 1, "into as many parts as needed"
        assert producer.metrics().value("batch-split-rate") > 0
    failed = [index for index, delivery in enumerate(deliveries) if delivery.error is not None]
    assert failed == [10]
    error = deliveries[10].error
    assert isinstance(error, BrokerError)
    assert error.code is ErrorCode.MESSAGE_TOO_LARGE
    good = bodies[:10] + bodies[11:]
    assert values(await read_all(broker_process, topic)) == good
    assert [delivery.offset for delivery in deliveries[:10] + deliveries[11:]] == list(range(20))


async def test_records_that_compress_worse_than_estimated_are_not_lost(broker_process: BrokerProcess) -> None:
    """KIP-126's example: the estimate is trained by records that compress to 1/10, then records of 1/5 follow."""
    first = await new_topic(broker_process.bootstrap, max_message_bytes="20000")
    second = await new_topic(broker_process.bootstrap, max_message_bytes="20000")
    noise = random.Random(2)

    def body(ratio: int) -> bytes:
        return noise.randbytes(4_000 // ratio) + bytes(4_000 - 4_000 // ratio)

    async with Producer(
        broker_process.bootstrap, batch_size=20_000, linger_ms=20, compression_type="gzip", max_request_size=10**7
    ) as producer:
        sent = {first: [body(10) for _ in range(600)], second: [body(5) for _ in range(600)]}
        deliveries: list[Delivery] = []
        for topic, bodies in sent.items():
            deliveries += [await producer.send(topic, one) for one in bodies]
    assert all(delivery.error is None for delivery in deliveries)
    for topic, bodies in sent.items():
        assert values(await read_all(broker_process, topic)) == bodies


async def test_sends_wait_for_buffer_memory_and_records_above_it_are_refused(broker_process: BrokerProcess) -> None:
    topic = await new_topic(broker_process.bootstrap)
    async with Producer(broker_process.bootstrap, buffer_memory=20_000) as producer:
        for _ in range(200):
            await producer.send(topic, bytes(1_000))
        with pytest.raises(RecordTooLargeError):
            await producer.send(topic, bytes(30_000))
    assert len(await read_all(broker_process, topic)) == 200


async def is_known(producer: Producer, topic: str) -> bool:
    """Return whether the producer learns of a topic within its `max_block_ms`."""
    try:
        return bool(await producer.partitions_for(topic))
    except DeadlineExceededError:
        return False


async def test_a_send_with_full_buffer_memory_fails_after_max_block_ms(broker_process: BrokerProcess) -> None:
    topic = await new_topic(broker_process.bootstrap)
    async with Producer(broker_process.bootstrap, buffer_memory=20_000, max_block_ms=100, linger_ms=10_000) as producer:
        with trio.fail_after(PATIENCE_S):
            while not await is_known(producer, topic):
                pass
        broker_process.process.send_signal(signal.SIGSTOP)
        try:
            for _ in range(19):
                await producer.send(topic, bytes(1_000))
            with pytest.raises(DeadlineExceededError, match=r"buffer\.memory"):
                await producer.send(topic, bytes(1_000))
        finally:
            broker_process.process.send_signal(signal.SIGCONT)


async def test_records_above_max_request_size_are_refused(broker_process: BrokerProcess) -> None:
    async with Producer(broker_process.bootstrap, max_request_size=1_000) as producer:
        await producer.send("small-requests", b"x")
        with pytest.raises(RecordTooLargeError, match=r"max\.request\.size"):
            await producer.send("small-requests", bytes(1_000))


async def test_an_invalid_topic_name_and_a_closed_producer_raise_errors(broker_process: BrokerProcess) -> None:
    async with Producer(broker_process.bootstrap) as producer:
        with pytest.raises(BrokerError, match="INVALID_TOPIC_EXCEPTION"):
            await producer.send("not a name", b"v")
    with pytest.raises(ClosedError):
        await producer.send("t", b"v")


async def test_an_exception_abandons_unsent_records_unless_flush_on_error(broker_process: BrokerProcess) -> None:
    topic = await new_topic(broker_process.bootstrap)
    deliveries: list[Delivery] = []

    async def leave(**options: Any) -> None:
        async with Producer(broker_process.bootstrap, linger_ms=60_000, **options) as producer:
            deliveries.append(await producer.send(topic, b"v"))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await leave()
    assert isinstance(deliveries[0].error, AbandonedError)
    with pytest.raises(ZeroDivisionError):
        await leave(flush_on_error=True)
    assert deliveries[1].offset == 0


async def test_a_cancelled_producer_closes_at_once(broker_process: BrokerProcess) -> None:
    with trio.move_on_after(0.2) as scope, trio.fail_after(PATIENCE_S):
        async with Producer(broker_process.bootstrap, linger_ms=60_000) as producer:
            await producer.send("cancelled", b"v")
            await trio.sleep_forever()
    assert scope.cancelled_caught


# --- transactions ---


async def test_read_committed_returns_only_records_of_committed_transactions(broker_process: BrokerProcess) -> None:
    topic = await new_topic(broker_process.bootstrap, 2)

    async def drop(producer: Producer) -> None:
        async with producer.transaction():
            await producer.send(topic, b"dropped", partition=0)
            await producer.flush()
            raise ZeroDivisionError

    async with Producer(broker_process.bootstrap, transactional_id=f"x-{topic}") as producer:
        async with producer.transaction():
            for partition in (0, 1):
                await producer.send(topic, b"kept", partition=partition)
        with pytest.raises(ZeroDivisionError):
            await drop(producer)
        async with producer.transaction():
            await producer.send(topic, b"kept too", partition=0)
    committed = await read_all(broker_process, topic, 2, isolation_level="read_committed")
    assert sorted(value for value in values(committed) if value) == [b"kept", b"kept", b"kept too"]
    everything = await read_all(broker_process, topic, 2)
    assert b"dropped" in values(everything)


async def test_offsets_commit_with_the_transaction(broker_process: BrokerProcess) -> None:
    topic = await new_topic(broker_process.bootstrap)
    group = f"g-{topic}"
    async with Producer(broker_process.bootstrap, transactional_id=f"x-{topic}") as producer, producer.transaction():
        await producer.send(topic, b"v")
        await producer.send_offsets_to_transaction(group, {(topic, 0): 42})
    async with Admin(broker_process.bootstrap) as admin:
        assert await admin.group_offsets(group) == {(topic, 0): 42}


async def test_a_second_producer_fences_the_first(broker_process: BrokerProcess) -> None:
    topic = await new_topic(broker_process.bootstrap)
    async with Producer(broker_process.bootstrap, transactional_id=f"x-{topic}") as first:
        async with first.transaction():
            await first.send(topic, b"v")
        async with Producer(broker_process.bootstrap, transactional_id=f"x-{topic}") as second:
            async with second.transaction():
                await second.send(topic, b"w")
            with pytest.raises(BrokerError, match=r"PRODUCER_FENCED|INVALID_PRODUCER_EPOCH"):
                async with first.transaction():
                    await first.send(topic, b"late")
            # The first producer stays fenced, and the second keeps its transaction.
            with pytest.raises(BrokerError, match=r"PRODUCER_FENCED|INVALID_PRODUCER_EPOCH"):
                async with first.transaction():
                    await first.send(topic, b"later still")
            async with second.transaction():
                await second.send(topic, b"x")
    assert values(await read_all(broker_process, topic, isolation_level="read_committed")) == [b"v", b"w", b"x"]


async def test_a_producer_that_renews_its_identity_does_not_fence_its_successor(broker_process: BrokerProcess) -> None:
    topic = await new_topic(broker_process.bootstrap)
    async with Producer(broker_process.bootstrap, transactional_id=f"x-{topic}") as first:
        async with first.transaction():
            await first.send(topic, b"v")
        async with Producer(broker_process.bootstrap, transactional_id=f"x-{topic}") as second:
            transactions = first._transactions
            assert transactions is not None
            transactions.begin()
            transactions.fail(DeadlineExceededError("a record was lost before its partition was added"))
            await first._abort(transactions, transactions.error or Exception())
            with pytest.raises(BrokerError, match=r"PRODUCER_FENCED|INVALID_PRODUCER_EPOCH"):
                async with first.transaction():
                    await first.send(topic, b"late")
            async with second.transaction():
                await second.send(topic, b"w")
    assert values(await read_all(broker_process, topic, isolation_level="read_committed")) == [b"v", b"w"]


# --- faults ---


async def test_kills_and_restarts_of_the_broker_lose_and_duplicate_no_records(broker_process: BrokerProcess) -> None:
    topic = await new_topic(broker_process.bootstrap)
    sent: list[bytes] = []
    async with Producer(
        broker_process.bootstrap, retry_backoff_ms=20, reconnect_backoff_ms=20, request_timeout_ms=2_000
    ) as producer:
        for round_number in range(3):
            for n in range(300):
                body = b"%d-%d" % (round_number, n)
                await producer.send(topic, body)
                sent.append(body)
            broker_process.kill()
            await trio.to_thread.run_sync(broker_process.start_again)
        with trio.fail_after(PATIENCE_S):
            await producer.flush()
    assert values(await read_all(broker_process, topic)) == sent


async def test_a_clock_that_jumps_breaks_no_deadline(broker_process: BrokerProcess) -> None:
    topic = await new_topic(broker_process.bootstrap)
    times = iter([10**12, 2 * 10**12, 5])
    async with Producer(broker_process.bootstrap, clock_ms=lambda: next(times)) as producer:
        deliveries = [await producer.send(topic, b"v") for _ in range(3)]
        assert [(await delivery).timestamp for delivery in deliveries] == [10**12, 2 * 10**12, 5]
