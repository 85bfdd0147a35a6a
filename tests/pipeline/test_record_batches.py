"""Stored batches as Arrow batches of records: the same records, in both builds of the kernel."""

import os
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("pyarrow", reason="the pipeline needs gregor-broker[spark]")

from gregor.pipeline.columns.record_batches import RecordBatches, RecordOptions
from gregor.pipeline.columns.schemas import Mode, arrow_schema
from gregor.pipeline.errors import DamagedLogError
from gregor.protocol.records import v0, v1, v2
from gregor.protocol.records.batches import iter_batches
from gregor.protocol.records.compression import Codec
from gregor.protocol.records.record import Header, Record, TimestampType
from tests.protocol.records.record_strategies import Sample, samples

both_builds = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=60
)

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@pytest.fixture(autouse=True)
def _both_builds(record_build: str) -> None:
    """Run each test of this file with the compiled kernel and with its Python source."""


def rows(stored: bytes, **options: Any) -> list[dict[str, Any]]:
    batches = list(RecordBatches("t", 3, RecordOptions(**options)).read(memoryview(stored)))
    for batch in batches:
        batch.validate(full=True)
    return [row for batch in batches for row in batch.to_pylist()]


def expected(record: Record, magic: int) -> dict[str, Any]:
    pairs = [{"key": key.decode(errors="surrogateescape"), "value": value} for key, value in record.headers]
    return {
        "key": record.key,
        "value": record.value,
        "offset": record.offset,
        "timestamp": EPOCH + timedelta(milliseconds=record.timestamp),
        "headers": pairs or None,
        "magic": magic,
    }


def with_text_headers(sample: Sample) -> Sample:
    """Return the sample with header keys as hex text, since tables have text where Kafka has bytes."""
    if sample.magic != v2.MAGIC:
        return sample
    records = [
        record._replace(headers=tuple(Header(header.key.hex().encode(), header.value) for header in record.headers))
        for record in sample.records
    ]
    return Sample(sample.magic, sample.codec, records, v2.build_batch(records, codec=sample.codec))


@both_builds
@given(samples.map(with_text_headers), st.integers(1, 5))
def test_the_rows_are_the_records(sample: Sample, batch_rows: int) -> None:
    found = rows(sample.data, batch_rows=batch_rows)
    wanted = [expected(record, sample.magic) for record in sample.records]
    assert [{name: row[name] for name in wanted[0]} for row in found] == wanted
    assert {row["codec"] for row in found} == {sample.codec.name.lower()}
    assert {(row["topic"], row["partition"], row["producerId"]) for row in found} == {("t", 3, -1)}
    kind = TimestampType.NO_TIMESTAMP_TYPE if sample.magic == 0 else TimestampType.CREATE_TIME
    assert {row["timestampType"] for row in found} == {kind}


@both_builds
@given(samples, st.integers(0, 12), st.integers(0, 12))
def test_only_records_in_the_requested_offset_range_become_rows(sample: Sample, first: int, end: int) -> None:
    found = [row["offset"] for row in rows(sample.data, first_offset=first, end_offset=end, with_values=False)]
    assert found == [record.offset for record in sample.records if first <= record.offset < end]


@both_builds
@given(samples, st.data())
def test_damage_is_an_error_that_names_the_place(sample: Sample, data: st.DataObject) -> None:
    damaged = bytearray(sample.data)
    position = data.draw(st.integers(v2.ATTRIBUTES_AT, next(iter_batches(sample.data)).size_bytes - 1))
    damaged[position] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(DamagedLogError, match=r"^t-3 offset \d+: "):
        rows(bytes(damaged))


@both_builds
@given(samples, st.binary(min_size=1, max_size=40), st.data())
def test_garbage_ends_in_an_error_or_in_rows(sample: Sample, garbage: bytes, data: st.DataObject) -> None:
    damaged = bytearray(sample.data)
    position = data.draw(st.integers(0, len(damaged) - 1))
    damaged[position : position + len(garbage)] = garbage
    try:
        rows(bytes(damaged), checks_crc=False)
    except (DamagedLogError, UnicodeDecodeError, OverflowError, __import__("pyarrow").ArrowInvalid):
        # The kernel accepts text and times that Python cannot show.
        pass


def test_an_incomplete_last_batch_is_not_read() -> None:
    whole = v2.build_batch([Record(0, 1, b"k", b"v")])
    reader = RecordBatches("t", 0, RecordOptions())
    assert [batch.num_rows for batch in reader.read(memoryview(whole + whole[:-1]))] == [1]
    assert reader.position == len(whole)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_a_batch_with_more_records_than_expected_is_read_completely(codec: Codec) -> None:
    many = [Record(index, 0, None, b"") for index in range(3_000)]
    found = rows(v2.build_batch(many, codec=codec), batch_rows=7)
    assert [row["offset"] for row in found] == list(range(3_000))


def test_control_batches_and_hidden_ones_give_no_rows() -> None:
    control = v2.build_batch([Record(1, 0, b"\x00\x00\x00\x01", b"")], base_offset=1, is_control=True)
    stored = b"".join(
        [v2.build_batch([Record(0, 0, None, b"a")]), control, v2.build_batch([Record(2, 0, None, b"b")], base_offset=2)]
    )
    assert [row["value"] for row in rows(stored)] == [b"a", b"b"]
    hiding = RecordBatches("t", 0, RecordOptions(), lambda batch: batch.stored_offset == 0)
    shown = [row for batch in hiding.read(memoryview(stored)) for row in batch.to_pylist()]
    assert [row["value"] for row in shown] == [b"b"]
    assert hiding.position == len(stored)


def test_rows_have_the_producer_id_and_the_log_append_time() -> None:
    stored = v2.build_batch(
        [Record(5, 10, None, None), Record(6, 11, None, None)],
        base_offset=5,
        timestamp_type=TimestampType.LOG_APPEND_TIME,
        max_timestamp=777,
        producer_id=42,
        producer_epoch=1,
        base_sequence=0,
    )
    assert [(row["timestamp"], row["timestampType"], row["producerId"]) for row in rows(stored)] == [
        (EPOCH + timedelta(milliseconds=777), 1, 42)
    ] * 2


def test_relative_offsets_in_v1_wrappers_become_absolute() -> None:
    records = [Record(offset, 50, None, b"x") for offset in (0, 1, 5)]
    wrapper = bytearray(v1.build_message_set(records, codec=Codec.GZIP))
    v0.OFFSET_AND_SIZE.pack_into(wrapper, 0, 105, len(wrapper) - v0.LOG_OVERHEAD)
    assert [row["offset"] for row in rows(bytes(wrapper))] == [100, 101, 105]


def test_a_time_stamp_beyond_microseconds_is_an_error() -> None:
    stored = v2.build_batch([Record(0, 2**62, None, b"")])
    with pytest.raises(DamagedLogError, match="timestamp out of range"):
        rows(stored)


def test_a_record_count_larger_than_the_batch_can_hold_is_an_error() -> None:
    batch = bytearray(v2.build_batch([Record(0, 0, None, b"v")]))
    batch[v2.RECORD_COUNT_AT : v2.RECORD_COUNT_AT + 4] = (2**31 - 1).to_bytes(4, "big")
    with pytest.raises(DamagedLogError, match="t-3 offset 0"):
        rows(bytes(batch), checks_crc=False)


def test_older_batches_are_skipped_by_their_newest_time() -> None:
    stored = b"".join(v2.build_batch([Record(n, n * 100, None, b"")], base_offset=n) for n in range(5))
    assert [row["offset"] for row in rows(stored, least_timestamp=250)] == [3, 4]


def test_arrow_batches_share_no_memory_with_the_read_buffer() -> None:
    """Arrow batches share no memory with the buffer that they were read from, which the reader reuses."""

    def pieces() -> Iterator[Any]:
        source = bytearray(v2.build_batch([Record(0, 0, b"key", os.urandom(8))]))
        for batch in RecordBatches("t", 0, RecordOptions()).read(memoryview(source)):
            before = batch.to_pylist()
            source[:] = random.randbytes(len(source))
            yield before, batch.to_pylist()

    assert all(before == after for before, after in pieces())


def test_the_schema_is_the_documented_one() -> None:
    stored = v2.build_batch([Record(0, 0, None, b"v", (Header(b"h", None),))])
    for wanted in ({}, {"with_values": False}, {"with_headers": False}):
        (batch,) = RecordBatches("t", 0, RecordOptions(**wanted)).read(memoryview(stored))
        assert batch.schema.equals(arrow_schema(Mode.RECORDS, **wanted))
        assert ("headers" in batch.schema.names) == (not wanted)
