"""Statistics of stored batches: sums in any order, KIP-126's estimator replayed, latencies."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyarrow", reason="the pipeline needs gregor-broker[spark]")

import pyarrow as pa

from gregor.client.producer.compression_estimator import CompressionRatioEstimator
from gregor.pipeline.columns.header_batches import HeaderBatches
from gregor.pipeline.columns.record_batches import RecordBatches, RecordOptions
from gregor.pipeline.statistics.batch_statistics import BatchStatistics, CompressionReplay, Latencies
from gregor.protocol.records import v0, v2
from gregor.protocol.records.compression import Codec
from gregor.protocol.records.control import ControlType, encode_key
from gregor.protocol.records.record import Header, Record


def headers_of(stored: bytes, rows: int = 100) -> list[object]:
    """Return rows of `mode=batches`."""
    return list(HeaderBatches("t", 0, segment=None, batch_rows=rows).read(memoryview(stored), 0, len(stored)))


def batch(first: int, count: int, codec: Codec = Codec.NONE) -> bytes:
    """Return a batch whose record n has time n."""
    records = [Record(first + index, first + index, None, b"x" * 10) for index in range(count)]
    return v2.build_batch(records, base_offset=first, codec=codec)


def test_statistics_count_batches_records_sizes_codecs_and_formats() -> None:
    marker = v2.build_batch([Record(9, 5, encode_key(ControlType.COMMIT), b"")], base_offset=9, is_control=True)
    old = v0.build_message_set([Record(10, -1, b"k", b"v"), Record(11, -1, b"k", b"v")], codec=Codec.GZIP)
    stored = batch(0, 3) + batch(3, 6, Codec.LZ4) + marker + old
    sums = BatchStatistics.of(headers_of(stored))
    assert (sums.batches, sums.records, sums.control_batches, sums.uncounted_batches) == (3, 9, 1, 1)
    assert sums.size_bytes == len(stored) - len(marker)
    assert (sums.first_timestamp, sums.max_timestamp) == (0, 8)
    assert sums.batch_records == {1: 1, 2: 1}
    assert sums.batch_sizes.total() == 3
    assert sums.codecs == {"none": 1, "lz4": 1, "gzip": 1}
    assert sums.formats == {2: 2, 0: 1}
    assert sums.records_per_batch == 4.5


@given(st.lists(st.integers(1, 40), min_size=1, max_size=20), st.data())
def test_parts_add_up_to_the_whole(counts: list[int], data: st.DataObject) -> None:
    offsets = [sum(counts[:index]) for index in range(len(counts))]
    batches = [batch(first, count) for first, count in zip(offsets, counts, strict=True)]
    cut = data.draw(st.integers(0, len(batches)))
    whole = BatchStatistics.of(headers_of(b"".join(batches), rows=3))
    parts = BatchStatistics.of(headers_of(b"".join(batches[cut:])))
    parts.add(BatchStatistics.of(headers_of(b"".join(batches[:cut]))))
    assert parts == whole
    assert whole.records == sum(counts)


def replayed(ratios: list[float]) -> CompressionReplay:
    """Return batches of 10,000 bytes that compress to these ratios."""
    replay, estimator = CompressionReplay(), CompressionRatioEstimator()
    for ratio in ratios:
        replay.take("t", Codec.GZIP, int(10_000 * ratio), 10_000, estimator)
    return replay


def test_a_constant_compression_ratio_causes_no_batch_splits() -> None:
    replay = replayed([0.3] * 1000)
    assert replay.splits == 0
    assert replay.error_sum / replay.batches < 0.1


def test_a_sudden_change_splits_once_and_then_no_more() -> None:
    assert replayed([0.1] * 1000 + [0.9] * 1000).splits == 1


def test_random_compression_ratios_split_less_than_a_tenth_of_the_batches() -> None:
    dice = random.Random(3)
    replay = replayed([dice.uniform(0.1, 0.9) for _ in range(5000)])
    assert 0 < replay.splits / replay.batches < 0.1


@given(st.lists(st.integers(0, 10**7), min_size=1), st.floats(0.01, 1))
def test_latency_percentiles_are_within_about_one_percent_of_the_exact_value(
    values: list[int], fraction: float
) -> None:
    latencies = Latencies()
    latencies.take(pa.array(values))
    exact = sorted(values)[math.ceil(fraction * len(values)) - 1]
    found = latencies.percentile(fraction)
    assert found is not None
    assert found == pytest.approx(exact, abs=0.011 * (exact + 1))


def test_latency_is_computed_from_the_timestamp_in_a_record_header() -> None:
    records = [
        Record(0, 1_000, None, b"", (Header(b"sent", b"900"),)),
        Record(1, 1_000, None, b"", (Header(b"other", b"1"), Header(b"sent", (800).to_bytes(8, "big")))),
        Record(2, 1_000, None, b"", (Header(b"sent", b"soon"),)),
        Record(3, 1_000, None, b""),
    ]
    stored = v2.build_batch(records)
    latencies = Latencies()
    for rows in RecordBatches("t", 0, RecordOptions()).read(memoryview(stored)):
        latencies.take_records(rows, "sent")
    assert latencies.counts.total() == 2
    assert latencies.percentile(0.5) == pytest.approx(100, rel=0.02)
    assert latencies.percentile(1.0) == pytest.approx(200, rel=0.02)
    assert Latencies().percentile(0.5) is None
