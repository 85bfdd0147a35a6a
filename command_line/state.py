"""`gregor state`: save the state of a stopped broker to a file, and start from that state again."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

EPILOG = """\
The broker must be stopped. A snapshot has everything: topics with their ids, records, groups, offsets, transactions.

  gregor state save seed.tar --dir gregor-data
  gregor state load seed.tar --dir gregor-data
  gregor serve --ephemeral --state seed.tar               a broker that begins with that state and leaves nothing behind
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this command to the program's."""
    parser = subparsers.add_parser(
        "state",
        help="save the state of a stopped broker, and load it",
        description="Save the state of a stopped broker to a file, or replace a broker's state by a saved one.",
        epilog=EPILOG,
    )
    parser.add_argument("action", choices=["save", "load"], help="save to the file, or load from it")
    parser.add_argument("snapshot", type=Path, metavar="FILE", help="the snapshot, a tar file")
    parser.add_argument(
        "--dir", type=Path, default=Path("gregor-data"), help="log directory of the broker (default: %(default)s)"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Save or load; 1 with one line on standard error if that is not possible."""
    from ..storage.disk.log_directory import StorageUnavailableError
    from .snapshots import SnapshotError, load_snapshot, save_snapshot

    try:
        if options.action == "save":
            size = save_snapshot(options.dir, options.snapshot)
            print(f"Saved {options.dir} to {options.snapshot}: {size} bytes.")  # noqa: T201
        else:
            load_snapshot(options.snapshot, options.dir)
            print(f"Loaded {options.snapshot} to {options.dir}.")  # noqa: T201
    except (SnapshotError, StorageUnavailableError) as fault:
        print(f"gregor: {fault}", file=sys.stderr)  # noqa: T201
        return 1
    except OSError as fault:
        print(f"gregor: {fault.filename or options.snapshot}: {fault.strerror or fault}", file=sys.stderr)  # noqa: T201
        return 1
    return 0
