"""Archive topics as tables of Delta Lake or Parquet files, by topic and date or hour, exactly once even after kill -9.

Each round reads ranges of offsets from the end of the archive's manifest, writes their rows, and then adds one entry
to the manifest, which makes the rows count. If a run is interrupted, the next run removes its files that do not
count. Only committed records are archived; values that cannot be decoded go to a table of dead letters, with the
reason. With --group the archive's positions are also committed as offsets of that group, so that lag tools see them.
"""

from __future__ import annotations

import argparse
import time

from .archive_options import Tally, add_archive_arguments, compact, finish, lock_of, open_writer
from .desk import Desk, Summary
from .sources import add_broker_arguments, broker_options

FILES_A_COMPACTION = 500
"""The number of new files after which --follow with --compact merges files."""

HELP = "copy topics to tables of Delta Lake or Parquet files, exactly once"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments for the source, the archive and the interval."""
    add_broker_arguments(parser)
    add_archive_arguments(parser)
    parser.add_argument("--group", metavar="NAME", help="also commit positions as offsets of this group")
    often = parser.add_mutually_exclusive_group()
    often.add_argument("--once", action="store_true", help="stop at the present end of the topics (default)")
    often.add_argument("--follow", action="store_true", help="continue until interrupted")
    parser.add_argument(
        "--interval", type=float, default=10.0, metavar="S", help="with --follow: seconds between rounds"
    )


def run(options: argparse.Namespace, desk: Desk) -> Summary:
    """Archive all records up to the current end, and with --follow new ones."""
    from ..archive.waves import WaveOptions, archive_wave
    from ..kafka.cluster_view import ClusterView
    from ..kafka.kafka_raw import KNOWN_OPTIONS
    from ..kafka.read_plan import ReadPlan
    from ..options import SourceOptions

    settings = {"kafka.isolation.level": "read_committed"}
    plan = ReadPlan(SourceOptions(broker_options(options, **settings), KNOWN_OPTIONS))
    wave = WaveOptions(plan, options.max_bytes, options.group)
    done = Tally()
    with lock_of(options, desk) as lock, ClusterView(plan.settings) as cluster:
        plan.choice.find(cluster)
        writer = open_writer(options, cluster.cluster_id, desk, lock)
        rounds = 0
        try:
            while True:
                written = archive_wave(wave, cluster, writer, desk)
                rounds += 1
                done.add(written)
                if not options.follow:
                    break
                if written:
                    records, size_bytes = sum(each.rows for each in written), sum(each.size_bytes for each in written)
                    desk.say(f"archived {records:,} records ({size_bytes:,} bytes)")
                if options.compact and done.files_since_compaction >= FILES_A_COMPACTION:
                    compact(options, desk, writer.archive, done)
                time.sleep(options.interval)
        except KeyboardInterrupt:
            if not options.follow or not rounds:
                raise
        return finish(options, desk, writer.archive, done)
