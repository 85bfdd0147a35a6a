"""The common part of the tools that ask a broker: their connections and their exit codes."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import trio

from ..client.errors import ClientError
from ..protocol.errors import BrokerError
from . import INTERRUPTED
from .reaching import SECONDS_OF_PATIENCE, reach_a_broker

DEFAULT_SERVER = "localhost:9092"


class UsageError(Exception):
    """Options that are valid one by one and contradict each other."""


def add_connection_options(parser: argparse.ArgumentParser, *config_options: str) -> None:
    """Add `--bootstrap-server`, and options under these names for a file with client settings."""
    parser.add_argument(
        "--bootstrap-server",
        default=DEFAULT_SERVER,
        metavar="HOST:PORT,...",
        help="bootstrap servers (default: %(default)s)",
    )
    names = config_options or ("--command-config",)
    parser.add_argument(*names, dest="client_config", metavar="FILE", help="properties file with client configurations")


def client_properties(arguments: argparse.Namespace, assignments: list[str] | None = None) -> dict[str, Any]:
    """Return client settings from the given file and from KEY=VALUE options, which take precedence.

    Raises UsageError.
    """
    properties = read_client_properties(arguments.client_config)
    properties |= parse_assignments(assignments or [])
    return {"client.id": client_id(arguments.command)} | without_what_is_taken_care_of(properties)


def client_id(command: str) -> str:
    """Return the client.id of a command in a broker's logs, quotas and metrics."""
    return f"gregor-{command}"


def read_client_properties(path: str | None) -> dict[str, Any]:
    """Return the client settings of a properties file, none without a file. Raises UsageError."""
    if path is None:
        return {}
    try:
        lines = Path(path).read_text().splitlines()
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    properties = parse_assignments([line for line in lines if line.strip() and line.lstrip()[0] not in "#!"])
    return without_what_is_taken_care_of(properties)


def without_what_is_taken_care_of(properties: dict[str, str]) -> dict[str, Any]:
    """Return the properties without the keys of other clients that ours does not need."""
    taken = ("bootstrap.servers", "key.serializer", "value.serializer")
    return {key: value for key, value in properties.items() if key not in taken}


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
    work: Callable[[], Awaitable[None]], *bootstrap_servers: str, patience_s: float = SECONDS_OF_PATIENCE
) -> int:
    """Run a tool's trio work, as `run_tool` does, once a broker of each list of servers can be reached."""

    async def reach_then_work() -> None:
        for servers in bootstrap_servers:
            await reach_a_broker(servers, patience_s)
        await work()

    return run_tool(lambda: trio.run(reach_then_work))


def run_tool(work: Callable[[], None]) -> int:
    """Run a tool's work; turn an error into one line on standard error and an exit code."""
    try:
        work()
    except (Exception, KeyboardInterrupt, BaseExceptionGroup) as raised:
        return _exit_code(_innermost(raised))
    return 0


def _exit_code(error: BaseException) -> int:
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED
    if isinstance(error, BrokenPipeError):
        # The reader of the output has closed the pipe (`gregor consume ... | head`); the rest is discarded.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    if isinstance(error, BrokerError):
        print(f"Error: {describe_broker_error(error)}", file=sys.stderr)  # noqa: T201
        return 1
    if isinstance(error, ClientError | UsageError):
        print(f"Error: {error}", file=sys.stderr)  # noqa: T201
        return 1
    if isinstance(error, OSError) and error.strerror is not None:
        # Such as a full disk behind standard output.
        place = f"{error.filename}: " if error.filename is not None else ""
        print(f"Error: {place}{error.strerror}", file=sys.stderr)  # noqa: T201
        return 1
    raise error


def describe_broker_error(error: BrokerError) -> str:
    """Return a broker's refusal in one line: its code, and its message if there is one."""
    return f"{error.message} ({error.code.name})" if error.message else error.code.name


def say(text: str = "") -> None:
    """Print one line of a tool's output."""
    print(text)  # noqa: T201


def _innermost(error: BaseException) -> BaseException:
    return _innermost(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error
