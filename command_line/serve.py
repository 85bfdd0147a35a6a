"""`gregor serve`: run a broker, configured as kafka-server-start is."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from .configuration_options import add_configuration_options
from .ephemeral import ephemeral_directory
from .importing import lean_imports
from .snapshots import SnapshotError, load_snapshot

if TYPE_CHECKING:
    from ..broker.app.serve import Companion

READ_BYTES = 65536

EPILOG = """\
Without a file: one node, PLAINTEXT://localhost:9092, data in ./gregor-data, topics created on first use.

  gregor serve
  gregor serve server.properties --override log.retention.ms=60000
  gregor serve --override listeners=PLAINTEXT://0.0.0.0:9092 --override log.dirs=/data
  gregor serve --topic orders:3 --topic users:1:cleanup.policy=compact --load seed.jsonl
  gregor serve --ephemeral --port 0 --ready-json

All keys are Kafka's; `gregor config` lists the keys with their defaults.
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the parser of this command."""
    parser = subparsers.add_parser(
        "serve",
        help="run a broker",
        description="Run a broker in the foreground until SIGTERM or Ctrl-C.",
        epilog=EPILOG,
    )
    add_configuration_options(parser, "SERVER.PROPERTIES")
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
    _add_options_of_tests(parser)
    parser.set_defaults(run=run)


def _add_options_of_tests(parser: argparse.ArgumentParser) -> None:
    """Add what programs need that start a broker, use it and want it to leave nothing behind."""
    parser.add_argument("--port", type=int, metavar="N", help="listen on this port of localhost; 0: any free one")
    places = parser.add_mutually_exclusive_group()
    places.add_argument("--dir", type=Path, metavar="DIR", help="log directory (log.dirs)")
    places.add_argument(
        "--ephemeral",
        action="store_true",
        help="keep the data in a temporary directory, in memory if there is room, and remove it at exit",
    )
    parser.add_argument(
        "--state", type=Path, metavar="FILE", help="with --ephemeral: begin with a file of `gregor state save`"
    )
    parser.add_argument(
        "--port-file", type=Path, metavar="FILE", help="a file for the port of the first listener, there while ready"
    )
    parser.add_argument(
        "--ready-json",
        action="store_true",
        help="print one line of JSON to standard output when clients are served, and the log to standard error",
    )
    parser.add_argument(
        "--stop-at-eof",
        action="store_true",
        help="stop when standard input ends: its other end is held by a program that has exited or was killed",
    )


def run(options: argparse.Namespace) -> int:
    """Serve until told to stop; 1 with one line on standard error if the settings are wrong."""
    with lean_imports("serve"):
        from ..broker.app.announcement import Announcement
        from ..broker.app.serve import serve
        from ..broker.config import BrokerConfig, ConfigError
        from ..broker.config.listeners import ListenerError

    try:
        with _placed(options) as overrides, ExitStack() as at_end:
            config = BrokerConfig.load(options.properties, overrides, _added(options))
            companions: list[Companion] = [_stop_at_eof] if options.stop_at_eof else []
            further: dict[str, object] = {}
            if config.gregor_control_listeners:
                # A broker without a control port does not load its modules at the start.
                from .control.listener import Control

                control = Control(config)
                at_end.callback(control.close)
                companions.append(control.run)
                further["control"] = control.addresses
            if config.gregor_console_listeners:
                # A broker without a console does not load the modules of the console at the start.
                from .console.listener import Console
                from .console.settings import ConsoleSettings

                console = Console(ConsoleSettings.of(config))
                at_end.callback(console.close)
                companions.append(console.run)
                further["console"] = console.addresses
            return serve(config, Announcement(options.port_file, options.ready_json, further), companions)
    except (ConfigError, ListenerError, SnapshotError) as error:
        print(f"gregor: {error}", file=sys.stderr)  # noqa: T201 (the one line that a user reads)
    except OSError as error:
        print(f"gregor: {error.filename}: {error.strerror}", file=sys.stderr)  # noqa: T201
    return 1


async def _stop_at_eof(_: object) -> None:
    """Send SIGTERM to this process when standard input ends."""
    with contextlib.suppress(PermissionError):
        # epoll refuses a regular file with PermissionError; such a file has ended already.
        await trio.lowlevel.wait_readable(sys.stdin.fileno())
        while os.read(sys.stdin.fileno(), READ_BYTES):
            await trio.lowlevel.wait_readable(sys.stdin.fileno())
    os.kill(os.getpid(), signal.SIGTERM)


@contextmanager
def _placed(options: argparse.Namespace) -> Iterator[list[str]]:
    """Yield all overrides, with the log directory and the port that the options say; an ephemeral directory ends here.

    Raises SnapshotError, OSError.
    """
    overrides = list(options.override)
    if options.port is not None:
        overrides.append(f"listeners=PLAINTEXT://localhost:{options.port}")
    if options.state is not None and not options.ephemeral:
        raise SnapshotError("--state needs --ephemeral; for a directory that stays, use `gregor state load`")
    if not options.ephemeral:
        yield overrides if options.dir is None else [*overrides, f"log.dirs={options.dir}"]
        return
    with ephemeral_directory() as directory:
        if options.state is not None:
            load_snapshot(options.state, directory)
        yield [*overrides, f"log.dirs={directory}"]


def _added(options: argparse.Namespace) -> dict[str, list[str]]:
    """Return the entries that the command line adds to list-valued keys."""
    added = {"gregor.create.topics": options.topic, "gregor.load": options.load}
    return {key: values for key, values in added.items() if values}
