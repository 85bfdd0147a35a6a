"""`gregor console`: the web console for any Kafka cluster, in a process of its own."""

from __future__ import annotations

import argparse
import logging

from ..asking import UsageError, add_connection_options, read_client_properties, run_client

DEFAULT_ADDRESS = "http://localhost:8080"
EPILOG = """\
A Gregor broker serves the same console itself: gregor serve --override gregor.console.listeners=http://:8080

  gregor console
  gregor console --bootstrap-server kafka:9092 --command-config client.properties --read-only
  gregor console --listen http://localhost:9000
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the parser of this command."""
    parser = subparsers.add_parser(
        "console",
        help="show a cluster in a browser",
        description="Serve web pages about a cluster until Ctrl-C: topics, records, groups, clients, faults.",
        epilog=EPILOG,
    )
    add_connection_options(parser)
    parser.add_argument(
        "--listen",
        action="append",
        metavar="http://HOST:PORT",
        help=f"address of the pages; repeatable (default: {DEFAULT_ADDRESS})",
    )
    parser.add_argument("--host", action="append", default=[], metavar="NAME", help="a host name that browsers may use")
    parser.add_argument("--read-only", action="store_true", help="show only, change nothing")
    parser.add_argument("--schema-dir", metavar="DIR", help="directory with Avro schemas")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Serve until interrupted; the exit code is 1 if no broker can be reached or the address is in use."""

    async def work() -> None:
        from ...broker.config.listeners import ListenerError
        from .listener import Console
        from .settings import ConsoleSettings, ShownCluster

        logging.basicConfig(level=logging.INFO, format="%(message)s")
        properties = {"client.id": "gregor-console", **read_client_properties(arguments.client_config)}
        settings = ConsoleSettings(
            addresses=arguments.listen or [DEFAULT_ADDRESS],
            hosts=arguments.host,
            client_config=arguments.client_config,
            read_only=arguments.read_only,
            schema_dir=arguments.schema_dir,
        )
        try:
            console = Console(settings)
        except ListenerError as error:
            raise UsageError(str(error)) from error
        await console.run_for(ShownCluster(arguments.bootstrap_server, properties))

    return run_client(work, arguments.bootstrap_server)
