"""The common part of the tools that ask a broker: their connections and their exit codes."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio

from ..client.config import AdminConfig, ClientConfig
from ..client.errors import ClientError, ConfigError
from ..client.shared_properties import properties_for
from ..protocol.errors import BrokerError
from ..storage.disk.properties import parse_properties
from . import INTERRUPTED
from .colours import RED, coloured
from .reaching import SECONDS_OF_PATIENCE, reach_a_broker

DEFAULT_SERVER = "localhost:9092"
SERVER_VARIABLE = "GREGOR_BOOTSTRAP_SERVER"
"""The environment variable with the default of --bootstrap-server."""
TERMINATED = 143
"""The exit status after SIGTERM, as shells and the JVM of Kafka's tools have it: 128 and the signal's number."""


class UsageError(Exception):
    """Options that are valid one by one and contradict each other."""


class TerminatedError(Exception):
    """An error that ends a tool after SIGTERM."""


def default_server() -> str:
    """Return the bootstrap servers that a tool uses without --bootstrap-server."""
    return os.environ.get(SERVER_VARIABLE) or DEFAULT_SERVER


def add_json_option(parser: argparse.ArgumentParser) -> None:
    """Add `--json`, for tools that print a list or a table."""
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")


def add_actions(parser: argparse.ArgumentParser, actions: Mapping[str, str]) -> None:
    """Add an option for each action, of which exactly one must be given; `actions` are help texts by name.

    The name of the given action is the argument `action`.
    """
    group = parser.add_mutually_exclusive_group(required=True)
    for name, text in actions.items():
        group.add_argument(f"--{name}", dest="action", action="store_const", const=name, help=text)


def say_json(value: object) -> None:
    """Print a value as one JSON document."""
    say(json.dumps(value, indent=2, ensure_ascii=False))


def add_connection_options(parser: argparse.ArgumentParser, *config_options: str, is_repeated: bool = False) -> None:
    """Add `--bootstrap-server`, and options under these names for a file with client settings.

    ``is_repeated`` is for an action of a command that has the options too: then both places take them.
    """
    parser.add_argument(
        "--bootstrap-server",
        default=argparse.SUPPRESS if is_repeated else default_server(),
        metavar="HOST:PORT,...",
        help=f"bootstrap servers (default: ${SERVER_VARIABLE}, or {DEFAULT_SERVER})",
    )
    names = config_options or ("--command-config",)
    parser.add_argument(
        *names,
        dest="client_config",
        default=argparse.SUPPRESS if is_repeated else None,
        metavar="FILE",
        help="properties file with client configurations",
    )


def client_properties(
    arguments: argparse.Namespace, assignments: list[str] | None = None, *, client: type[ClientConfig] = AdminConfig
) -> dict[str, Any]:
    """Return the settings of a client from the given file and from KEY=VALUE options, which take precedence.

    Raises UsageError.
    """
    properties: dict[str, Any] = read_client_properties(arguments.client_config, client)
    try:
        properties |= properties_for(client, parse_assignments(assignments or []))
    except ConfigError as error:
        raise UsageError(str(error)) from None
    return {"client.id": client_id(arguments.command)} | properties


def client_id(command: str) -> str:
    """Return the client.id of a command in a broker's logs, quotas and metrics."""
    return f"gregor-{command}"


def read_client_properties(path: str | None, client: type[ClientConfig] = AdminConfig) -> dict[str, Any]:
    """Return the settings in a properties file that concern this kind of client, none without a file.

    Raises UsageError.
    """
    if path is None:
        return {}
    try:
        return dict(properties_for(client, parse_properties(Path(path).read_text(encoding="utf-8"))))
    except ConfigError as error:
        raise UsageError(f"{path}: {error}") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"cannot read {path}: {reason}") from error


def parse_assignments(assignments: list[str]) -> dict[str, str]:
    """Convert KEY=VALUE texts to a mapping. Raises UsageError for a text without "="."""
    pairs = {}
    for assignment in assignments:
        key, equals, value = assignment.partition("=")
        if not equals:
            raise UsageError(f"expected KEY=VALUE, not {assignment!r}")
        pairs[key.strip()] = value.strip("\r\n")
    return pairs


def run_client(
    work: Callable[[], Awaitable[None]],
    *bootstrap_servers: str,
    patience_s: float = SECONDS_OF_PATIENCE,
    interrupts_only_waits: bool = False,
) -> int:
    """Run a tool's trio work, as `run_tool` does, once a broker of each list of servers can be reached.

    With ``interrupts_only_waits`` Ctrl-C raises KeyboardInterrupt only where ``work`` itself waits, never in a
    background task of a client, which could not end in order then. Such a tool must not block in other ways.
    """

    async def reach_then_work() -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(_raise_at_sigterm)
            for servers in bootstrap_servers:
                await reach_a_broker(servers, patience_s)
            await work()
            nursery.cancel_scope.cancel()

    return run_tool(lambda: trio.run(reach_then_work, restrict_keyboard_interrupt_to_checkpoints=interrupts_only_waits))


async def _raise_at_sigterm(*, task_status: trio.TaskStatus[None]) -> None:
    """Raise TerminatedError when this process gets SIGTERM."""
    with trio.open_signal_receiver(signal.SIGTERM) as signals:
        task_status.started()
        async for _ in signals:
            raise TerminatedError


@asynccontextmanager
async def until_sigterm() -> AsyncIterator[trio.CancelScope]:
    """Run a block that SIGTERM ends early: the scope is cancelled, and the code after the block can end in order.

    The code after the block must raise TerminatedError if the scope's `cancelled_caught` is set.
    """

    async def cancel_at_sigterm(*, task_status: trio.TaskStatus[None]) -> None:
        with trio.open_signal_receiver(signal.SIGTERM) as signals:
            task_status.started()
            async for _ in signals:
                scope.cancel()

    async with trio.open_nursery() as nursery:
        await nursery.start(cancel_at_sigterm)
        with trio.CancelScope() as scope:
            yield scope
        nursery.cancel_scope.cancel()


def run_tool(work: Callable[[], None]) -> int:
    """Run a tool's work and write its output; turn an error into one line on standard error and an exit code."""
    try:
        work()
        sys.stdout.flush()
    except (Exception, KeyboardInterrupt, BaseExceptionGroup) as raised:
        _drop_unwritable_output()
        return _exit_code(_innermost(raised))
    return 0


def _drop_unwritable_output() -> None:
    """Discard printed text that cannot be written: the interpreter would fail with it again when it ends."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _exit_code(error: BaseException) -> int:
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED
    if isinstance(error, TerminatedError):
        return TERMINATED
    if isinstance(error, BrokenPipeError):
        # The reader of the output has closed the pipe (`gregor consume ... | head`).
        return 0
    if isinstance(error, BrokerError):
        print(f"{coloured('Error:', RED, sys.stderr)} {describe_broker_error(error)}", file=sys.stderr)  # noqa: T201
        return 1
    if isinstance(error, ClientError | UsageError):
        print(f"{coloured('Error:', RED, sys.stderr)} {error}", file=sys.stderr)  # noqa: T201
        return 1
    if isinstance(error, OSError) and error.strerror is not None:
        # Such as a full disk behind standard output.
        place = f"{error.filename}: " if error.filename is not None else ""
        print(f"{coloured('Error:', RED, sys.stderr)} {place}{error.strerror}", file=sys.stderr)  # noqa: T201
        return 1
    raise error


def describe_broker_error(error: BrokerError) -> str:
    """Return a broker's refusal in one line: its code, and its message if there is one."""
    return f"{error.message} ({error.code.name})" if error.message else error.code.name


def counted(count: int, noun: str) -> str:
    """Return a number with its noun, such as ``1 broker`` and ``3 brokers``."""
    return f"{count} {noun}{'s' if count != 1 else ''}"


def say(text: str = "") -> None:
    """Print one line of a tool's output."""
    print(text)  # noqa: T201


def _innermost(error: BaseException) -> BaseException:
    return _innermost(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error
