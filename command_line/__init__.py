"""The program `gregor`: one module for each command, imported only when that command is used."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

from .. import __version__

COMMANDS = {
    "serve": "serve",
    "cluster": "cluster",
    "topics": "topics",
    "configs": "configs",
    "groups": "groups",
    "clients": "clients",
    "faults": "faults",
    "produce": "produce",
    "consume": "consume",
    "dump-log": "dump_log",
    "log": "log",
    "metadata": "metadata",
    "mirror": "mirror",
    "perf-test": "perf_test",
    "healthcheck": "healthcheck",
    "config": "config",
    "pipeline": "pipeline",
}
"""What a user types -> the module that has its `add_parser(subparsers)`; the parser's default `run` does the work."""

DESCRIPTION = """\
A Kafka broker for every client from 0.8 to 4.x, and tools for it and for any other Kafka.

  gregor serve                                    a broker on localhost:9092, data in ./gregor-data
  gregor cluster --brokers 3                      three of them, as one cluster
  gregor produce --topic t                        a record for each line of standard input
  gregor consume --topic t --from-beginning       records to standard output
  gregor COMMAND --help                           all that a command can do
"""


def build_parser(commands: Sequence[str]) -> argparse.ArgumentParser:
    """The program's parser with the parsers of these commands."""
    parser = argparse.ArgumentParser(
        prog="gregor", description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--version", action="version", version=f"gregor {__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for command in commands:
        importlib.import_module(f".{COMMANDS[command]}", __name__).add_parser(subparsers)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status: 0, 1 if it failed, 2 (by argparse) if it was not understood."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    named = next((word for word in words if not word.startswith("-")), None)
    commands = [named] if named in COMMANDS else list(COMMANDS)
    options = build_parser(commands).parse_args(words)
    status: int = options.run(options)
    return status
