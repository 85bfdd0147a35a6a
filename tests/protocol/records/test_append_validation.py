"""Validation by a leader, beyond the vectors: hostile payloads, bounds, and each rule by itself."""

import random
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gregor.protocol.errors import BrokerError, ErrorCode
from gregor.protocol.records import v0, v1, v2
from gregor.protocol.records.batches import Record
from gregor.protocol.records.compression import Codec, compress
from gregor.protocol.records.record import TimestampType
from gregor.protocol.records.validation import AppendRules, RecordValidationError, check_produce_version, validate
from tests.protocol.records.record_strategies import Sample, documented_failures, samples

NOW_MS = 1_700_000_000_000
MIB = 2**20
RULES = AppendRules()
COMPACTED = AppendRules(keys_required=True)
LOG_APPEND_TIME = AppendRules(timestamp_type=TimestampType.LOG_APPEND_TIME)


@contextmanager
def at_most_held(size_bytes: int) -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < size_bytes
    finally:
        tracemalloc.stop()


def refusal(data: bytes, rules: AppendRules = RULES) -> BrokerError:
    with pytest.raises(BrokerError) as failure:
        validate(data, rules, now_ms=NOW_MS)
    return failure.value


def messages(count: int) -> list[Record]:
    return [Record(index, NOW_MS, None, b"value") for index in range(count)]


@given(samples)
def test_validation_returns_the_facts_of_a_valid_payload(sample: Sample) -> None:
    payload = bytes(sample.data)
    produced = validate(payload, RULES, now_ms=NOW_MS)
    (batch,) = produced.batches
    stamps = [record.timestamp for record in sample.records]
    assert bytes(produced.data) == payload == sample.data
    assert produced.record_count == batch.record_count == len(sample.records)
    assert (batch.magic, batch.codec, batch.size_bytes) == (sample.magic, sample.codec, len(payload))
    assert batch.max_timestamp == max(stamps)
    assert batch.max_timestamp == -1 or stamps[batch.index_of_max_timestamp] == batch.max_timestamp
    assert batch.keyed == any(record.key is not None for record in sample.records)
    assert batch.relative_offsets_honoured == (sample.magic != 0 or sample.codec is Codec.NONE)


@given(samples, st.data())
def test_damage_raises_documented_errors_only(sample: Sample, data: st.DataObject) -> None:
    damaged = bytearray(sample.data)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    if sample.magic == v2.MAGIC:
        # With a valid CRC the records are checked.
        damaged[:21] = sample.data[:21]
        v2.UINT32.pack_into(damaged, v2.CRC_AT, v2.batch_crc(damaged, 0, len(damaged)))
    with documented_failures():
        validate(damaged, replace(RULES, limit_bytes=MIB), now_ms=NOW_MS)


@given(samples)
def test_a_partial_tail_is_cut_off(sample: Sample) -> None:
    whole = validate(sample.data, RULES, now_ms=NOW_MS)
    assert bytes(validate(sample.data + sample.data[:30][:20], RULES, now_ms=NOW_MS).data) == bytes(whole.data)
    assert validate(sample.data[:20], RULES, now_ms=NOW_MS).batches == []


def test_a_record_count_beyond_the_data_is_refused_without_large_memory() -> None:
    data = bytearray(v2.build_batch(messages(2)))
    for at, value in ((v2.RECORD_COUNT_AT, 10**9), (v2.LAST_OFFSET_DELTA_AT, 10**9 - 1)):
        data[at : at + 4] = value.to_bytes(4, "big")
    v2.UINT32.pack_into(data, v2.CRC_AT, v2.batch_crc(data, 0, len(data)))
    with at_most_held(MIB):
        assert refusal(bytes(data)).code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("magic", [0, 1])
def test_a_decompression_bomb_in_an_old_format_takes_little_memory(magic: int) -> None:
    """KIP-283's format v1 gzip bomb: one message whose value inflates to hundreds of megabytes."""
    head_size = v0.HEADER_SIZE if magic == 0 else v1.HEADER_SIZE
    inner = bytearray(v0.build_message(0, b"", b"") if magic == 0 else v1.build_message(0, -1, b"", b""))
    size = 200 * MIB
    inner[8:12] = (size + len(inner) - 12).to_bytes(4, "big")
    # The key is empty, so the value's length follows the key's length.
    inner[head_size : head_size + 4] = size.to_bytes(4, "big")
    packed = compress(Codec.GZIP, bytes(inner)) + compress(Codec.GZIP, bytes(MIB)) * 200
    wrapper = (
        v0.build_message(0, None, packed, attributes=1)
        if magic == 0
        else v1.build_message(0, -1, None, packed, attributes=1)
    )
    rules = replace(RULES, max_message_bytes=2 * MIB)
    with at_most_held(4 * MIB):
        assert refusal(wrapper, rules).code is ErrorCode.MESSAGE_TOO_LARGE
    with at_most_held(4 * MIB):
        assert refusal(wrapper, replace(rules, limit_bytes=400 * MIB)).code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
@pytest.mark.parametrize("magic", [0, 1, 2])
def test_damaged_compressed_data_with_a_valid_crc_is_invalid_record(codec: Codec, magic: int) -> None:
    """Clients would retry after CORRUPT_MESSAGE; Kafka 3.9.1 answers -1 or 87, after which they do not retry."""
    if magic < 2 and codec is Codec.ZSTD:
        return
    inner = {
        0: v0.build_message(0, b"k", b"v" * 500),
        1: v1.build_message(0, -1, b"k", b"v" * 500),
        2: bytes(v2.build_batch(messages(5)))[v2.RECORDS_AT :],
    }
    packed = compress(codec, inner[magic], magic=magic)
    for damaged in (b"", packed[: len(packed) // 2], b"garbage!" * 5, bytes(4) + packed[4:]):
        if magic == 2:
            data = bytearray(v2.build_batch(messages(5)))[: v2.RECORDS_AT] + damaged
            data[8:12] = (len(data) - 12).to_bytes(4, "big")
            data[v2.ATTRIBUTES_AT : v2.ATTRIBUTES_AT + 2] = int(codec).to_bytes(2, "big")
            v2.UINT32.pack_into(data, v2.CRC_AT, v2.batch_crc(data, 0, len(data)))
        elif magic == 1:
            data = bytearray(v1.build_message(0, -1, None, damaged, attributes=int(codec)))
        else:
            data = bytearray(v0.build_message(0, None, damaged, attributes=int(codec)))
        assert refusal(bytes(data)).code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_an_unknown_codec_is_invalid_record(codec: int) -> None:
    data = bytearray(v2.build_batch(messages(1)))
    data[v2.ATTRIBUTES_AT : v2.ATTRIBUTES_AT + 2] = codec.to_bytes(2, "big")
    v2.UINT32.pack_into(data, v2.CRC_AT, v2.batch_crc(data, 0, len(data)))
    assert refusal(bytes(data)).code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_a_decompression_bomb_in_v2_takes_little_memory(codec: Codec) -> None:
    data = v2.build_batch([Record(0, NOW_MS, None, bytes(32 * MIB))], codec=codec)
    with at_most_held(4 * MIB):
        produced = validate(data, RULES, now_ms=NOW_MS)
    assert produced.record_count == 1
    assert refusal(data, replace(RULES, limit_bytes=MIB)).code is ErrorCode.MESSAGE_TOO_LARGE


def test_at_most_1000_record_errors_are_listed() -> None:
    records = [Record(index, 5, None, None) for index in range(3000)]
    failure = refusal(v2.build_batch(records, codec=Codec.LZ4), COMPACTED)
    assert isinstance(failure, RecordValidationError)
    assert len(failure.record_errors) == 1000


def test_time_stamps_out_of_bounds_are_named_by_index() -> None:
    rules = AppendRules(timestamp_before_max_ms=1000, timestamp_after_max_ms=10)
    stamps = [NOW_MS, NOW_MS - 1001, NOW_MS + 11, -1, NOW_MS - 1000, NOW_MS + 10]
    records = [Record(index, stamp, None, b"v") for index, stamp in enumerate(stamps)]
    for data in (v2.build_batch(records), v2.build_batch(records, codec=Codec.ZSTD)):
        failure = refusal(data, rules)
        assert isinstance(failure, RecordValidationError)
        assert failure.code is ErrorCode.INVALID_TIMESTAMP
        assert [error.batch_index for error in failure.record_errors] == [1, 2]
        assert str(NOW_MS - 1001) in failure.record_errors[0].message
    validate(v2.build_batch(records), replace(rules, timestamp_type=TimestampType.LOG_APPEND_TIME), now_ms=NOW_MS)


def test_client_batches_with_log_append_time_are_refused_in_log_append_time_topics() -> None:
    data = v2.build_batch(messages(2), timestamp_type=TimestampType.LOG_APPEND_TIME)
    failure = refusal(data, LOG_APPEND_TIME)
    assert isinstance(failure, RecordValidationError)
    assert [error.batch_index for error in failure.record_errors] == [0, 1]
    assert failure.code is ErrorCode.INVALID_TIMESTAMP


def test_control_batches_are_for_coordinators() -> None:
    data = v2.build_batch([Record(0, 1, b"\0\0\0\1", b"\0\0\0\0\0\0")], is_control=True, base_offset=0)
    assert refusal(data).code is ErrorCode.INVALID_RECORD
    produced = validate(data, replace(RULES, from_client=False), now_ms=NOW_MS)
    assert produced.batches[0].is_control


def test_several_batches_in_a_payload_are_accepted_only_if_old_and_uncompressed() -> None:
    run = validate(v0.build_message_set(messages(5)), RULES, now_ms=NOW_MS)
    assert [(batch.position, batch.record_count) for batch in run.batches] == [(0, 5)]
    mixed = v0.build_message_set(messages(2)) + v1.build_message_set(messages(1))
    packed = v1.build_message_set(messages(2), codec=Codec.GZIP)
    for data in (v2.build_batch(messages(1)) * 2, mixed, packed * 2, v1.build_message_set(messages(1)) + packed):
        assert refusal(data).code is ErrorCode.INVALID_RECORD


def test_a_batch_may_be_as_large_as_the_topic_allows() -> None:
    data = v2.build_batch(messages(3))
    validate(data, AppendRules(max_message_bytes=len(data)), now_ms=NOW_MS)
    assert refusal(data, AppendRules(max_message_bytes=len(data) - 1)).code is ErrorCode.MESSAGE_TOO_LARGE


def test_produce_versions_take_their_own_formats() -> None:
    old, new = v1.build_message_set(messages(1)), v2.build_batch(messages(1))
    zstd = v2.build_batch(messages(1), codec=Codec.ZSTD)
    for data, version in ((old, 2), (b"", 2), (new, 3), (zstd, 7)):
        check_produce_version(data, version)
    for data, version in ((old, 3), (b"", 3), (new * 2, 9)):
        with pytest.raises(BrokerError) as failure:
            check_produce_version(data, version)
        assert failure.value.code is ErrorCode.INVALID_RECORD
    with pytest.raises(BrokerError) as failure:
        check_produce_version(zstd, 6)
    assert failure.value.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


@pytest.mark.parametrize("inner_offsets", [(0, 0, 0), (5, 6, 7), (0, 2, 4), (2, 1, 0)])
def test_inner_offsets_that_readers_cannot_use_are_not_honoured(inner_offsets: tuple[int, ...]) -> None:
    inner = b"".join(v1.build_message(offset, 1, None, b"x") for offset in inner_offsets)
    wrapper = v1.build_message(max(inner_offsets), 1, None, compress(Codec.GZIP, inner), attributes=1)
    (batch,) = validate(wrapper, RULES, now_ms=NOW_MS).batches
    assert not batch.relative_offsets_honoured
    assert batch.record_count == 3


def test_random_payloads_from_a_seed_raise_documented_errors_only() -> None:
    source = random.Random(283)
    for _ in range(300):
        with documented_failures():
            validate(source.randbytes(source.randrange(200)), RULES, now_ms=NOW_MS)
