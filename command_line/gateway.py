"""`gregor gateway`: serve old clients in front of a Kafka that no longer serves them."""

from __future__ import annotations

import argparse
import sys

from .configuration_options import add_configuration_options
from .importing import lean_imports

EPILOG = """\
examples:
  gregor gateway --upstream kafka-4:9092
  gregor gateway gateway.properties --override listeners=PLAINTEXT://0.0.0.0:9092

Old clients connect to localhost:9092, unless listeners says otherwise; docs/gateway.md has the rest.
Settings have Kafka's names; `gregor config gateway` lists those that only a gateway has.
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the parser of this command."""
    parser = subparsers.add_parser(
        "gateway",
        help="serve old clients in front of Kafka 4",
        description="Run a gateway in the foreground until SIGTERM or Ctrl-C.",
        epilog=EPILOG,
    )
    add_configuration_options(parser, "GATEWAY.PROPERTIES")
    parser.add_argument(
        "--upstream",
        metavar="HOST:PORT[,HOST:PORT...]",
        help="bootstrap servers of the Kafka cluster (gregor.gateway.upstream)",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Serve until told to stop; 1 with one line on standard error if the settings are wrong."""
    with lean_imports("gateway"):
        from ..broker.config import BrokerConfig, ConfigError
        from ..gateway.serve import serve

    overrides = list(options.override)
    if options.upstream is not None:
        overrides.append(f"gregor.gateway.upstream={options.upstream}")
    try:
        return serve(BrokerConfig.load(options.properties, overrides))
    except ConfigError as error:
        print(f"gregor: {error}", file=sys.stderr)  # noqa: T201 (the one line that a user reads)
        return 1
