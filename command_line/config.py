"""`gregor config`: the broker's settings with their defaults, or a commented server.properties."""

from __future__ import annotations

import argparse
import json
import sys

from .asking import run_tool, say

EXAMPLES = """\
examples:
  gregor config retention cleanup
  gregor config --json
  gregor config --write
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the parser of this command."""
    parser = subparsers.add_parser(
        "config",
        help="list the broker's configurations",
        description="List the broker's configurations with their defaults and descriptions: all, or those with a WORD.",
        epilog=EXAMPLES,
    )
    parser.add_argument("words", nargs="*", metavar="WORD", help="list only keys that contain one of these words")
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")
    parser.add_argument("--write", action="store_true", help="print a server.properties with all keys, commented out")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the keys; return 1, with a line on standard error, for each word that no key contains."""
    from ..broker.config.server_properties import as_objects, described, server_properties, why_none

    def work() -> None:
        if options.write:
            sys.stdout.write(server_properties())
        elif options.json:
            say(json.dumps(list(as_objects(options.words)), indent=2))
        else:
            for line in described(options.words):
                say(line)

    status = run_tool(work)
    reasons = [] if options.write else [reason for word in options.words if (reason := why_none(word))]
    for reason in reasons:
        print(f"gregor: {reason}", file=sys.stderr)  # noqa: T201
    return 1 if reasons else status
