"""`gregor cluster`: several brokers on one machine, one process each, to use more cores."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

EPILOG = """\
Broker 1 is also the controller. Any of the brokers may be a client's bootstrap server; the addresses of all brokers are
printed once all brokers are ready.

  gregor cluster --brokers 3
  gregor cluster --brokers 3 --port 0 --dir /tmp/c --override default.replication.factor=3

Internal topics have as many replicas as Kafka's defaults say, but no more than there are brokers. Ctrl-C stops all
brokers.
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the parser of this command."""
    parser = subparsers.add_parser(
        "cluster",
        help="run a cluster of brokers on this machine",
        description="Run a cluster of brokers in the foreground, one process for each broker, until SIGTERM or Ctrl-C.",
        epilog=EPILOG,
    )
    parser.add_argument("--brokers", type=_count, default=3, metavar="N", help="number of brokers (default: 3)")
    parser.add_argument(
        "--dir",
        type=Path,
        default=Path("gregor-cluster"),
        help="directory for the data of all brokers (default: gregor-cluster)",
    )
    parser.add_argument(
        "--host", default="localhost", help="host that brokers listen on and advertise (default: localhost)"
    )
    parser.add_argument(
        "--port",
        type=int,
        default=9092,
        help="port of broker 1; other brokers use the next ports; 0: any free ports (default: 9092)",
    )
    parser.add_argument(
        "--override",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a configuration of all brokers; repeatable",
    )
    parser.set_defaults(run=run)


def _count(text: str) -> int:
    count = int(text)
    if count < 1:
        raise argparse.ArgumentTypeError("at least one broker")
    return count


def run(options: argparse.Namespace) -> int:
    """Run the cluster until stopped and return the exit status: 1, with a line on standard error, if that fails."""
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
