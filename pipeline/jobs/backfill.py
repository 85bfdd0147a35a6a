"""Copy records of log directories that an archive lacks to the archive, exactly once, in addition to `archive`.

The broker of the directories need not run. Records of aborted transactions are left out, and a partition is read up to
the first transaction that is still open. If the job was interrupted, run it again.
"""

from __future__ import annotations

import argparse

from ..local_paths import directory_argument
from .archive_options import Tally, add_archive_arguments, finish, lock_of, open_writer
from .desk import Desk, Summary
from .sources import add_data_loss_argument

HELP = "copy log directories to an archive"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments for the log directories and the archive."""
    parser.add_argument(
        "--log-dir",
        required=True,
        action="append",
        type=directory_argument,
        metavar="DIR",
        help="log directory to read (repeatable)",
    )
    parser.add_argument("--topics", metavar="GLOB,...", help="only these topics (default: all)")
    add_data_loss_argument(parser)
    add_archive_arguments(parser)


def run(options: argparse.Namespace, desk: Desk) -> Summary:
    """Archive the missing offsets."""
    from ..archive.log_rounds import archive_logs, cluster_id_of, find_partitions
    from ..options import names_of

    with lock_of(options, desk) as lock:
        partitions = find_partitions(options.log_dir, names_of(options.topics or ""))
        writer = open_writer(options, cluster_id_of(options.log_dir), desk, lock)
        done = Tally()
        done.add(
            archive_logs(partitions, writer, desk, options.max_bytes, fails_on_data_loss=options.fail_on_data_loss)
        )
        return finish(options, desk, writer.archive, done)
