"""Batch headers as rows, and raw batches, in both builds of the kernel."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("pyarrow", reason="the pipeline needs gregor-broker[spark]")

from gregor.pipeline.columns.header_batches import HeaderBatches, raw_batches
from gregor.pipeline.columns.schemas import BATCHES, RAW
from gregor.protocol.records import v2
from gregor.protocol.records.batches import BatchView, inner_message_set, iter_batches
from gregor.protocol.records.compression import decompress
from gregor.protocol.records.headers_cy import seek
from gregor.protocol.records.record import Record
from tests.protocol.records.record_strategies import Sample, samples

both_builds = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=50
)
ANY_TIME = -(2**63)
MAX_INT64 = 2**63 - 1


@pytest.fixture(autouse=True)
def _both_builds(record_build: str) -> None:
    """Run each test of this file with the compiled kernel and with its Python source."""


def rows(stored: bytes, **options: Any) -> list[dict[str, Any]]:
    reader = HeaderBatches("t", 1, segment="s", batch_rows=2, **options)
    batches = list(reader.read(memoryview(stored), 0, len(stored), file_position=1000))
    for batch in batches:
        batch.validate(full=True)
        assert batch.schema.equals(BATCHES)
    return [row for batch in batches for row in batch.to_pylist()]


def inflated_size(batch: BatchView) -> int:
    if not batch.is_compressed:
        return batch.size_bytes - (v2.HEADER_SIZE if batch.magic == 2 else 0)
    if batch.magic == 2:
        return len(decompress(batch.codec, batch.view[v2.RECORDS_AT :]))
    return len(inner_message_set(batch))


@both_builds
@given(st.lists(samples, min_size=1, max_size=4))
def test_a_row_says_what_the_header_says(chosen: list[Sample]) -> None:
    stored = b"".join(sample.data for sample in chosen)
    found = rows(stored, checks_crc=True, with_uncompressed_size=True)
    views = list(iter_batches(stored))
    assert [
        (
            row["position"],
            row["sizeInBytes"],
            row["lastOffset"],
            row["magic"],
            row["codec"],
            row["records"],
            row["producerId"],
            row["isTransactional"],
            row["isControl"],
            row["crcOk"],
            row["timestampType"],
            row["leaderEpoch"],
            row["uncompressedSize"],
        )
        for row in found
    ] == [
        (
            1000 + view.position,
            view.size_bytes,
            view.last_offset,
            view.magic,
            view.codec.name.lower(),
            view.record_count,
            view.producer_id,
            False,
            False,
            True,
            view.timestamp_type,
            view.leader_epoch,
            inflated_size(view),
        )
        for view in views
    ]


def test_unknown_header_fields_are_null() -> None:
    stored = v2.build_batch([Record(0, -1, None, b"")])
    (row,) = rows(stored)
    assert row["crcOk"] is None
    assert row["uncompressedSize"] is None
    assert row["maxTimestamp"] is None


def test_a_wrong_crc_is_reported_and_a_timestamp_out_of_range_is_null() -> None:
    batch = bytearray(v2.build_batch([Record(0, 2**62, None, b"")]))
    batch[-1] ^= 1
    (row,) = rows(bytes(batch), checks_crc=True)
    assert row["crcOk"] is False
    assert row["maxTimestamp"] is None


@both_builds
@given(st.lists(samples, min_size=1, max_size=4))
def test_raw_rows_are_the_bytes(chosen: list[Sample]) -> None:
    stored = b"".join(sample.data for sample in chosen)
    found = list(raw_batches("t", 1, memoryview(stored + stored[:9]), 0, len(stored) + 9))
    assert [end for _, end in found] == [len(stored)]
    (batch,) = (rows for rows, _ in found)
    batch.validate(full=True)
    assert batch.schema.equals(RAW)
    assert b"".join(batch.column("raw").to_pylist()) == stored
    assert [row["lastOffset"] for row in batch.to_pylist()] == [view.last_offset for view in iter_batches(stored)]


def test_seeking_by_offset_and_time() -> None:
    batches = [v2.build_batch([Record(n, n * 10, None, b"")], base_offset=n) for n in range(10)]
    stored = memoryview(b"".join(batches))
    size = len(batches[0])
    assert seek(stored, 0, len(stored), 4, ANY_TIME) == (4 * size, 4)
    assert seek(stored, 0, len(stored), 0, 65) == (7 * size, 7)
    assert seek(stored, 0, 3 * size + 1, MAX_INT64, ANY_TIME) == (4 * size, 4)
    assert seek(stored[: 5 * size - 1], 0, len(stored), MAX_INT64, ANY_TIME) == (4 * size, 4)
    with pytest.raises(ValueError, match="not in a buffer"):
        seek(stored, len(stored) + 1, len(stored), 0, 0)
