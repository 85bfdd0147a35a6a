"""Convert log directories between message formats, segment by segment in parallel, verified record by record.

Offsets, keys and values do not change; the job reports how many records lose what the target format cannot store
(headers, timestamps, transactions). The result is a new log directory: start a broker with it, or read it with
kafka_log. Segments that exist are not converted again; the broker of the source directory may be running.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ...protocol.records.compression import Codec
from ...protocol.topic_partition import AnyTopicPartition
from ..local_paths import directory_argument, path_argument
from ..logs.log_files import PartitionFiles, SegmentFile, list_partitions, mapped
from ..logs.segment_files import segment_path, write_segment
from ..spark_tasks import run_tasks
from .desk import Desk, Summary

if TYPE_CHECKING:
    from ..logs.format_conversion import Account, Conversion

HELP = "convert log directories between message formats"

OLD_CODECS = (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4)


@dataclass(frozen=True, slots=True)
class SegmentConversion:
    """The work of one task: a segment, and the path of its conversion."""

    conversion: Conversion
    segment: SegmentFile
    target: Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments for the source, the target and the format."""
    parser.add_argument(
        "--log-dir",
        required=True,
        action="append",
        type=directory_argument,
        metavar="DIR",
        help="log directory to read (repeatable)",
    )
    parser.add_argument("--to-log-dir", required=True, type=path_argument, metavar="DIR", help="log directory to write")
    parser.add_argument("--to-format", required=True, type=int, choices=(0, 1, 2), help="message format version")
    parser.add_argument(
        "--topics", action="append", default=[], metavar="GLOB", help="only these topics (default: all)"
    )
    parser.add_argument(
        "--zstd-as",
        choices=[codec.name.lower() for codec in OLD_CODECS],
        default="gzip",
        help="codec to use instead of zstd, which only format 2 has (default: %(default)s)",
    )


def run(options: argparse.Namespace, desk: Desk) -> Summary:
    """Convert the segments that are not converted yet."""
    from ..logs.format_conversion import Account

    tasks = [
        task
        for partition in list_partitions(options.log_dir, options.topics)
        for task in _segments(partition, options)
        if not task.target.exists()
    ]
    accounts: dict[AnyTopicPartition, Account] = {}
    if tasks:
        session = desk.session()
        with desk.progress(len(tasks), "segments") as progress:
            made = run_tasks(session, tasks, convert_segment, progress)
        for task, account in zip(tasks, made, strict=True):
            place = (task.conversion.topic, task.conversion.partition)
            accounts.setdefault(place, Account()).add(account)
    columns = ("TOPIC", "PARTITION", "RECORDS", "BYTES-BEFORE", "BYTES-AFTER", "LOST")
    rows = [
        (*place, account.records, account.bytes_before, account.bytes_after, _losses(account))
        for place, account in sorted(accounts.items())
    ]
    return Summary(columns, rows, () if tasks else ("nothing to convert: every segment is there",))


def convert_segment(task: SegmentConversion) -> Account:
    """Convert one segment file. Raises DamagedLogError, OSError."""
    from ..logs.format_conversion import Account

    account = Account()
    write_segment(task.target, task.conversion.convert(mapped(task.segment), account))
    return account


def _segments(partition: PartitionFiles, options: argparse.Namespace) -> list[SegmentConversion]:
    from ..logs.format_conversion import Conversion
    from ..logs.log_transactions import aborted_transactions

    conversion = Conversion(
        partition.name.topic,
        partition.name.partition,
        options.to_format,
        Codec[options.zstd_as.upper()],
        aborted_transactions(partition),
    )
    return [
        SegmentConversion(
            conversion,
            segment,
            segment_path(options.to_log_dir.absolute(), *partition.name, segment.base_offset),
        )
        for segment in partition.segments
    ]


def _losses(account: Account) -> str:
    counts = [
        (account.headers, "headers"),
        (account.timestamps, "times"),
        (account.producer_batches, "producers of batches"),
        (account.control_batches, "markers"),
        (account.aborted_records, "aborted records"),
        (account.recoded_batches, "batches were zstd"),
    ]
    return ", ".join(f"{count} {name}" for count, name in counts if count) or "nothing"
