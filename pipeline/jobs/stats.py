"""Compute statistics of topics, as a table, Parquet or an HTML page: the table of KIP-794's tests for each partition,
compression ratios with the estimates of KIP-126's estimator, latencies, and histograms of batch sizes.

The first table needs batch headers alone. --compression inflates every batch and replays each partition's ratios
through the estimator of KIP-126: `SPLITS` counts batches that the estimator would have let grow too large.
--latency-header names a record header with the time of sending (milliseconds, as digits or as eight bytes): latency
is the record's timestamp, which should be LogAppendTime, less that time.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

from ..filesystems.files import open_output
from ..filesystems.locations import Location, location_argument
from ..statistics.topic_statistics import TopicStatistics
from .desk import Desk, Summary
from .passes import make_pass
from .sources import add_source_arguments

if TYPE_CHECKING:
    import pyarrow as pa

    from ..statistics.batch_statistics import BatchStatistics, CompressionReplay, Latencies

TASKS_A_CORE = 4
HELP = "batch sizes, rates, compression and latencies per partition; --html for plots"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments for the source and the outputs."""
    add_source_arguments(parser)
    parser.add_argument("--compression", action="store_true", help="inflate batches and replay KIP-126's estimator")
    parser.add_argument("--latency-header", metavar="NAME", help="a record header with the time of sending")
    parser.add_argument("--parquet", type=location_argument, metavar="FILE", help="also write the table to this file")
    parser.add_argument(
        "--html", type=location_argument, metavar="FILE", help="write one self-contained page with plots"
    )


def run(options: argparse.Namespace, desk: Desk) -> Summary:
    """Read headers, and records if requested."""
    # A log directory's headers are read at more than 10 GB/s, so the cost of a task dominates.
    tasks_a_core = TASKS_A_CORE if options.log_dir else None
    found = TopicStatistics(make_pass(options, desk, _read_headers, tasks_a_core=tasks_a_core, mode="batches"))
    if options.compression:
        found.compression = make_pass(options, desk, _replay, in_order=True, mode="batches", uncompressedSize="true")
    if options.latency_header:
        found.latencies = make_pass(options, desk, partial(_read_latencies, options.latency_header), mode="records")
    columns, rows = statistics_table(found)
    if options.parquet:
        _write_parquet(options.parquet, columns, rows)
        desk.say(f"wrote {options.parquet}")
    if options.html:
        from ..statistics.statistics_page import write_page

        write_page(options.html, found, columns, rows)
        desk.say(f"wrote {options.html}")
    return Summary(columns, rows)


def statistics_table(found: TopicStatistics) -> tuple[list[str], list[tuple[object, ...]]]:
    """Return the names and rows of the table, without the columns that were not requested."""
    columns = ["TOPIC", "PARTITION", "BATCHES", "RECORDS", "BYTES", "BYTES/BATCH", "RECORDS/BATCH", "RECORDS/S", "MB/S"]
    if found.compression:
        columns += ["RATIO", "WORST-RATIO", "ESTIMATE-ERROR", "SPLITS", "SPLIT-%"]
    if found.latencies:
        columns += ["P50-MS", "P95-MS", "P99-MS", "P999-MS"]
    rows: list[tuple[object, ...]] = []
    for place, sums in sorted(found.batches.items()):
        row: list[object] = [*place, sums.batches, sums.records, sums.size_bytes]
        row += [round(sums.bytes_per_batch), round(sums.records_per_batch, 1)]
        row += _rates(sums)
        replayed = found.compression.get(place)
        if found.compression:
            row += [None] * 5 if replayed is None or not replayed.batches else _ratios(replayed)
        if found.latencies:
            counted = found.latencies.get(place)
            for fraction in (0.5, 0.95, 0.99, 0.999):
                latency = None if counted is None else counted.percentile(fraction)
                row.append(None if latency is None else round(latency, 1))
        rows.append(tuple(row))
    return columns, rows


def _rates(sums: BatchStatistics) -> list[object]:
    """Return records and megabytes per second over the range of the records' timestamps."""
    if sums.first_timestamp is None or sums.max_timestamp is None or sums.max_timestamp <= sums.first_timestamp:
        return [None, None]
    seconds = (sums.max_timestamp - sums.first_timestamp) / 1000
    return [round(sums.records / seconds, 1), round(sums.size_bytes / seconds / 1e6, 3)]


def _ratios(replayed: CompressionReplay) -> list[object]:
    return [
        round(replayed.stored_bytes / replayed.uncompressed_bytes, 3),
        round(replayed.worst_ratio, 3),
        round(replayed.error_sum / replayed.batches, 3),
        replayed.splits,
        round(100 * replayed.splits / replayed.batches, 2),
    ]


# --- the tasks of a pass


def _read_headers(rows: Iterable[pa.RecordBatch]) -> BatchStatistics:
    from ..statistics.batch_statistics import BatchStatistics

    return BatchStatistics.of(rows)


def _replay(rows: Iterable[pa.RecordBatch]) -> CompressionReplay:
    from ...client.producer.compression_estimator import CompressionRatioEstimator
    from ...protocol.records import v2
    from ...protocol.records.compression import Codec
    from ..statistics.batch_statistics import CompressionReplay

    replayed = CompressionReplay()
    estimator = CompressionRatioEstimator()
    for batches in rows:
        columns = ("topic", "codec", "magic", "sizeInBytes", "uncompressedSize")
        for topic, codec, magic, size, uncompressed in zip(
            *(batches[name].to_pylist() for name in columns), strict=True
        ):
            overhead = v2.HEADER_SIZE if magic == v2.MAGIC else 0
            replayed.take(topic, Codec[codec.upper()], size - overhead, uncompressed, estimator)
    return replayed


def _read_latencies(header: str, rows: Iterable[pa.RecordBatch]) -> Latencies:
    from ..statistics.batch_statistics import Latencies

    latencies = Latencies()
    for records in rows:
        latencies.take_records(records, header)
    return latencies


def _write_parquet(path: Location, columns: list[str], rows: list[tuple[object, ...]]) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    table = pa.table({name: [row[index] for row in rows] for index, name in enumerate(columns)})
    output = open_output(path)
    parquet.write_table(table, output)
    output.close()
