"""Times of reception as the log append time of v0 messages, given to readers of v1 and v2."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gregor.protocol.records import v0, v1, v2
from gregor.protocol.records.batches import iter_batches, iter_records
from gregor.protocol.records.compression import Codec
from gregor.protocol.records.lazy import LazyConversion, plan_down_conversion, plan_up_conversion
from gregor.protocol.records.receipts import NO_RECEIPTS, Receipts
from gregor.protocol.records.record import Record, TimestampType

CREATED_MS = 77

Stored = tuple[bytes, Receipts, dict[int, int]]
"""Bytes, their receipts, and the time that a reader must see of each offset."""


@st.composite
def stored_sets(draw: st.DrawFn) -> Stored:
    """Draw message sets of v0, v1 and v2, one after the other, each with a receipt time."""
    data, runs, times, offset = bytearray(), [], {}, 0
    for number in range(draw(st.integers(1, 8))):
        count = draw(st.integers(1, 4))
        codec = draw(st.sampled_from([Codec.NONE, Codec.GZIP]))
        records = [Record(offset + n, CREATED_MS, b"k", b"v" * draw(st.sampled_from([1, 300]))) for n in range(count)]
        magic = draw(st.sampled_from([0, 0, 0, 1, 2]))
        if magic == v0.MAGIC:
            runs.append((len(data), 1000 + number))
            data += v0.build_message_set(records, codec=codec)
        elif magic == v1.MAGIC:
            data += v1.build_message_set(records, codec=codec)
        else:
            data += v2.build_batch(records, base_offset=offset, codec=codec)
        times.update({offset + n: 1000 + number if magic == v0.MAGIC else CREATED_MS for n in range(count)})
        offset += count
    return bytes(data), Receipts(runs), times


def read(conversion: LazyConversion, out_bytes: int) -> dict[int, tuple[int, TimestampType]]:
    converted = b"".join(map(bytes, conversion.pieces(bytearray(out_bytes))))
    assert len(converted) == conversion.size
    return {
        record.offset: (record.timestamp, TimestampType(batch.timestamp_type))
        for batch in iter_batches(converted)
        if batch.stored_offset >= 0
        for record in iter_records(batch)
    }


@pytest.mark.usefixtures("record_build")
class TestBothBuilds:
    @given(stored=stored_sets(), chunk_bytes=st.sampled_from([64, 400, 4096]), out_bytes=st.sampled_from([40, 4096]))
    def test_readers_of_v2_see_the_receipt_times_of_v0_messages(
        self, stored: Stored, chunk_bytes: int, out_bytes: int
    ) -> None:
        data, receipts, times = stored
        first = 0
        seen: dict[int, tuple[int, TimestampType]] = {}
        while len(seen) < len(times):
            rest = [batch for batch in iter_batches(data) if batch.last_offset >= first]
            start = rest[0].position
            # Receipt times of the part, for a fetch that begins there.
            here = Receipts(
                [(0, receipts.at(start))] + [(at - start, ms) for at, ms in runs_of(receipts) if at > start]
            )
            view = memoryview(data)[start:]
            seen |= read(plan_up_conversion(view, first, chunk_bytes=chunk_bytes, receipts=here), out_bytes)
            first = max(seen) + 1
        assert {offset: time for offset, (time, _) in seen.items()} == times
        for time, kind in seen.values():
            assert kind is (TimestampType.CREATE_TIME if time == CREATED_MS else TimestampType.LOG_APPEND_TIME)

    @given(stored=stored_sets(), chunk_bytes=st.sampled_from([64, 400, 4096]), out_bytes=st.sampled_from([40, 4096]))
    def test_readers_of_v1_see_the_receipt_times_of_v0_messages(
        self, stored: Stored, chunk_bytes: int, out_bytes: int
    ) -> None:
        data, receipts, times = stored
        conversion = plan_down_conversion(memoryview(data), 1, 0, chunk_bytes=chunk_bytes, receipts=receipts)
        seen = read(conversion, out_bytes)
        # If converted batches are larger than the stored ones, the rest is fetched next time.
        assert seen
        assert {offset: time for offset, (time, _) in seen.items()} == {offset: times[offset] for offset in seen}
        assert sorted(seen) == list(range(len(seen)))

    def test_without_receipt_times_v0_messages_have_no_timestamp(self) -> None:
        data = v0.build_message_set([Record(0, CREATED_MS, b"k", b"v")])
        assert read(plan_up_conversion(memoryview(data), 0), 4096) == {0: (-1, TimestampType.CREATE_TIME)}
        assert bytes(next(plan_down_conversion(memoryview(data), 1, 0).pieces(bytearray(4096)))) == data

    def test_a_large_v0_message_has_its_receipt_time(self) -> None:
        data = v0.build_message_set([Record(0, CREATED_MS, b"k", b"v" * 100_000)])
        receipts = Receipts([(0, 5)])
        expected = {0: (5, TimestampType.LOG_APPEND_TIME)}
        assert read(plan_up_conversion(memoryview(data), 0, receipts=receipts), 100) == expected
        assert read(plan_down_conversion(memoryview(data), 1, 0, receipts=receipts), 100) == expected


def runs_of(receipts: Receipts) -> list[tuple[int, int]]:
    return list(zip(receipts._positions, receipts._times, strict=True))


def test_receipt_times_are_looked_up_by_position() -> None:
    receipts = Receipts([(10, 1), (20, 2)])
    assert [receipts.at(position) for position in (0, 9, 10, 19, 20, 99)] == [-1, -1, 1, 1, 2, 2]
    assert [receipts.end_after(position, 25) for position in (0, 10, 20)] == [10, 20, 25]
    assert receipts.end_after(0, 5) == 5
    assert receipts
    assert not NO_RECEIPTS
