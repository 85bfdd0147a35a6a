"""`gregor mirror`: copy topics between clusters, Gregor or Kafka, without decoding their batches."""

from __future__ import annotations

import argparse
import re
import sys
import time

from ..client.admin import BROKER_DEFAULT
from ..client.mirroring import Mirror, MirrorOptions, MirrorProgress
from .asking import UsageError, client_id, read_client_properties, run_client, say

MIB = 1 << 20
DESCRIPTION = """\
Copy all topics whose whole name matches, each partition to the partition of the same number, batch by batch and byte
by byte: compressed batches stay compressed. Topics are created with the source's configurations. A mirror that was
stopped or killed continues exactly where it ended, as long as no other client writes to the copies: each record
arrives once. Transaction markers and records of aborted transactions are not copied.

With --keep-offsets every record has the same offset as at the source; the target must be a Gregor broker.
"""
EXAMPLES = """\
examples:
  gregor mirror --from old-kafka:9092 --to localhost:9092 --topics 'orders.*' --keep-offsets
  gregor mirror --from kafka-a:9092 --to kafka-b:9092 --topics '.*' --once --max-rate 20
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the parser of this command."""
    parser = subparsers.add_parser(
        "mirror",
        help="copy topics from one cluster to another",
        description=DESCRIPTION,
        epilog=EXAMPLES,
    )
    parser.add_argument("--from", dest="source", required=True, metavar="HOST:PORT,...", help="the cluster to read")
    parser.add_argument("--to", dest="target", required=True, metavar="HOST:PORT,...", help="the cluster to write to")
    parser.add_argument("--topics", required=True, metavar="REGEX", help="copy topics whose whole name matches")
    parser.add_argument("--once", action="store_true", help="stop at the present end of the source's logs")
    parser.add_argument("--keep-offsets", action="store_true", help="keep the source's offsets (target must be Gregor)")
    parser.add_argument(
        "--group",
        metavar="NAME",
        help="group at the target whose offsets store the progress (default: gregor-mirror- and the source's id)",
    )
    parser.add_argument(
        "--append", action="store_true", help="start even if the target has records that this mirror did not write"
    )
    parser.add_argument(
        "--replication-factor",
        type=int,
        default=BROKER_DEFAULT,
        metavar="N",
        help="replication factor of created topics",
    )
    parser.add_argument("--max-rate", type=float, default=0.0, metavar="MIB/S", help="copy no faster than this")
    parser.add_argument(
        "--refresh", type=float, default=30.0, metavar="S", help="how often to look for new topics and partitions"
    )
    parser.add_argument("--report", type=float, default=10.0, metavar="S", help="how often to print the progress")
    parser.add_argument("--consumer.config", dest="source_config", metavar="FILE", help="client settings for --from")
    parser.add_argument("--producer.config", dest="target_config", metavar="FILE", help="client settings for --to")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Copy until interrupted, or with --once to the current end, and return the exit code: 1 on failure."""

    async def work() -> None:
        try:
            pattern = re.compile(arguments.topics)
        except re.error as error:
            raise UsageError(f"--topics is not a regular expression: {error}") from error
        named = {"client.id": client_id(arguments.command)}
        options = MirrorOptions(
            pattern,
            keeps_offsets=arguments.keep_offsets,
            once=arguments.once,
            group_id=arguments.group,
            appends=arguments.append,
            replication_factor=arguments.replication_factor,
            max_bytes_per_second=arguments.max_rate * MIB,
            refresh_seconds=arguments.refresh,
            source_config=named | read_client_properties(arguments.source_config),
            target_config=named | read_client_properties(arguments.target_config),
        )
        report = Report(arguments.report)
        mirror = Mirror(arguments.source, arguments.target, options, report.show)
        try:
            await mirror.run()
        finally:
            report.end(mirror.progress)

    return run_client(work, arguments.source, arguments.target)


class Report:
    """A report of the copy's progress: a line at intervals, and on a terminal one that is updated in place."""

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._started_at = self._shown_at = time.monotonic()
        self._shown_bytes = self._shown_records = 0
        self._is_terminal = sys.stderr.isatty()

    def show(self, progress: MirrorProgress) -> None:
        """Print the rate since the last line, and the lag."""
        now = time.monotonic()
        interval_s = min(self._interval_s, 0.5) if self._is_terminal else self._interval_s
        elapsed = now - self._shown_at
        if elapsed < interval_s:
            return
        line = (
            f"{_done(progress)}, {(progress.records - self._shown_records) / elapsed:,.0f} records/s,"
            f" {(progress.size_bytes - self._shown_bytes) / elapsed / MIB:.1f} MiB/s, lag {progress.lag:,}"
        )
        self._shown_at, self._shown_bytes, self._shown_records = now, progress.size_bytes, progress.records
        if self._is_terminal:
            sys.stderr.write(f"\r{line}\x1b[K")
            sys.stderr.flush()
        else:
            say(line)
            sys.stdout.flush()

    def end(self, progress: MirrorProgress) -> None:
        """Print the totals."""
        if self._is_terminal:
            sys.stderr.write("\r\x1b[K")
        elapsed = max(time.monotonic() - self._started_at, 1e-9)
        say(
            f"{_done(progress)} in {elapsed:.1f} s, {progress.records / elapsed:,.0f} records/s,"
            f" {progress.size_bytes / elapsed / MIB:.1f} MiB/s, lag {progress.lag:,}"
        )


def _done(progress: MirrorProgress) -> str:
    recovered = f" (recovered {progress.recoveries} times)" if progress.recoveries else ""
    return f"{progress.records:,} records, {progress.size_bytes / MIB:,.1f} MiB{recovered}"
