"""The statistics of a partition from the headers of its stored batches, as sums that can be added in any order.

This is the table of KIP-794's tests, read from a log: batches, bytes, records, and the sizes of batches. Values of
the columns are those of `mode=batches`; see `schemas`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ...client.producer.compression_estimator import CONTINGENCY_FACTOR, CompressionRatioEstimator
from ...protocol.records.compression import Codec

LATENCY_STEP = 1.02
"""Latencies are counted in steps of 2 %."""


@dataclass(slots=True)
class BatchStatistics:
    """The sums over one partition's batches; of control batches only the count. Times are in ms since the epoch."""

    batches: int = 0
    records: int = 0
    uncounted_batches: int = 0
    """Compressed batches of v0 and v1, whose headers have no record count."""
    size_bytes: int = 0
    control_batches: int = 0
    first_timestamp: int | None = None
    max_timestamp: int | None = None
    batch_sizes: Counter[int] = field(default_factory=Counter)
    """The number of batches with at least 2**n and less than 2**(n+1) bytes, by n."""
    batch_records: Counter[int] = field(default_factory=Counter)
    """The number of batches with at least 2**n and less than 2**(n+1) records, by n."""
    codecs: Counter[str] = field(default_factory=Counter)
    """Batches by codec."""
    formats: Counter[int] = field(default_factory=Counter)
    """Batches by message format version."""

    @classmethod
    def of(cls, tables: Iterable[pa.RecordBatch]) -> BatchStatistics:
        """Compute the sums over rows of `mode=batches`."""
        sums = cls()
        for rows in tables:
            sums._take(rows)
        return sums

    def _take(self, rows: pa.RecordBatch) -> None:
        control = pc.sum(rows["isControl"]).as_py() or 0
        if control:
            self.control_batches += control
            rows = rows.filter(pc.invert(rows["isControl"]))
        if not rows.num_rows:
            return
        self.batches += rows.num_rows
        self.records += pc.sum(rows["records"]).as_py() or 0
        self.uncounted_batches += rows["records"].null_count
        self.size_bytes += pc.sum(rows["sizeInBytes"].cast(pa.int64())).as_py()
        self._widen(
            _milliseconds(pc.min(rows["firstTimestamp"])),
            _milliseconds(pc.max(rows["maxTimestamp"])),
        )
        self.batch_sizes.update(_by_powers_of_two(rows["sizeInBytes"]))
        self.batch_records.update(_by_powers_of_two(rows["records"]))
        self.codecs.update(_counted(rows["codec"]))
        self.formats.update(_counted(rows["magic"]))

    def add(self, other: BatchStatistics) -> None:
        """Add the counts of `other`."""
        self.batches += other.batches
        self.records += other.records
        self.uncounted_batches += other.uncounted_batches
        self.size_bytes += other.size_bytes
        self.control_batches += other.control_batches
        self._widen(other.first_timestamp, other.max_timestamp)
        self.batch_sizes.update(other.batch_sizes)
        self.batch_records.update(other.batch_records)
        self.codecs.update(other.codecs)
        self.formats.update(other.formats)

    def _widen(self, first: int | None, last: int | None) -> None:
        if first is not None:
            self.first_timestamp = first if self.first_timestamp is None else min(first, self.first_timestamp)
        if last is not None:
            self.max_timestamp = last if self.max_timestamp is None else max(last, self.max_timestamp)

    @property
    def bytes_per_batch(self) -> float:
        """The mean size of a batch; 0 without batches."""
        return self.size_bytes / self.batches if self.batches else 0.0

    @property
    def records_per_batch(self) -> float:
        """The mean record count of the batches that declare one."""
        counted = self.batches - self.uncounted_batches
        return self.records / counted if counted else 0.0


@dataclass(slots=True)
class CompressionReplay:
    """A replay of KIP-126's estimator over a partition's batches, in the order in which they were written.

    A producer closes a batch when its estimated size reaches `batch.size`. `splits` counts the batches whose true
    size would then have exceeded it: a broker with the same limit refuses such batches, the KIP's worst case.
    """

    stored_bytes: int = 0
    uncompressed_bytes: int = 0
    batches: int = 0
    splits: int = 0
    error_sum: float = 0.0
    """The sum of |estimated - true| ratios."""
    worst_ratio: float = 0.0

    def take(
        self, topic: str, codec: Codec, stored: int, uncompressed: int, estimator: CompressionRatioEstimator
    ) -> None:
        """Add the next batch, whose records have `stored` bytes and had `uncompressed` bytes."""
        if not uncompressed:
            return
        ratio = stored / uncompressed
        estimate = estimator.ratio(topic, codec)
        self.batches += 1
        self.stored_bytes += stored
        self.uncompressed_bytes += uncompressed
        self.error_sum += abs(estimate - ratio)
        self.worst_ratio = max(self.worst_ratio, ratio)
        if ratio > estimate * CONTINGENCY_FACTOR:
            self.splits += 1
            estimator.reset(topic, codec)
        else:
            estimator.observe(topic, codec, ratio)

    def add(self, other: CompressionReplay) -> None:
        """Add the counts of `other`."""
        self.stored_bytes += other.stored_bytes
        self.uncompressed_bytes += other.uncompressed_bytes
        self.batches += other.batches
        self.splits += other.splits
        self.error_sum += other.error_sum
        self.worst_ratio = max(self.worst_ratio, other.worst_ratio)


@dataclass(slots=True)
class Latencies:
    """Milliseconds, counted in steps of 2 %."""

    counts: Counter[int] = field(default_factory=Counter)

    def take(self, milliseconds: pa.Array) -> None:
        """Count the values that are not null; values below 0, which differing clocks can cause, count as 0."""
        clipped = pc.max_element_wise(milliseconds.drop_null().cast(pa.float64()), 0.0)
        steps = pc.round(pc.divide(pc.ln(pc.add(clipped, 1.0)), math.log(LATENCY_STEP))).cast(pa.int64())
        self.counts.update(_counted(steps))

    def take_records(self, records: pa.RecordBatch, header: str) -> None:
        """Count, for rows of `mode=records`, the timestamp minus the time in the first header of that name, if any.

        The time is milliseconds since the epoch, as digits or as eight bytes, big-endian.
        """
        sent = [_sent_at(headers, header) for headers in records["headers"].to_pylist()]
        written = pc.divide(records["timestamp"].view(pa.int64()), 1000)
        self.take(pc.subtract(written, pa.array(sent, pa.int64())))

    def add(self, other: Latencies) -> None:
        """Add the counts of `other`."""
        self.counts.update(other.counts)

    def percentile(self, fraction: float) -> float | None:
        """Return the latency that this fraction of values does not exceed; None without values."""
        remaining = fraction * self.counts.total()
        for step, count in sorted(self.counts.items()):
            remaining -= count
            if remaining <= 0:
                return LATENCY_STEP**step - 1
        return None


def _sent_at(headers: list[dict[str, Any]] | None, name: str) -> int | None:
    value = next((each["value"] for each in headers or () if each["key"] == name), None)
    if value is None:
        return None
    if value.isdigit():
        return int(value)
    return int.from_bytes(value, "big", signed=True) if len(value) == 8 else None


def _milliseconds(moment: pa.TimestampScalar) -> int | None:
    return moment.value // 1000 if moment.is_valid else None


def _by_powers_of_two(numbers: pa.Array) -> Counter[int]:
    positive = numbers.filter(pc.greater(numbers, 0))
    return _counted(pc.floor(pc.log2(positive.cast(pa.float64()))).cast(pa.int64()))


def _counted(values: pa.Array) -> Counter[Any]:
    return Counter({entry["values"].as_py(): entry["counts"].as_py() for entry in pc.value_counts(values)})
