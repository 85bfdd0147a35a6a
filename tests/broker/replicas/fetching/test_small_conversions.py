"""Small slices that are converted while the answer is made: the bytes and counts of a planned conversion."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from gregor.broker.conversion.conversion_pool import ConversionPool
from gregor.broker.replicas.fetching.conversion import SMALL_BYTES, LazyConvertRecords, converted_small
from gregor.broker.server.client_connection import ConversionCost
from gregor.broker.server.parts import Sink
from gregor.protocol.records import v2
from gregor.protocol.records.compression import Codec
from gregor.protocol.records.record import Header, Record
from gregor.protocol.records.validation import AppendRules, validate
from gregor.storage.clock import ManualClock
from gregor.storage.log.log_config import LogConfig
from gregor.storage.log.partition_log import PartitionLog
from tests.broker.api.log_requests import NOW_MS, Collecting, batch, message_set

RECORD_BYTES = 300


def log_with(directory: Path, *stored: bytearray) -> PartitionLog:
    log = PartitionLog.open(str(directory / "t-0"), LogConfig(), ManualClock(NOW_MS))
    for data in stored:
        log.append(validate(data, AppendRules(), now_ms=NOW_MS), leader_epoch=0)
    return log


def stored_as(form: str) -> list[bytearray]:
    """Return three batches of three records each, in one of the formats, or with things that conversions leave out."""
    values = [[b"%d.%d" % (number, index) * (RECORD_BYTES // 3) for index in range(3)] for number in range(3)]
    if form in ("v0", "v1"):
        return [message_set(int(form[1]), *of_batch) for of_batch in values]
    batches = [batch(*of_batch) for of_batch in values]
    if form == "with headers":
        records = [Record(0, NOW_MS, b"k", b"v" * RECORD_BYTES, headers=(Header(b"h", b"1" * 400),))]
        batches[0] = bytearray(v2.build_batch(records))
    if form == "with short values":
        batches[1] = batch(*[b"s"] * 60)
    return batches


@pytest.mark.parametrize(
    ("form", "to_magic"),
    [
        *[("v0", 2), ("v1", 2), ("v1", 0), ("v2", 0), ("v2", 1)],
        *[(form, to_magic) for form in ("with headers", "with short values") for to_magic in (0, 1)],
    ],
)
@pytest.mark.parametrize(("offset", "cut"), [(0, 0), (1, 0), (4, 50), (0, 7)])
@pytest.mark.parametrize("most_bytes", [None, 500])
async def test_the_bytes_and_counts_are_those_of_a_planned_conversion(
    tmp_path: Path, form: str, to_magic: int, offset: int, cut: int, most_bytes: int | None
) -> None:
    log, pool = log_with(tmp_path, *stored_as(form)), ConversionPool(4096, threads=1)
    costs = ConversionCost(), ConversionCost()
    most_stored = log.size_bytes - cut
    part = await LazyConvertRecords.plan(
        log.read(offset, most_stored), to_magic, pool, [costs[0]], most_bytes=most_bytes
    )
    outlet = Collecting()
    await part.send_to(Sink(outlet, part.size))

    log_slice = log.read(offset, most_stored)
    converted = converted_small(log_slice, to_magic, pool, [costs[1]], most_bytes=most_bytes)
    assert converted == bytes(outlet.data)
    assert converted
    for cost in costs:
        cost.cpu_ns = 0
    assert dataclasses.asdict(costs[0]) == dataclasses.asdict(costs[1])
    with pytest.raises(ValueError, match="released"):
        log_slice.read()


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
@pytest.mark.parametrize("is_first", [True, False])
def test_compressed_batches_are_left_to_a_plan(tmp_path: Path, codec: Codec, is_first: bool) -> None:
    batches = [batch(b"plain"), batch(b"compressed" * 50, codec=codec)]
    log, cost = log_with(tmp_path, *batches[:: -1 if is_first else 1]), ConversionCost()
    with log.read(0, log.size_bytes) as log_slice:
        size_bytes = log_slice.size_bytes
        assert converted_small(log_slice, 1, ConversionPool(4096, threads=1), [cost]) is None
        assert len(log_slice.read()) == size_bytes
    assert dataclasses.asdict(cost) == dataclasses.asdict(ConversionCost())


@pytest.mark.parametrize("damage", ["large", "no complete batch", "bad size", "cut file"])
def test_large_incomplete_and_broken_slices_are_left_to_a_plan(tmp_path: Path, damage: str) -> None:
    value = b"v" * (SMALL_BYTES if damage == "large" else 500)
    log = log_with(tmp_path, batch(value), batch(value))
    first_bytes = log.size_bytes // 2
    file = next((tmp_path / "t-0").glob("*.log"))
    with log.read(0, log.size_bytes) as log_slice:
        if damage == "no complete batch":
            log_slice.cut(first_bytes - 1)
        elif damage == "bad size":
            with file.open("r+b") as opened:
                opened.seek(first_bytes + 8)
                opened.write(b"\xff\xff\xff\xff")
        elif damage == "cut file":
            with file.open("r+b") as opened:
                opened.truncate(first_bytes)
        assert converted_small(log_slice, 1, ConversionPool(4096, threads=1), []) is None
