"""`gregor serve`: run a broker, configured as kafka-server-start is."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

EPILOG = """\
Without a file: one node, PLAINTEXT://localhost:9092, data in ./gregor-data, topics created on first use.

  gregor serve
  gregor serve server.properties --override log.retention.ms=60000
  gregor serve --override listeners=PLAINTEXT://0.0.0.0:9092 --override log.dirs=/data
  gregor serve --topic orders:3 --topic users:1:cleanup.policy=compact --load seed.jsonl

All keys are Kafka's; `gregor config` lists the keys with their defaults.
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this command to the program's."""
    parser = subparsers.add_parser(
        "serve",
        help="run a broker",
        description="Run a broker in the foreground until SIGTERM or Ctrl-C.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "properties",
        nargs="?",
        type=Path,
        metavar="SERVER.PROPERTIES",
        help="file of configurations, one key=value on each line",
    )
    parser.add_argument(
        "--override",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a configuration that takes precedence over the file; repeatable",
    )
    parser.add_argument(
        "--topic",
        action="append",
        default=[],
        metavar="NAME[:PARTITIONS][:KEY=VALUE]...",
        help="a topic to create before clients are served; repeatable",
    )
    parser.add_argument(
        "--load",
        action="append",
        default=[],
        metavar="FILE|DIR",
        help="JSON lines or a log directory to load before clients are served; repeatable",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Serve until stopped and return the exit status: 1, with a line on standard error, for wrong configurations."""
    from ..broker.app.serve import serve
    from ..broker.config import BrokerConfig, ConfigError

    try:
        config = BrokerConfig.load(options.properties, options.override, _added(options))
    except ConfigError as error:
        print(f"gregor: {error}", file=sys.stderr)  # noqa: T201 (the one line that a user reads)
        return 1
    return serve(config)


def _added(options: argparse.Namespace) -> dict[str, list[str]]:
    """Return what the command line adds to keys that are lists."""
    added = {"gregor.create.topics": options.topic, "gregor.load": options.load}
    return {key: values for key, values in added.items() if values}
