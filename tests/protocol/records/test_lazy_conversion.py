"""The lettered rules of `lazy`, and its contract for any input: exactly the promised bytes, or an error first."""

import tracemalloc

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gregor.protocol.errors import BrokerError, ErrorCode
from gregor.protocol.records import promised_size, v0, v1, v2
from gregor.protocol.records.batches import BatchView, iter_batches, iter_records, read_batch
from gregor.protocol.records.compression import Codec
from gregor.protocol.records.conversion_need import needs_conversion
from gregor.protocol.records.convert import convert_with_codec
from gregor.protocol.records.lazy import (
    LazyConversion,
    plan_down_conversion,
    plan_up_conversion,
)
from gregor.protocol.records.padding import FAKE_BATCH_BYTES, padding
from gregor.protocol.records.record import Header, Record, TimestampType
from gregor.protocol.records.stretch import HeldStretch

QUICK = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


def records(count: int, *, first: int = 0, value_bytes: int = 20, headers: int = 0) -> list[Record]:
    return [
        Record(
            offset,
            1_700_000_000_000 + offset,
            b"key-%d" % offset,
            b"v" * value_bytes,
            tuple(Header(b"name", b"x" * 50) for _ in range(headers)),
        )
        for offset in range(first, first + count)
    ]


def batch(count: int, *, first: int = 0, value_bytes: int = 20, headers: int = 0, codec: Codec = Codec.NONE) -> bytes:
    return v2.build_batch(
        records(count, first=first, value_bytes=value_bytes, headers=headers), base_offset=first, codec=codec
    )


def control_batch(offset: int) -> bytes:
    marker = Record(offset, 1_700_000_000_000, b"\0\0\0\1", b"\0\0\0\0\0\0")
    return v2.build_batch([marker], base_offset=offset, is_control=True, is_transactional=True, producer_id=7)


def plan(stored: bytes, *, to_magic: int = 1, first_offset: int = 0, chunk_bytes: int = 131072) -> LazyConversion:
    return plan_down_conversion(memoryview(stored), to_magic, first_offset, chunk_bytes=chunk_bytes)


def sent(conversion: LazyConversion, buffer_bytes: int = 65536) -> bytes:
    data = b"".join(map(bytes, conversion.pieces(bytearray(buffer_bytes))))
    assert len(data) == conversion.size
    return data


def complete_batches(data: bytes) -> list[BatchView]:
    """Return the batches that a client takes: those before the first batch that ends beyond the answer."""
    return list(iter_batches(memoryview(data)))


def offsets_received(data: bytes) -> list[int]:
    return [record.offset for each in complete_batches(data) for record in iter_records(each)]


def test_rule_a_batches_in_the_requested_format_are_sent_unchanged() -> None:
    stored = v1.build_message_set(records(5))
    assert sent(plan(stored)) == stored


def test_rule_b_a_larger_converted_result_is_trimmed_to_the_promised_size() -> None:
    stored = batch(3) + batch(200, first=3, value_bytes=1)
    conversion = plan(stored)
    assert conversion.size == len(stored)
    received = offsets_received(sent(conversion))
    assert received == list(range(len(received)))
    assert 3 < len(received) < 203


def test_rule_c_a_smaller_converted_result_is_padded_with_a_fake_batch() -> None:
    stored = batch(10, headers=3)
    data = sent(plan(stored))
    assert len(data) == len(stored)
    assert offsets_received(data) == list(range(10))
    end = complete_batches(data)[-1].end
    offset, length = v0.OFFSET_AND_SIZE.unpack_from(data, end)
    assert offset == -1
    assert length > len(data) - end - 12
    assert not any(data[end + 12 :])


def test_rule_c_long_padding_repeats_the_header_of_the_fake_batch() -> None:
    data = b"".join(map(bytes, padding(2 * FAKE_BATCH_BYTES + 5)))
    assert len(data) == 2 * FAKE_BATCH_BYTES + 5
    heads = [v0.OFFSET_AND_SIZE.unpack_from(data, at) for at in (0, FAKE_BATCH_BYTES)]
    assert heads == [(-1, 2 * FAKE_BATCH_BYTES + 6), (-1, FAKE_BATCH_BYTES + 6)]
    assert data[-5:] == b"\xff" * 5


def test_rule_d_a_first_batch_larger_than_the_stored_bytes_is_sent_whole() -> None:
    stored = batch(200, value_bytes=1)
    conversion = plan(stored)
    assert conversion.size > len(stored)
    assert offsets_received(sent(conversion)) == list(range(200))


@pytest.mark.parametrize("most_bytes", [None, 400])
@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
@pytest.mark.parametrize("to_magic", [0, 1])
def test_rule_d_holds_behind_a_compressed_batch_whose_last_records_were_compacted(
    to_magic: int, codec: Codec, most_bytes: int | None
) -> None:
    """A client continues at offset 2 of a batch of 0 to 9 without 2 to 9; the batch alone would not let it progress."""
    passed = [Record(n, 1, b"key", b"%d" % n * 400) for n in range(2)]
    wanted = [Record(n, 1, b"k%d" % n, b"") for n in range(10, 40)]
    stored = v2.build_batch(passed, last_offset=9, codec=codec) + v2.build_batch(wanted, base_offset=10, codec=codec)
    conversion = plan_down_conversion(memoryview(stored), to_magic, 2, most_bytes=most_bytes)
    sent = b"".join(bytes(piece) for piece in conversion.pieces(bytearray(65536)))
    offsets = [record.offset for batch in iter_batches(memoryview(sent)) for record in iter_records(batch)]
    assert len(sent) == conversion.size
    if most_bytes is None:
        assert offsets == [0, 1, *range(10, 40)]
    else:
        assert len(sent) <= most_bytes
        assert any(offset >= 10 for offset in offsets)


@pytest.mark.parametrize("stored", [control_batch(0), control_batch(0) + control_batch(1), batch(3)])
def test_rule_e_without_remaining_records_a_fake_batch_header_is_sent(stored: bytes) -> None:
    assert sent(plan(stored, first_offset=50)) == v0.OFFSET_AND_SIZE.pack(-1, 61)


@pytest.mark.parametrize("stored", [b"", b"\0" * 11, batch(1)[:-1]])
def test_rule_f_without_a_complete_batch_nothing_is_sent(stored: bytes) -> None:
    assert sent(plan(stored)) == b""


@pytest.mark.parametrize("before", [b"", control_batch(0)])
def test_rule_g_a_first_batch_in_zstd_is_unsupported_compression_type(before: bytes) -> None:
    with pytest.raises(BrokerError) as failure:
        plan(before + batch(3, first=1, codec=Codec.ZSTD))
    assert failure.value.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_rule_h_a_later_zstd_batch_ends_the_converted_records() -> None:
    in_its_chunk = batch(3) + batch(3, first=3) + batch(3, first=6, codec=Codec.ZSTD)
    assert offsets_received(sent(plan(in_its_chunk))) == [0, 1, 2]
    assert offsets_received(sent(plan(in_its_chunk, chunk_bytes=0))) == [0, 1, 2, 3, 4, 5]


def test_rule_h_control_batches_in_zstd_are_dropped() -> None:
    marker = bytearray(control_batch(3))
    marker[v2.ATTRIBUTES_AT + 1] |= Codec.ZSTD
    assert offsets_received(sent(plan(batch(3) + marker + batch(3, first=4)))) == [0, 1, 2, 4, 5, 6]


def test_rule_i_a_damaged_first_batch_is_corrupt_message() -> None:
    stored = bytearray(batch(3))
    stored[v2.RECORDS_AT] = 0x7F
    with pytest.raises(BrokerError) as failure:
        plan(bytes(stored))
    assert failure.value.code is ErrorCode.CORRUPT_MESSAGE


def test_rule_i_a_damaged_compressed_first_batch_is_corrupt_message() -> None:
    stored = bytearray(batch(30, codec=Codec.GZIP))
    stored[v2.RECORDS_AT + 12 :] = bytes(len(stored) - v2.RECORDS_AT - 12)
    with pytest.raises(BrokerError) as failure:
        plan(bytes(stored))
    assert failure.value.code is ErrorCode.CORRUPT_MESSAGE


def test_rule_i_a_first_batch_inflating_beyond_the_limit_is_corrupt_message() -> None:
    stored = memoryview(batch(100, value_bytes=10_000, codec=Codec.GZIP))
    with pytest.raises(BrokerError) as failure:
        plan_down_conversion(stored, 1, 0, limit_bytes=100_000)
    assert failure.value.code is ErrorCode.CORRUPT_MESSAGE


def test_rule_j_a_damaged_later_record_ends_the_converted_records() -> None:
    bad = bytearray(batch(3, first=3))
    bad[-1] = 0x7F
    data = sent(plan(batch(3) + bytes(bad) + batch(3, first=6)))
    assert offsets_received(data) == [0, 1, 2, 3, 4]


def test_the_first_batch_is_sent_once_after_dropped_control_batches() -> None:
    stored = control_batch(0) + batch(3, first=1) + batch(3, first=4)
    assert offsets_received(sent(plan(stored))) == [1, 2, 3, 4, 5, 6]


def test_wrappers_numbered_by_index_are_converted_with_correct_inner_offsets() -> None:
    """A producer of 0.8 wrote 0, 1, 2 inside; the log begins them at 100."""
    wrapper = bytearray(v0.build_message_set(records(3), codec=Codec.GZIP))
    wrapper[v0.ATTRIBUTES_AT] |= v0.NUMBERED_BY_INDEX_FLAG
    wrapper[: v0.SIZE_AT] = (102).to_bytes(8, "big")
    v0.UINT32.pack_into(wrapper, v0.CRC_AT, v0.message_crc(wrapper, 0, len(wrapper)))
    stored = bytes(wrapper)
    assert needs_conversion(memoryview(stored), 1)
    for to_magic in (0, 1):
        received = complete_batches(sent(plan(stored, to_magic=to_magic)))
        assert [each.is_numbered_by_index for each in received] == [False]
        assert [record.offset for each in received for record in iter_records(each)] == [100, 101, 102]
    conversion = plan_up_conversion(memoryview(stored), 0)
    assert offsets_received(sent(conversion)) == [100, 101, 102]


def test_needs_conversion_for_each_stored_and_requested_format() -> None:
    old, middle, new = v0.build_message_set(records(2)), v1.build_message_set(records(2)), batch(2)
    assert [needs_conversion(memoryview(each), 0) for each in (old, middle, new)] == [False, True, True]
    assert [needs_conversion(memoryview(each), 1) for each in (old, middle, new)] == [False, False, True]
    assert [needs_conversion(memoryview(each), 2) for each in (old, middle, new)] == [True, True, False]
    assert needs_conversion(memoryview(old + new), 1)


def test_memory_does_not_grow_with_the_answer() -> None:
    many = memoryview(batch(100, value_bytes=1000) * 100)
    huge = memoryview(batch(1, value_bytes=8_000_000) + v1.build_message_set(records(1, value_bytes=8_000_000)))
    out = bytearray(65536)
    for conversion in (plan_down_conversion(many, 1, 0), plan_down_conversion(huge, 0, 0), plan_up_conversion(huge, 0)):
        tracemalloc.start()
        total = sum(map(len, conversion.pieces(out)))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert total == conversion.size
        assert peak < 64 * 1024


class ForgetfulStretch:
    """A small buffer for all windows that is overwritten after each piece; larger windows get a buffer of their own."""

    def __init__(self, stored: bytes, buffer_bytes: int) -> None:
        self._stored = stored
        self.buffer = memoryview(bytearray(buffer_bytes))
        self.size_bytes = len(stored)

    def window(self, position: int, size_bytes: int) -> memoryview:
        found = memoryview(self._stored)[position : position + size_bytes]
        if len(found) > len(self.buffer):
            return found
        self.buffer[: len(found)] = found
        return self.buffer[: len(found)]


@pytest.mark.parametrize("to_magic", [0, 1, 2])
def test_stored_bytes_are_not_used_after_the_piece_that_read_them(to_magic: int) -> None:
    large = v1.build_message_set(records(1, first=900, value_bytes=50_000))
    stored = b"".join(batch(90, first=n * 90, value_bytes=n) for n in range(10)) + large + control_batch(901)
    stretch = ForgetfulStretch(stored, 4096)

    def planned(stored: memoryview | ForgetfulStretch) -> LazyConversion:
        if to_magic == v2.MAGIC:
            return plan_up_conversion(stored, 0, chunk_bytes=4096)
        return plan_down_conversion(stored, to_magic, 0, chunk_bytes=4096)

    expected = sent(planned(memoryview(stored)), 8192)
    received = bytearray()
    for piece in planned(stretch).pieces(bytearray(8192)):
        received += piece
        stretch.buffer[:] = b"\xff" * len(stretch.buffer)
    assert received == expected
    assert needs_conversion(stretch, to_magic)


keys_and_values = st.none() | st.binary(max_size=40)


@st.composite
def stored_stretches(draw: st.DrawFn) -> bytes:
    """Draw batches of all formats, as a log may hold them, the last perhaps partial."""
    offset = draw(st.integers(0, 1000))
    parts = []
    for _ in range(draw(st.integers(1, 5))):
        contents = []
        for _ in range(draw(st.integers(1, 4))):
            timestamp = draw(st.sampled_from([-1, 0, 1_700_000_000_000, 2**62]))
            headers = (Header(b"h", None), Header(b"", b"x")) if draw(st.booleans()) else ()
            contents.append(Record(offset, timestamp, draw(keys_and_values), draw(keys_and_values), headers))
            offset += draw(st.integers(1, 3))
        codec = draw(st.sampled_from([Codec.NONE, Codec.NONE, Codec.NONE, Codec.LZ4, Codec.GZIP]))
        magic = draw(st.integers(0, 2))
        appended_at = draw(st.none() | st.integers(0, 2**41))
        timestamp_type = TimestampType.CREATE_TIME
        if appended_at is not None and magic > 0:
            timestamp_type = TimestampType.LOG_APPEND_TIME
            contents = [record._replace(timestamp=appended_at) for record in contents]
        if magic == v2.MAGIC:
            parts.append(
                v2.build_batch(contents, base_offset=contents[0].offset, codec=codec, timestamp_type=timestamp_type)
            )
        elif magic == v1.MAGIC:
            parts.append(v1.build_message_set(contents, codec=codec, timestamp_type=timestamp_type))
        else:
            parts.append(v0.build_message_set(contents, codec=codec))
    stored = b"".join(parts)
    return stored[: len(stored) - draw(st.sampled_from([0, 0, 1, 30]))]


def contents_of(data: memoryview, *, with_time: bool) -> list[tuple[int, int, bytes | None, bytes | None]]:
    return [
        (record.offset, record.timestamp if with_time else -1, record.key, record.value)
        for each in iter_batches(data)
        for record in iter_records(each)
    ]


@QUICK
@given(stored_stretches())
def test_up_and_down_again_keeps_every_record(stored: bytes) -> None:
    up = everything(plan_up_conversion(memoryview(stored), 0))
    assert all(each.magic == v2.MAGIC and each.crc_is_valid for each in iter_batches(up))
    assert contents_of(up, with_time=True) == contents_of(memoryview(stored), with_time=True)
    for to_magic in (1, 0):
        down = everything(plan_down_conversion(up, to_magic, 0))
        assert all(each.magic <= to_magic and each.crc_is_valid for each in iter_batches(down))
        assert contents_of(down, with_time=to_magic == 1) == contents_of(up, with_time=to_magic == 1)


def everything(conversion: LazyConversion) -> memoryview:
    """Return all bytes that a conversion could send without truncation or padding."""
    conversion.size = 2**30
    data = bytearray()
    for piece in conversion.pieces(bytearray(500)):
        if bytes(piece[:8]) == b"\xff" * 8:
            break
        data += piece
    return memoryview(data)


def sent_in_both_ways(stored: bytes, to_magic: int, first_offset: int) -> tuple[bytes, bytes]:
    """Return the answer with the size of KIP-283, and the one that pads less."""
    view = memoryview(stored)
    kip_283 = sent(plan_down_conversion(view, to_magic, first_offset))
    return kip_283, sent(plan_down_conversion(view, to_magic, first_offset, pads_less=True))


@pytest.mark.parametrize("to_magic", [0, 1])
@pytest.mark.parametrize(
    ("stored", "first_offset"),
    [
        (b"".join(batch(1, first=offset, value_bytes=10) for offset in range(300)), 0),
        (batch(800, value_bytes=1_000) + batch(2, first=800), 797),
        (batch(40, headers=3) + batch(40, first=40, headers=2), 0),
        (b"".join(batch(1, first=2 * at) + control_batch(2 * at + 1) for at in range(20)), 0),
        (batch(3) + batch(1, first=3, value_bytes=50_000)[:40_000], 2),
    ],
    ids=["single records", "end of a large batch", "headers", "control batches", "incomplete batch"],
)
def test_padding_that_can_be_measured_is_not_promised(stored: bytes, first_offset: int, to_magic: int) -> None:
    kip_283, ours = sent_in_both_ways(stored, to_magic, first_offset)
    messages = complete_batches(kip_283)[-1].end
    assert len(kip_283) > messages, "KIP-283 pads"
    assert ours == kip_283[:messages]


def test_batches_that_grow_use_the_bytes_of_an_incomplete_batch() -> None:
    """Kafka promises the bytes of the incomplete batch at the end of the slice, and more messages fit."""
    complete = b"".join(batch(50, first=50 * number, value_bytes=10) for number in range(20))
    for first_offset in (0, 45):
        plan = plan_down_conversion(
            memoryview(complete), 1, first_offset, pads_less=True, counted_bytes=len(complete) + 300
        )
        assert len(sent(plan)) == plan.size == len(complete) + 300
    alone = plan_down_conversion(memoryview(batch(3)), 1, 2, pads_less=True, counted_bytes=50_000)
    assert alone.size == complete_batches(sent(alone))[-1].end, "no other batch could use them"


def test_batches_that_grow_cost_no_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = b"".join(batch(20, first=20 * number) for number in range(500))
    read: list[int] = []
    window = HeldStretch.window
    monkeypatch.setattr(HeldStretch, "window", lambda self, at, size: read.append(at) or window(self, at, size))
    for first_offset in (0, 19):
        read.clear()
        conversion = plan_down_conversion(memoryview(stored), 1, first_offset, pads_less=True)
        assert conversion.size == len(stored)
        assert max(read) <= conversion.first_end, "one more window at most"


def test_a_long_answer_is_measured_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = b"".join(batch(1, first=offset, value_bytes=5_000, headers=100) for offset in range(100))
    exact = plan_down_conversion(memoryview(stored), 1, 0, pads_less=True).size
    monkeypatch.setattr(promised_size, "MOST_MEASURED_BYTES", 200_000)
    assert exact < plan_down_conversion(memoryview(stored), 1, 0, pads_less=True).size == len(stored)


@QUICK
@given(stored_stretches(), st.integers(0, 1), st.integers(-1, 1010))
def test_a_client_gets_the_same_messages_with_less_padding(stored: bytes, to_magic: int, first_offset: int) -> None:
    try:
        kip_283, ours = sent_in_both_ways(stored, to_magic, first_offset)
    except BrokerError:
        return
    assert len(ours) <= len(kip_283)
    if not any(each.is_compressed for each in iter_batches(stored)):
        assert [bytes(each.view) for each in complete_batches(ours)] == [
            bytes(each.view) for each in complete_batches(kip_283)
        ]


PROPER_ERRORS = (
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    ErrorCode.UNKNOWN_SERVER_ERROR,
)


def plan_or_error(stored: memoryview, to_magic: int, first_offset: int, chunk_bytes: int) -> LazyConversion | ErrorCode:
    try:
        if to_magic == v2.MAGIC:
            return plan_up_conversion(stored, first_offset, chunk_bytes=chunk_bytes)
        return plan_down_conversion(stored, to_magic, first_offset, chunk_bytes=chunk_bytes, pads_less=True)
    except BrokerError as error:
        return error.code


@QUICK
@given(
    stored_stretches(),
    st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 255)), max_size=4),
    st.integers(0, 2),
    st.integers(-1, 1010),
    st.sampled_from([0, 100, 131072]),
    st.sampled_from([1, 77, 4096]),
)
def test_any_bytes_give_exactly_the_promised_size_or_an_error_first(
    stored: bytes,
    changes: list[tuple[int, int]],
    to_magic: int,
    first_offset: int,
    chunk_bytes: int,
    buffer_bytes: int,
) -> None:
    hostile = bytearray(stored)
    for position, byte in changes:
        if position < len(hostile):
            hostile[position] = byte
    view = memoryview(bytes(hostile))
    conversion = plan_or_error(view, to_magic, first_offset, chunk_bytes)
    if isinstance(conversion, ErrorCode):
        assert conversion in PROPER_ERRORS
        return
    data = sent(conversion, buffer_bytes)
    assert data == sent(conversion, 65536)
    if conversion.size > 12:
        assert read_batch(memoryview(data)) is not None


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
@pytest.mark.parametrize("to_magic", [0, 1])
def test_compressed_batches_larger_than_the_buffer_are_converted(codec: Codec, to_magic: int) -> None:
    originals = [*records(3000), *records(1, first=3000, value_bytes=200_000), *records(10, first=3005)]
    stored = v2.build_batch(originals, base_offset=0, codec=codec)
    (wrapper,) = complete_batches(sent(plan(stored, to_magic=to_magic)))
    assert wrapper.crc_is_valid
    assert wrapper.last_offset == 3014
    assert wrapper.max_timestamp == (max(record.timestamp for record in originals) if to_magic else -1)
    expected = [record[:4] if to_magic else (record[0], -1, *record[2:4]) for record in originals]
    assert [record[:4] for record in iter_records(wrapper)] == expected


def test_recompression_does_not_hold_the_converted_records() -> None:
    """Records that are empty take seven bytes in v2 and 34 in v1."""
    empty = [Record(offset, 0, None, None) for offset in range(100_000)]
    stored = memoryview(v2.build_batch(empty, codec=Codec.GZIP))
    tracemalloc.start()
    conversion = plan_down_conversion(stored, 1, 0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert conversion.size >= len(stored)
    assert peak < 34 * len(empty) * 0.75


@pytest.mark.parametrize("to_magic", [0, 2])
def test_a_wrapper_of_many_small_messages_takes_little_more_than_their_bytes(to_magic: int) -> None:
    count = 10_000
    wrapper = v1.build_message_set([Record(index, 1, None, b"") for index in range(count)], codec=Codec.GZIP)
    inflated_bytes = count * len(v1.build_message(0, 1, None, b""))
    (batch,) = iter_batches(wrapper)
    tracemalloc.start()
    converted = convert_with_codec(batch, to_magic)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert converted.record_count == count
    assert peak_bytes < 2 * inflated_bytes + 1_000_000


@pytest.mark.parametrize("to_magic", [0, 1])
def test_a_plan_from_the_middle_of_a_small_batch_reads_little(to_magic: int) -> None:
    """A consumer continues in the middle of a batch nearly always: that must not cost a measurement of the others."""
    stored = memoryview(b"".join(batch(16, first=16 * at, value_bytes=1_000) for at in range(60)))
    read_bytes: list[int] = []

    class Watched:
        size_bytes = len(stored)

        def window(self, position: int, size_bytes: int) -> memoryview:
            read_bytes.append(min(size_bytes, len(stored) - position))
            return stored[position : position + size_bytes]

    assert plan_down_conversion(Watched(), to_magic, 9, pads_less=True).size == len(stored)
    assert sum(read_bytes) < 100_000
