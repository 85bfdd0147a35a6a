"""`gregor cluster`: several brokers on one machine, one process each, as the way to use more cores."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

EPILOG = """\
Broker 1 is the controller as well. Clients may be given any of the brokers; all are printed once they are ready.

  gregor cluster --brokers 3
  gregor cluster --brokers 3 --port 0 --dir /tmp/c --override default.replication.factor=3

Topics of its own keep as many replicas as Kafka's defaults say, as far as there are brokers. Ctrl-C stops all.
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this command to the program's."""
    parser = subparsers.add_parser(
        "cluster",
        help="run several brokers on this machine",
        description="Run a cluster of brokers in the foreground, one process each, until SIGTERM or Ctrl-C.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--brokers", type=_count, default=3, metavar="N", help="how many (default: 3)")
    parser.add_argument(
        "--dir", type=Path, default=Path("gregor-cluster"), help="where each has its data (default: gregor-cluster)"
    )
    parser.add_argument("--host", default="localhost", help="where they listen, and are found (default: localhost)")
    parser.add_argument(
        "--port", type=int, default=9092, help="port of broker 1, the others' follow; 0: any free ones (default: 9092)"
    )
    parser.add_argument(
        "--override", action="append", default=[], metavar="KEY=VALUE", help="a setting for all of them"
    )
    parser.set_defaults(run=run)


def _count(text: str) -> int:
    count = int(text)
    if count < 1:
        raise argparse.ArgumentTypeError("at least one broker")
    return count


def run(options: argparse.Namespace) -> int:
    """Run the cluster until told to stop; 1 with one line on standard error if it cannot start."""
    import trio

    from .local_cluster import ClusterFailedError, LocalCluster

    try:
        cluster = LocalCluster(
            options.brokers, options.dir, host=options.host, first_port=options.port, overrides=options.override
        )
        trio.run(cluster.run)
    except ClusterFailedError as error:
        print(f"gregor: {error}", file=sys.stderr)  # noqa: T201 (the one line that a user reads)
        return 1
    return 0
