"""Offsets, epochs and timestamps are patched in place: every reader then sees the log's, and every CRC holds."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gregor.protocol.records import v0, v1, v2
from gregor.protocol.records.batches import Record, iter_batches, iter_records
from gregor.protocol.records.compression import Codec, compress
from gregor.protocol.records.offsets_cy import assign_offsets
from gregor.protocol.records.record import TimestampType
from gregor.protocol.records.validation import AppendRules, Produced, validate
from tests.protocol.records.record_strategies import Sample, samples

NOW_MS = 1_700_000_000_000
both_builds = settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


@pytest.fixture(autouse=True)
def _both_builds(record_build: str) -> None:
    """Run each test with both builds."""


def checked(data: bytes | bytearray) -> Produced:
    return validate(data, AppendRules(), now_ms=NOW_MS)


@both_builds
@given(samples, st.integers(0, 2**40), st.none() | st.just(NOW_MS))
def test_readers_see_the_logs_offsets(sample: Sample, base_offset: int, log_append_time_ms: int | None) -> None:
    produced = checked(sample.data)
    last_offset = assign_offsets(produced, base_offset, leader_epoch=7, log_append_time_ms=log_append_time_ms)
    (batch,) = produced.batches
    stored = list(iter_batches(produced.data))
    is_stamped = log_append_time_ms is not None and sample.magic != v0.MAGIC
    assert [record for each in stored for record in iter_records(each)] == [
        record._replace(
            offset=base_offset + index,
            timestamp=NOW_MS if is_stamped else record.timestamp,
        )
        for index, record in enumerate(sample.records)
    ]
    assert all(each.crc_is_valid for each in stored)
    assert (batch.base_offset, batch.last_offset) == (base_offset, last_offset)
    assert last_offset == base_offset + len(sample.records) - 1
    if sample.magic == v2.MAGIC:
        assert stored[0].leader_epoch == 7
    if is_stamped:
        assert batch.max_timestamp == NOW_MS
        assert all(each.timestamp_type is TimestampType.LOG_APPEND_TIME for each in stored)


@both_builds
@given(samples)
def test_compressed_data_is_never_touched(sample: Sample) -> None:
    produced = checked(sample.data)
    assign_offsets(produced, 12345, leader_epoch=1)
    first = next(iter_batches(produced.data))
    behind_header = v2.RECORDS_AT if first.magic == v2.MAGIC else v1.KEY_LENGTH_AT
    assert bytes(first.view[behind_header:]) == sample.data[behind_header : first.size_bytes]


def test_writable_payloads_are_patched_where_they_are_and_others_copied() -> None:
    data = v2.build_batch([Record(0, NOW_MS, None, b"x")])
    buffer = bytearray(data)
    assign_offsets(checked(buffer), 5, leader_epoch=1)
    assert buffer[7] == 5
    assign_offsets(checked(data), 5, leader_epoch=1)
    assert data[7] == 0


def test_an_empty_payload_takes_no_offset() -> None:
    assert assign_offsets(checked(b""), 40, leader_epoch=0) == 39


@pytest.mark.parametrize("inner_offsets", [(0, 0, 0), (5, 6, 7), (0, 2, 4), (2, 1, 0)])
@pytest.mark.parametrize("magic", [0, 1])
def test_misleading_inner_offsets_are_marked(magic: int, inner_offsets: tuple[int, ...]) -> None:
    if magic == 0:
        inner = b"".join(v0.build_message(offset, None, b"x") for offset in inner_offsets)
        wrapper = v0.build_message(max(inner_offsets), None, compress(Codec.SNAPPY, inner), attributes=2)
    else:
        inner = b"".join(v1.build_message(offset, 1, None, b"x") for offset in inner_offsets)
        wrapper = v1.build_message(max(inner_offsets), 1, None, compress(Codec.SNAPPY, inner), attributes=2)
    produced = checked(wrapper)
    assign_offsets(produced, 500, leader_epoch=0)
    (batch,) = iter_batches(produced.data)
    assert batch.is_numbered_by_index
    assert batch.crc_is_valid
    assert [record.offset for record in iter_records(batch)] == [500, 501, 502]
    assert batch.base_offset == 500


def test_a_wrong_wrapper_timestamp_is_replaced_by_the_maximum_inner_timestamp() -> None:
    inner = v1.build_message(0, 100, None, b"a") + v1.build_message(1, 300, None, b"b")
    wrapper = v1.build_message(1, 999, None, compress(Codec.GZIP, inner), attributes=1)
    produced = checked(wrapper)
    assign_offsets(produced, 0, leader_epoch=0)
    (batch,) = iter_batches(produced.data)
    assert batch.max_timestamp == 300
    assert batch.crc_is_valid
    assert produced.batches[0].index_of_max_timestamp == 1
