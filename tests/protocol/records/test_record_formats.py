"""Built records are read back equal in every format and codec, and a batch cut anywhere is a partial tail."""

from collections.abc import Callable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gregor.protocol.records import v0, v1, v2
from gregor.protocol.records.batches import BatchView, iter_batches, iter_records, read_batch
from gregor.protocol.records.compression import Codec
from gregor.protocol.records.record import Record, TimestampType
from gregor.protocol.records.varint import INT64_LAST_SHIFT, encode_varint, read_varint, varint_size
from tests.protocol.records.record_strategies import Sample, documented_failures, samples


def only_batch(data: bytes) -> BatchView:
    (batch,) = iter_batches(data)
    return batch


@given(samples)
def test_records_of_every_format_are_read_back(sample: Sample) -> None:
    batches = list(iter_batches(sample.data))
    assert [record for batch in batches for record in iter_records(batch)] == sample.records
    assert all(batch.crc_is_valid and batch.codec is sample.codec and batch.magic == sample.magic for batch in batches)
    assert sum(batch.size_bytes for batch in batches) == len(sample.data)
    assert batches[-1].last_offset == sample.records[-1].offset
    assert batches[0].base_offset == 0


@given(samples)
@settings(max_examples=20)
def test_a_batch_cut_anywhere_is_ignored(sample: Sample) -> None:
    first = next(iter_batches(sample.data))
    for end in range(first.size_bytes):
        assert read_batch(sample.data[:end]) is None


@given(samples, st.data())
def test_a_flipped_bit_never_passes_as_valid(sample: Sample, data: st.DataObject) -> None:
    damaged = bytearray(sample.data)
    position = data.draw(st.integers(v2.ATTRIBUTES_AT, next(iter_batches(sample.data)).size_bytes - 1))
    damaged[position] ^= 1 << data.draw(st.integers(0, 7))
    assert not next(iter_batches(damaged)).crc_is_valid


@given(samples, st.binary(min_size=1, max_size=40), st.data())
def test_garbage_raises_documented_errors_only(sample: Sample, garbage: bytes, data: st.DataObject) -> None:
    damaged = bytearray(sample.data)
    position = data.draw(st.integers(0, len(damaged) - 1))
    damaged[position : position + len(garbage)] = garbage
    with documented_failures():
        for batch in iter_batches(damaged):
            list(iter_records(batch, limit_bytes=2**20))


@given(st.binary(max_size=120), st.sampled_from([0, 1, 2]), st.integers(0, 255))
def test_noise_behind_a_plausible_header_raises_documented_errors_only(
    noise: bytes, magic: int, attributes: int
) -> None:
    body = bytes([0, 0, 0, 0, magic, attributes]) + noise
    data = b"\0" * 8 + len(body).to_bytes(4, "big") + body
    with documented_failures():
        for batch in iter_batches(data):
            list(iter_records(batch, limit_bytes=2**20))


@given(st.integers(-(2**63), 2**63 - 1))
@example(0)
@example(-1)
def test_varints_are_read_back(value: int) -> None:
    out = bytearray(b"x")
    out += encode_varint(value)
    assert read_varint(out, 1, last_shift=INT64_LAST_SHIFT) == (value, len(out))
    assert varint_size(value) == len(out) - 1


def test_bits_beyond_the_width_are_dropped() -> None:
    assert read_varint(b"\x82\x80\x80\x80\x7f", 0) == read_varint(b"\x82\x80\x80\x80\x0f", 0)


def test_a_varint_too_long_or_cut_short_is_refused() -> None:
    for data in (b"\xff" * 20, b"\xff\xff", b""):
        with pytest.raises(ValueError, match="too long, or cut short"):
            read_varint(data, 0)


def test_the_fields_of_a_v2_header_are_read_back() -> None:
    records = [Record(70, 1000, b"k", b"v"), Record(75, 900, None, None)]
    batch = only_batch(
        v2.build_batch(
            records,
            base_offset=68,
            last_offset=80,
            codec=Codec.LZ4,
            producer_id=9,
            producer_epoch=3,
            base_sequence=2**31 - 1,
            is_transactional=True,
            leader_epoch=4,
        )
    )
    assert (batch.base_offset, batch.last_offset, batch.record_count) == (68, 80, 2)
    assert (batch.base_timestamp, batch.max_timestamp) == (1000, 1000)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.leader_epoch) == (9, 3, 2**31 - 1, 4)
    assert batch.last_sequence == 11
    assert batch.is_transactional
    assert not batch.is_control
    assert list(iter_records(batch)) == records


def test_log_append_time_is_every_records_time() -> None:
    records = [Record(0, 5, None, b"a"), Record(1, 9, None, b"b")]
    stamped = TimestampType.LOG_APPEND_TIME
    old = v1.build_message_set(records, codec=Codec.GZIP, timestamp_type=stamped)
    new = v2.build_batch(records, codec=Codec.GZIP, timestamp_type=stamped)
    for data in (old, new):
        assert [record.timestamp for record in iter_records(only_batch(data))] == [9, 9]


def test_an_emptied_batch_has_no_records() -> None:
    batch = only_batch(v2.build_batch([], base_offset=5, last_offset=9, codec=Codec.GZIP))
    assert list(iter_records(batch)) == []
    assert batch.last_offset == 9


def test_relative_offsets_with_gaps_count_from_the_wrappers_first() -> None:
    records = [Record(offset, 0, None, b"x") for offset in (100, 104, 109)]
    batch = only_batch(v1.build_message_set(records, codec=Codec.SNAPPY))
    assert batch.last_offset == 109
    assert batch.base_offset == 100
    assert [record.offset for record in iter_records(batch)] == [100, 104, 109]


@pytest.mark.parametrize("build", [v0.build_message_set, v1.build_message_set])
def test_records_of_a_marked_wrapper_are_numbered_by_index(build: Callable[..., bytes]) -> None:
    records = [Record(offset, key=None, value=b"x") for offset in (0, 5, 9)]
    data = bytearray(build(records, codec=Codec.GZIP))
    data[v0.ATTRIBUTES_AT] |= v0.NUMBERED_BY_INDEX_FLAG
    data[7] = 102
    assert [record.offset for record in iter_records(only_batch(bytes(data)))] == [100, 101, 102]
