"""Buffers of conversions: their number is fixed, and a task that waits for its client holds none."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest
import trio
import trio.testing

from gregor.broker.conversion.conversion_pool import ConversionPool, Lease
from gregor.broker.replicas.fetching.conversion import LazyConvertRecords
from gregor.broker.server.parts import Sink
from gregor.protocol.records import v2
from gregor.protocol.records.batches import iter_batches, iter_records
from gregor.protocol.records.compression import Codec
from gregor.protocol.records.conversion_output import ConversionOutput
from gregor.protocol.records.record import Record
from gregor.protocol.records.validation import AppendRules, validate
from gregor.storage.clock import ManualClock
from gregor.storage.log.log_config import LogConfig
from gregor.storage.log.partition_log import PartitionLog
from tests.broker.server.test_parts import RecordingOutlet

NOW_MS = 1_700_000_000_000


def lease_of(pool: ConversionPool) -> tuple[Lease, ConversionOutput]:
    output = ConversionOutput()
    return Lease(pool, output), output


async def test_a_lease_waits_until_memory_is_released() -> None:
    pool = ConversionPool(4096, threads=1)
    first, _ = lease_of(pool)
    second, _ = lease_of(pool)
    memory = await first.hold()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(second.hold)
        await trio.testing.wait_all_tasks_blocked()
        assert pool.waiting_count == 1
        first.release()
    assert await second.hold() is memory


async def test_lent_memory_is_kept_until_another_lease_takes_it() -> None:
    pool = ConversionPool(4096, threads=1)
    first, output = lease_of(pool)
    second, _ = lease_of(pool)
    memory = await first.hold()
    output.batch = b"converted"
    first.lend()
    assert await first.hold() is memory
    assert output.batch == b"converted"
    first.lend()
    assert await second.hold() is memory
    assert output.batch is None
    assert len(output.buffer) == 0


async def test_a_waiting_lease_gets_memory_that_another_lease_lends() -> None:
    pool = ConversionPool(4096, threads=1)
    first, output = lease_of(pool)
    second, _ = lease_of(pool)
    memory = await first.hold()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(second.hold)
        await trio.testing.wait_all_tasks_blocked()
        first.lend()
        assert len(output.buffer) == 0
    assert await second.hold() is memory


async def test_a_lease_that_is_cancelled_while_it_waits_takes_no_memory(autojump_clock: trio.testing.MockClock) -> None:
    pool = ConversionPool(4096, threads=1)
    first, _ = lease_of(pool)
    second, _ = lease_of(pool)
    await first.hold()
    with trio.move_on_after(1):
        await second.hold()
    first.release()
    second.release()
    assert await first.hold() is not None


def log_of_large_batches(directory: Path, codec: Codec) -> PartitionLog:
    log = PartitionLog.open(str(directory / "t-0"), LogConfig(), ManualClock(NOW_MS))
    noise = bytes((index * 7919 + (index >> 8) * 104729 >> 3) & 0xFF for index in range(60_000))
    for _ in range(2):
        records = [Record(index, NOW_MS, b"k%d" % index, noise[index:]) for index in range(10)]
        data = bytearray(v2.build_batch(records, codec=codec))
        log.append(validate(data, AppendRules(), now_ms=NOW_MS), leader_epoch=0)
    return log


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
async def test_many_slow_clients_share_one_memory_and_get_all_records(
    tmp_path: Path, codec: Codec, autojump_clock: trio.testing.MockClock
) -> None:
    log = log_of_large_batches(tmp_path, codec)
    pool = ConversionPool(4096, threads=1)
    outlets = [RecordingOutlet(is_slow=True) for _ in range(5)]
    async with trio.open_nursery() as nursery:
        for outlet in outlets:
            part = await LazyConvertRecords.plan(log.read(0, log.size_bytes), 1, pool)
            nursery.start_soon(part.send_to, Sink(outlet, part.size))
    for outlet in outlets:
        assert outlet.received == outlets[0].received
    records = [record for batch in iter_batches(outlets[0].received) for record in iter_records(batch)]
    assert [record.offset for record in records][:10] == list(range(10))
    assert pool.waiting_count == 0


async def test_a_conversion_that_is_cancelled_gives_its_memory_back(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    log = log_of_large_batches(tmp_path, Codec.GZIP)
    pool = ConversionPool(4096, threads=1)
    part = await LazyConvertRecords.plan(log.read(0, log.size_bytes), 1, pool)
    with trio.move_on_after(0.5):
        await part.send_to(Sink(RecordingOutlet(is_slow=True), part.size))
    assert await pool.take() is not None


async def test_a_conversion_leaves_no_reference_cycle(tmp_path: Path) -> None:
    log = log_of_large_batches(tmp_path, Codec.LZ4)
    pool = ConversionPool(4096, threads=1)
    gc.collect()
    gc.disable()
    try:
        part = await LazyConvertRecords.plan(log.read(0, log.size_bytes), 1, pool)
        await part.send_to(Sink(RecordingOutlet(), part.size))
        del part
        assert gc.collect() == 0
    finally:
        gc.enable()


async def test_compressed_batches_behind_plain_ones_are_not_converted_in_the_event_loops_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = PartitionLog.open(str(tmp_path / "t-0"), LogConfig(), ManualClock(NOW_MS))
    for codec in (Codec.NONE, Codec.GZIP, Codec.NONE):
        records = [Record(index, NOW_MS, b"k", bytes(1000)) for index in range(10)]
        data = bytearray(v2.build_batch(records, codec=codec))
        log.append(validate(data, AppendRules(), now_ms=NOW_MS), leader_epoch=0)
    pool = ConversionPool(4096, threads=1)
    taken = 0
    take = pool.take

    async def counting_take() -> object:
        nonlocal taken
        taken += 1
        return await take()

    monkeypatch.setattr(pool, "take", counting_take)
    outlet = RecordingOutlet()
    part = await LazyConvertRecords.plan(log.read(0, log.size_bytes), 1, pool)
    assert taken == 0
    await part.send_to(Sink(outlet, part.size))
    assert taken == 1
    records = [record for batch in iter_batches(outlet.received) for record in iter_records(batch)]
    assert [record.offset for record in records] == list(range(len(records)))
    assert len(records) >= 20
