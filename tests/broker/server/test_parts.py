"""Every kind of part keeps `PartContract`: exactly `size` bytes, in bounded pieces, and it can be cancelled."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
import trio.testing

from gregor.broker.conversion.conversion_pool import ConversionMemory, ConversionPool
from gregor.broker.replicas.fetching.conversion import LazyConvertRecords, must_convert
from gregor.broker.server.parts import BrokenPromiseError, Buffer, Encoded, FileSlice, Part, Sink, total_size
from gregor.protocol.records import v2
from gregor.protocol.records.batches import iter_batches, iter_records
from gregor.protocol.records.compression import Codec
from gregor.protocol.records.record import Record
from gregor.protocol.records.validation import AppendRules, validate
from gregor.storage.clock import ManualClock
from gregor.storage.log.log_config import LogConfig
from gregor.storage.log.partition_log import LogSlice, PartitionLog

BATCHES = 40
RECORDS_A_BATCH = 30
VALUE = b"some words of a log line, over and over again; " * 6


class RecordingOutlet:
    """An outlet that keeps the sent bytes and the size of the largest piece; each send may wait."""

    def __init__(self, *, is_slow: bool = False) -> None:
        self.received = bytearray()
        self.largest_piece = 0
        self._is_slow = is_slow

    def gather(self, data: Buffer) -> None:
        self.received += data

    async def send(self, data: Buffer, *, before_wait: Callable[[], None] | None = None) -> None:
        kept = bytes(data)
        if self._is_slow:
            if before_wait is not None:
                before_wait()
            await trio.sleep(1)
        self.received += kept
        self.largest_piece = max(self.largest_piece, len(kept))

    async def send_file(self, descriptor: int, position: int, size_bytes: int) -> None:
        self.received += os.pread(descriptor, size_bytes, position)


def stored_log(directory: Path, codec: Codec = Codec.NONE) -> PartitionLog:
    log = PartitionLog.open(str(directory / "t-0"), LogConfig(), ManualClock(1_700_000_000_000))
    for _ in range(BATCHES):
        records = [Record(i, 1_700_000_000_000 + i, b"k%d" % i, VALUE) for i in range(RECORDS_A_BATCH)]
        data = bytearray(v2.build_batch(records, codec=codec))
        log.append(validate(data, AppendRules(), now_ms=1_700_000_000_000), leader_epoch=0)
    return log


def whole(log: PartitionLog) -> LogSlice:
    return log.read(0, log.size_bytes)


class PartContract:
    """A set of tests of the contract of each kind of part."""

    largest_piece_bytes = 0

    async def part(self, directory: Path) -> Part:
        raise NotImplementedError

    async def test_delivers_exactly_its_size(self, tmp_path: Path) -> None:
        part = await self.part(tmp_path)
        outlet = RecordingOutlet()
        sink = Sink(outlet, part.size)
        await part.send_to(sink)
        sink.finish()
        assert len(outlet.received) == part.size > 0
        if self.largest_piece_bytes:
            assert outlet.largest_piece <= self.largest_piece_bytes

    async def test_a_part_larger_than_the_promised_size_is_refused(self, tmp_path: Path) -> None:
        part = await self.part(tmp_path)
        outlet = RecordingOutlet()
        with pytest.raises(BrokenPromiseError):
            await part.send_to(Sink(outlet, part.size - 1))
        assert len(outlet.received) < part.size

    async def test_a_part_smaller_than_the_promised_size_is_an_error_at_the_end(self, tmp_path: Path) -> None:
        part = await self.part(tmp_path)
        sink = Sink(RecordingOutlet(), part.size + 1)
        await part.send_to(sink)
        with pytest.raises(BrokenPromiseError):
            sink.finish()

    async def test_can_be_cancelled(self, tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
        part = await self.part(tmp_path)
        with trio.move_on_after(0.5):
            await part.send_to(Sink(RecordingOutlet(is_slow=True), part.size))


class TestEncoded(PartContract):
    async def part(self, directory: Path) -> Part:
        return Encoded(b"an answer")


class TestFileSlice(PartContract):
    async def part(self, directory: Path) -> Part:
        return FileSlice(whole(stored_log(directory)))

    async def test_sends_the_stored_bytes(self, tmp_path: Path) -> None:
        log = stored_log(tmp_path)
        outlet = RecordingOutlet()
        part = FileSlice(whole(log))
        await part.send_to(Sink(outlet, part.size))
        assert bytes(outlet.received) == whole(log).read()


class TestLazyConvertRecords(PartContract):
    codec = Codec.NONE
    largest_piece_bytes = 2 * 16 * 1024

    async def part(self, directory: Path) -> Part:
        return await LazyConvertRecords.plan(whole(stored_log(directory, self.codec)), 1, ConversionPool(16384))

    @pytest.mark.parametrize("to_magic", [0, 1])
    async def test_converted_records_are_readable_by_old_clients(self, tmp_path: Path, to_magic: int) -> None:
        log = stored_log(tmp_path, self.codec)
        outlet = RecordingOutlet()
        part = await LazyConvertRecords.plan(whole(log), to_magic, ConversionPool(16384))
        await part.send_to(Sink(outlet, part.size))
        records = [record for batch in iter_batches(outlet.received) for record in iter_records(batch)]
        offsets = [record.offset for record in records]
        assert offsets == list(range(len(offsets)))
        # Converted messages may be larger than the stored batch; the rest is fetched next time.
        assert len(offsets) > RECORDS_A_BATCH * BATCHES // 2
        assert {record.value for record in records} == {VALUE}

    def test_records_of_format_v2_must_be_converted_for_format_v1(self, tmp_path: Path) -> None:
        log = stored_log(tmp_path, self.codec)
        assert must_convert(whole(log), 1, ConversionMemory())


class TestLazyConvertCompressedRecords(TestLazyConvertRecords):
    codec = Codec.GZIP
    largest_piece_bytes = 0


async def test_two_slow_clients_get_equal_conversions_from_one_shared_buffer(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    log = stored_log(tmp_path)
    pool = ConversionPool(16384)
    outlets = [RecordingOutlet(is_slow=True), RecordingOutlet(is_slow=True)]
    parts = [await LazyConvertRecords.plan(whole(log), magic, pool) for magic in (0, 0)]
    async with trio.open_nursery() as nursery:
        for part, outlet in zip(parts, outlets, strict=True):
            nursery.start_soon(part.send_to, Sink(outlet, part.size))
    assert outlets[0].received == outlets[1].received


def test_total_size_counts_bytes_and_parts() -> None:
    assert total_size([b"12", memoryview(b"345"), Encoded(b"6789")]) == 9
