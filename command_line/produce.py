"""`gregor produce`: a record for each line of standard input, with the options of kafka-console-producer."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import trio

from ..client.config import ProducerConfig
from ..client.producer.appending_cy import Delivery
from ..client.producer.producer import Producer
from .asking import (
    TerminatedError,
    UsageError,
    add_connection_options,
    client_properties,
    parse_assignments,
    run_client,
    until_sigterm,
)

CHUNK_BYTES = 65_536
"""The size of one read of standard input."""
CONSOLE_LINGER_MS = 1000
"""kafka-console-producer's own default of --timeout, its linger.ms."""


EXAMPLES = """\
examples:
  gregor produce --topic orders
  gregor produce --topic orders --property parse.key=true --property key.separator=:
  gregor produce --topic orders --compression-codec zstd --sync
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the parser of this command."""
    parser = subparsers.add_parser(
        "produce",
        help="send lines from standard input as records",
        epilog=EXAMPLES,
    )
    add_connection_options(parser, "--producer.config", "--command-config")
    parser.add_argument("--topic", required=True, help="topic to send records to")
    parser.add_argument(
        "--property",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="how to parse lines: parse.key, key.separator, parse.headers, headers.delimiter, headers.separator, "
        "headers.key.separator, null.marker, ignore.error; repeatable",
    )
    parser.add_argument(
        "--producer-property",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a producer configuration; repeatable",
    )
    parser.add_argument(
        "--compression-codec",
        nargs="?",
        const="gzip",
        metavar="CODEC",
        help="none, gzip (without CODEC), snappy, lz4 or zstd",
    )
    parser.add_argument("--request-required-acks", metavar="ACKS", help="all (default), 1 or 0")
    parser.add_argument("--batch-size", type=int, metavar="BYTES", help="size of a batch")
    parser.add_argument("--timeout", type=int, metavar="MS", help="how long a batch waits for more records")
    parser.add_argument("--sync", action="store_true", help="wait for the acknowledgement of each record")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Send until the end of the input; the exit code is 1 if a record could not be sent."""

    async def work() -> None:
        line_format = LineFormat.from_properties(parse_assignments(arguments.property))
        # As Kafka's tool: neither Ctrl-C nor a line that cannot be read takes back the lines before it.
        producer = Producer(arguments.bootstrap_server, flush_on_error=True, **_producer_properties(arguments))
        async with producer, until_sigterm() as sending:
            await _send_lines(producer, arguments, line_format)
        if sending.cancelled_caught:
            raise TerminatedError

    return run_client(work, arguments.bootstrap_server, interrupts_only_waits=True)


def _producer_properties(arguments: argparse.Namespace) -> dict[str, Any]:
    properties: dict[str, Any] = {"linger.ms": str(CONSOLE_LINGER_MS)}
    for option, key in (
        ("compression_codec", "compression.type"),
        ("request_required_acks", "acks"),
        ("batch_size", "batch.size"),
        ("timeout", "linger.ms"),
    ):
        if (value := getattr(arguments, option)) is not None:
            properties[key] = str(value)
    return properties | client_properties(arguments, arguments.producer_property, client=ProducerConfig)


async def _send_lines(producer: Producer, arguments: argparse.Namespace, line_format: LineFormat) -> None:
    under_way: list[Delivery] = []
    async with aclosing(_numbered_lines()) as lines:
        async for number, line in lines:
            parsed = line_format.parse(line, number)
            # SIGTERM ends the reading, not the sending of a line that was read.
            with trio.CancelScope(shield=True):
                delivery = await producer.send(arguments.topic, parsed.value, key=parsed.key, headers=parsed.headers)
            if arguments.sync:
                await delivery
                continue
            under_way.append(delivery)
            if len(under_way) >= 10_000:
                under_way = _checked(under_way)
    await producer.flush()
    _checked(under_way)


def _checked(deliveries: list[Delivery]) -> list[Delivery]:
    """Return the pending deliveries, or raise the error of the first failed one."""
    for delivery in deliveries:
        if delivery.error is not None:
            raise delivery.error
    return [delivery for delivery in deliveries if not delivery.is_done]


async def _numbered_lines() -> AsyncGenerator[tuple[int, bytes], None]:
    number = 0
    unended: list[bytes] = []
    async with aclosing(_chunks_of_input()) as chunks:
        async for chunk in chunks:
            first, *others = chunk.split(b"\n")
            unended.append(first)
            for begun in others:
                number += 1
                yield number, b"".join(unended).removesuffix(b"\r")
                unended = [begun]
    if any(unended):
        yield number + 1, b"".join(unended).removesuffix(b"\r")


async def _chunks_of_input() -> AsyncGenerator[bytes, None]:
    """Read standard input by the file descriptor, in a thread that Ctrl-C need not wait for.

    A thread that is left in `sys.stdin.buffer` keeps its lock, which the interpreter needs at its end.
    """
    if sys.stdin is None:
        raise UsageError("standard input is closed")
    descriptor = sys.stdin.fileno()
    while chunk := await trio.to_thread.run_sync(os.read, descriptor, CHUNK_BYTES, abandon_on_cancel=True):
        yield chunk


@dataclass(frozen=True, slots=True)
class ParsedLine:
    """The record in a line of input."""

    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True)
class LineFormat:
    """The format of a line: [headers TAB] [key TAB] value, as in Kafka's LineMessageReader."""

    parses_key: bool = False
    key_separator: bytes = b"\t"
    parses_headers: bool = False
    headers_delimiter: bytes = b"\t"
    headers_separator: bytes = b","
    headers_key_separator: bytes = b":"
    null_marker: bytes | None = None
    ignores_errors: bool = False

    @classmethod
    def from_properties(cls, properties: dict[str, str]) -> LineFormat:
        """Return the format of the --property options. Raises UsageError for an unknown one."""
        texts = {key: value.encode().decode("unicode_escape").encode() for key, value in properties.items()}
        marker = texts.pop("null.marker", None)
        line_format = cls(
            parses_key=texts.pop("parse.key", b"").strip().lower() == b"true",
            key_separator=texts.pop("key.separator", b"\t"),
            parses_headers=texts.pop("parse.headers", b"").strip().lower() == b"true",
            headers_delimiter=texts.pop("headers.delimiter", b"\t"),
            headers_separator=texts.pop("headers.separator", b","),
            headers_key_separator=texts.pop("headers.key.separator", b":"),
            null_marker=marker,
            ignores_errors=texts.pop("ignore.error", b"").strip().lower() == b"true",
        )
        if texts:
            raise UsageError(f"unknown --property {next(iter(texts))!r}")
        return line_format

    def parse(self, line: bytes, number: int) -> ParsedLine:
        """Parse one line. Raises UsageError that names the line if a separator is missing."""
        headers: list[tuple[str, bytes | None]] = []
        key: bytes | None = None
        rest = line
        if self.parses_headers:
            before, rest = self._cut(rest, self.headers_delimiter, "headers delimiter", number)
            if before is not None and before != self.null_marker:
                headers = [self._header(item, number) for item in before.split(self.headers_separator)]
        if self.parses_key:
            before, rest = self._cut(rest, self.key_separator, "key separator", number)
            key = self._nullable(before) if before is not None else None
        return ParsedLine(key, self._nullable(rest), headers)

    def _cut(self, line: bytes, separator: bytes, name: str, number: int) -> tuple[bytes | None, bytes]:
        before, found, after = line.partition(separator)
        if found:
            return before, after
        if self.ignores_errors:
            return None, line
        raise UsageError(f"No {name} found on line number {number}: {line.decode(errors='replace')!r}")

    def _header(self, item: bytes, number: int) -> tuple[str, bytes | None]:
        name, value = self._cut(item, self.headers_key_separator, "header key separator", number)
        return (value.decode(), None) if name is None else (name.decode(), self._nullable(value))

    def _nullable(self, text: bytes) -> bytes | None:
        return None if self.null_marker is not None and text == self.null_marker else text
