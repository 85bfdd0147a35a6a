"""Stored batches in the enriched layout: the same records, with all tags."""

from hypothesis import given
from hypothesis import strategies as st

from gregor.protocol.records import enriched, v0, v2
from gregor.protocol.records.batches import Record, iter_batches, iter_records
from gregor.protocol.records.compression import Codec
from gregor.protocol.records.control import ControlType, EndTransactionMarker, build_end_transaction_batch, encode_key
from gregor.protocol.records.enriched import ControlMessage, EnrichedMessage, KafkaTags
from gregor.protocol.records.enriched_copy import enriched_copies
from tests.protocol.records.record_strategies import Sample, numbered, samples, v2_records


def copies(data: bytes, tags: KafkaTags) -> list[EnrichedMessage]:
    """Return the messages for all batches in `data`, once to bytes and back."""
    written = b"".join(
        enriched.encode_message(message) for batch in iter_batches(data) for message in enriched_copies(batch, tags)
    )
    return list(enriched.iter_messages(written))


@given(samples)
def test_enriched_copies_have_the_records_without_their_headers(sample: Sample) -> None:
    messages = copies(sample.data, KafkaTags())
    read_back = [record for message in messages for record in enriched.iter_records(message)]
    stored = [record for batch in iter_batches(sample.data) for record in iter_records(batch)]
    assert read_back == [record._replace(headers=()) for record in stored]
    assert len(messages) == (len(stored) if sample.codec is Codec.NONE else 1)


@given(v2_records, st.booleans())
def test_a_compressed_batch_keeps_its_tags(records: list[Record], honoured: bool) -> None:
    data = v2.build_batch(numbered(records), codec=Codec.LZ4)
    (message,) = copies(data, KafkaTags(77_000, len(records), honoured, None))
    keyed = any(record.key is not None for record in records)
    assert message.tags == KafkaTags(77_000, len(records), honoured, keyed)
    assert (message.codec, message.timestamp_s) == (Codec.LZ4, 77)


def test_holes_that_compaction_left_stay() -> None:
    records = [Record(offset, 5, b"k", b"v") for offset in (0, 3, 4)]
    data = v2.build_batch(records, codec=Codec.GZIP, base_offset=100)
    (message,) = copies(data, KafkaTags(relative_offsets_honoured=True))
    assert [record.offset for record in enriched.iter_records(message)] == [
        record.offset for batch in iter_batches(data) for record in iter_records(batch)
    ]


def test_transaction_markers_become_control_messages() -> None:
    for kind, expected in (
        (ControlType.COMMIT, ControlMessage.COMMIT_TRANSACTION),
        (ControlType.ABORT, ControlMessage.ABORT_TRANSACTION),
    ):
        data = build_end_transaction_batch(
            EndTransactionMarker(kind, 3), producer_id=9, producer_epoch=1, timestamp=5000, base_offset=7
        )
        (message,) = copies(data, KafkaTags())
        assert (message.control, message.offset, message.timestamp_s) == (expected, 7, 5)


def test_control_records_without_an_enriched_type_are_left_out() -> None:
    snapshot_header = Record(0, 5, encode_key(ControlType.SNAPSHOT_HEADER), b"")
    assert copies(v2.build_batch([snapshot_header], is_control=True), KafkaTags()) == []


def test_a_v0_message_has_the_time_of_its_tag() -> None:
    (message,) = copies(v0.build_message_set([Record(value=b"v")]), KafkaTags(timestamp_ms=9_001))
    assert (message.timestamp_ms, message.timestamp_s) == (9_001, 9)
