"""The program `gregor`: one module for each command, imported only when that command is used."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from typing import Any

from .. import __version__
from .importing import lean_imports

COMMANDS = {
    "serve": "serve",
    "cluster": "cluster",
    "gateway": "gateway",
    "topics": "topics",
    "configs": "configs",
    "groups": "groups",
    "reassign": "reassign",
    "transactions": "transactions",
    "features": "features",
    "acls": "acls",
    "clients": "clients",
    "console": "console.command",
    "faults": "faults",
    "produce": "produce",
    "consume": "consume",
    "dump-log": "dump_log",
    "log": "log",
    "metadata": "metadata",
    "reset": "reset",
    "state": "state",
    "storage": "storage",
    "mirror": "mirror",
    "perf-test": "perf_test",
    "api-versions": "api_versions",
    "dev-certs": "dev_certs",
    "healthcheck": "healthcheck",
    "config": "config",
    "doctor": "doctor",
    "completion": "completion",
    "pipeline": "pipeline",
}
"""The command's name -> the module with its `add_parser(subparsers)`; the parser's default `run` does the work."""

INTERRUPTED = 130
"""The exit status after Ctrl-C: 128 and the number of SIGINT, as shells have it."""

MISUSED = 2
"""The exit status of argparse for wrong options."""

DESCRIPTION = """\
A Kafka broker for every client from 0.8 to 4.x, and tools for Gregor and Kafka brokers.

  gregor serve                                    run a broker on localhost:9092, data in ./gregor-data
  gregor cluster --brokers 3                      run three brokers as one cluster
  gregor gateway --upstream kafka:9092            serve old clients in front of Kafka 4
  gregor produce --topic t                        send each line of standard input as a record
  gregor consume --topic t --from-beginning       print records to standard output
  gregor COMMAND --help                           show all options of a command
"""


class CommandParser(argparse.ArgumentParser):
    """A parser that prints descriptions and examples with their own line breaks, and so do its subparsers."""

    def __init__(self, **options: Any) -> None:
        options.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(**options)


def build_parser(commands: Sequence[str]) -> argparse.ArgumentParser:
    """Return the program's parser with the parsers of these commands."""
    parser = CommandParser(prog="gregor", description=DESCRIPTION)
    parser.add_argument("--version", action="version", version=f"gregor {__version__}")
    subparsers = parser.add_subparsers(prog=parser.prog, dest="command", metavar="COMMAND", required=True)
    for command in commands:
        importlib.import_module(f".{COMMANDS[command]}", __name__).add_parser(subparsers)
    return parser


def _near(word: str) -> str | None:
    """Return the command that a word resembles, if the word is none itself."""
    if word in COMMANDS:
        return None
    from difflib import get_close_matches

    return next(iter(get_close_matches(word, COMMANDS, n=1)), None)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit status: 0, 1 if the command failed, 2 (from argparse) for a usage error."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    named = next((word for word in words if not word.startswith("-")), None)
    # The version needs no command's parser.
    commands = [named] if named in COMMANDS else [] if words[:1] == ["--version"] else list(COMMANDS)
    try:
        if named is not None and named == words[0] and (near := _near(named)):
            print(f"gregor: there is no command {named!r}; did you mean {near}?", file=sys.stderr)  # noqa: T201
            return MISUSED
        with lean_imports(f"options-{named}" if len(commands) == 1 else "options"):
            parser = build_parser(commands)
        options = parser.parse_args(words)
        status: int = options.run(options)
    except KeyboardInterrupt:
        # While modules are imported: what runs a command takes care of Ctrl-C by itself.
        return INTERRUPTED
    return status
