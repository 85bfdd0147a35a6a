"""`gregor consume`: print the records of topics as they arrive, with the options of kafka-console-consumer."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import trio

from ..client.admin.client import Admin
from ..client.config import ConsumerConfig
from ..client.consumer.consumer import Consumer
from ..client.consumer.consumer_record import ConsumerRecord
from ..client.errors import ClientError
from ..client.producer.record_checks import check_offset
from ..client.wire.cluster import TopicMetadata
from ..protocol.errors import BrokerError
from ..protocol.records.record import TimestampType
from ..protocol.topic_partition import AnyTopicPartition
from .asking import (
    TerminatedError,
    UsageError,
    add_connection_options,
    client_properties,
    parse_assignments,
    run_client,
    until_sigterm,
)
from .chosen_records import last_records, record_at

SECONDS_BETWEEN_LOOKS = 5.0
"""The interval at which a consumer without a group checks for new partitions."""

_TIMESTAMP_LABELS = {
    TimestampType.CREATE_TIME: "CreateTime",
    TimestampType.LOG_APPEND_TIME: "LogAppendTime",
    TimestampType.NO_TIMESTAMP_TYPE: "NO_TIMESTAMP",
}


EXAMPLES = """\
examples:
  gregor consume --topic orders --from-beginning
  gregor consume --topic orders -n 10
  gregor consume --topic orders --record 0:42 --property print.headers=true
  gregor consume --topic orders --group billing --timeout-ms 5000
  gregor consume --include 'orders.*' --property print.key=true --property print.timestamp=true
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the parser of this command."""
    parser = subparsers.add_parser(
        "consume",
        help="print the records of topics",
        epilog=EXAMPLES,
    )
    add_connection_options(parser, "--consumer.config", "--command-config")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--topic", help="the topic to read")
    source.add_argument("--include", metavar="REGEX", help="read all topics whose names match")
    parser.add_argument("--partition", type=int, metavar="N", help="read only this partition")
    parser.add_argument(
        "--offset", metavar="N", help="start at this offset (with --partition): a number, earliest or latest"
    )
    parser.add_argument(
        "--from-beginning", action="store_true", help="start at the first record (default: at the next new one)"
    )
    parser.add_argument("-n", "--last", type=int, metavar="N", help="print the last N records of the topic, and stop")
    parser.add_argument("--record", metavar="PARTITION:OFFSET", help="print one record, and stop")
    parser.add_argument("--group", help="consumer group to commit offsets for (default: none)")
    parser.add_argument("--max-messages", type=int, metavar="N", help="stop after this many records")
    parser.add_argument("--timeout-ms", type=int, metavar="MS", help="stop when no record has come for this time")
    parser.add_argument(
        "--isolation-level",
        choices=("read_committed", "read_uncommitted"),
        help="whether to leave out records of aborted transactions",
    )
    parser.add_argument(
        "--property",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="what to print: print.timestamp, print.partition, print.offset, print.headers, print.key, print.value, "
        "key.separator, line.separator, headers.separator, null.literal; repeatable",
    )
    parser.add_argument(
        "--consumer-property",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a consumer configuration; repeatable",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print records until interrupted, --max-messages or --timeout-ms."""

    async def work() -> None:
        printed, has_begun = 0, False
        try:
            record_format = RecordFormat.from_properties(parse_assignments(arguments.property))
            properties = _consumer_properties(arguments)
            topics = await existing_topics(arguments)
            async with (
                Consumer(arguments.bootstrap_server, **properties) as consumer,
                trio.open_nursery() as nursery,
            ):
                if arguments.last is not None or arguments.record is not None:
                    chosen = await _chosen_records(consumer, arguments, topics)
                    has_begun = True
                    printed = record_format.write_all(chosen)
                    nursery.cancel_scope.cancel()
                    return
                await _choose_records(consumer, arguments, topics, in_group="group.id" in properties)
                has_begun = True
                if arguments.partition is None and "group.id" not in properties:
                    nursery.start_soon(take_new_partitions, consumer, arguments)
                # Records count as processed once they are printed, also if SIGTERM ends the loop: the offsets behind
                # the printed records are committed when the consumer closes.
                async with until_sigterm() as loop:
                    while arguments.max_messages is None or printed < arguments.max_messages:
                        left = None if arguments.max_messages is None else arguments.max_messages - printed
                        records = await consumer.poll(arguments.timeout_ms, max_records=left)
                        if not records:
                            break
                        printed += record_format.write_all(records)
                nursery.cancel_scope.cancel()
            if loop.cancelled_caught:
                raise TerminatedError
        finally:
            if has_begun:
                print(f"Processed a total of {printed} messages", file=sys.stderr)  # noqa: T201

    return run_client(work, arguments.bootstrap_server)


async def _chosen_records(
    consumer: Consumer, arguments: argparse.Namespace, topics: list[TopicMetadata]
) -> list[ConsumerRecord]:
    """Return the records of --last or --record. Raises UsageError."""
    others = (arguments.group, arguments.offset, arguments.max_messages)
    if any(option is not None for option in others) or arguments.from_beginning:
        raise UsageError("--last and --record select the records: leave out --group, --offset and --max-messages")
    if arguments.record is not None:
        if arguments.topic is None or arguments.last is not None or arguments.partition is not None:
            raise UsageError("--record needs --topic, and neither --last nor --partition")
        return [await record_at(consumer, arguments.topic, arguments.record)]
    if arguments.last < 1:
        raise UsageError("--last must be at least 1")
    places = [place for place in _places(topics) if arguments.partition in (None, place[1])]
    if not places and arguments.partition is not None:
        raise UsageError(f"{arguments.topic} has no partition {arguments.partition}")
    return await last_records(consumer, places, arguments.last)


def _consumer_properties(arguments: argparse.Namespace) -> dict[str, Any]:
    properties = client_properties(arguments, arguments.consumer_property, client=ConsumerConfig)
    if arguments.isolation_level is not None:
        properties["isolation.level"] = arguments.isolation_level
    if arguments.group is not None:
        properties["group.id"] = arguments.group
    if "group.id" not in properties:
        # A plain read of a topic needs no group, and leaves none behind.
        properties["enable.auto.commit"] = "false"
    if arguments.from_beginning or arguments.offset == "earliest":
        properties["auto.offset.reset"] = "earliest"
    return properties


async def existing_topics(arguments: argparse.Namespace) -> list[TopicMetadata]:
    """Return the requested topics; a pattern may match none yet.

    Raises UsageError for options that contradict each other, UnknownTopicError for a name without a topic.
    """
    if arguments.partition is None and arguments.offset is not None:
        raise UsageError("--offset needs --partition")
    if arguments.partition is not None and arguments.include is not None:
        raise UsageError("--partition needs --topic")
    async with Admin(arguments.bootstrap_server, **client_properties(arguments)) as admin:
        if arguments.include is None:
            return await admin.describe_topics([arguments.topic])
        pattern = _pattern(arguments.include)
        names = [name for name in await admin.list_topics() if pattern.fullmatch(name)]
        return await admin.describe_topics(names) if names else []


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise UsageError(f"--include is not a regular expression: {error}") from None


async def take_new_partitions(consumer: Consumer, arguments: argparse.Namespace) -> None:
    """Read new partitions from their first record on, while a consumer without a group runs."""
    while True:
        await trio.sleep(SECONDS_BETWEEN_LOOKS)
        try:
            topics = await existing_topics(arguments)
        except (BrokerError, ClientError):
            continue
        known = consumer.assignment()
        if new := [place for place in _places(topics) if place not in known]:
            consumer.assign([*known, *new])
            await consumer.seek_to_beginning(*new)


def _places(topics: list[TopicMetadata]) -> list[AnyTopicPartition]:
    return [(topic.name, index) for topic in topics for index in range(len(topic.partitions))]


async def _choose_records(
    consumer: Consumer, arguments: argparse.Namespace, topics: list[TopicMetadata], *, in_group: bool
) -> None:
    if arguments.partition is None:
        if in_group:
            consumer.subscribe(_pattern(arguments.include) if arguments.include else [arguments.topic])
        else:
            consumer.assign(_places(topics))
        return
    count = len(topics[0].partitions)
    if not 0 <= arguments.partition < count:
        raise UsageError(f"{arguments.topic} has no partition {arguments.partition}: it has {count}, from 0 on")
    consumer.assign([(arguments.topic, arguments.partition)])
    if arguments.offset is not None and arguments.offset not in ("earliest", "latest"):
        try:
            offset = check_offset(int(arguments.offset))
        except ValueError:
            raise UsageError(f"--offset must be a number, earliest or latest, not {arguments.offset!r}") from None
        consumer.seek(arguments.topic, arguments.partition, offset)
    elif arguments.from_beginning or arguments.offset == "earliest":
        await consumer.seek_to_beginning()


@dataclass(frozen=True, slots=True)
class RecordFormat:
    """The printed fields of a record, as in Kafka's DefaultMessageFormatter."""

    prints_timestamp: bool = False
    prints_partition: bool = False
    prints_offset: bool = False
    prints_headers: bool = False
    prints_key: bool = False
    prints_value: bool = True
    key_separator: bytes = b"\t"
    line_separator: bytes = b"\n"
    headers_separator: bytes = b","
    null_literal: bytes = b"null"

    @classmethod
    def from_properties(cls, properties: dict[str, str]) -> RecordFormat:
        """Return the format of the --property options. Raises UsageError for an unknown one."""
        texts = {key: value.encode().decode("unicode_escape").encode() for key, value in properties.items()}

        def wanted(name: str, default: bytes = b"false") -> bool:
            return texts.pop(f"print.{name}", default).strip().lower() == b"true"

        record_format = cls(
            prints_timestamp=wanted("timestamp"),
            prints_partition=wanted("partition"),
            prints_offset=wanted("offset"),
            prints_headers=wanted("headers"),
            prints_key=wanted("key"),
            prints_value=wanted("value", b"true"),
            key_separator=texts.pop("key.separator", b"\t"),
            line_separator=texts.pop("line.separator", b"\n"),
            headers_separator=texts.pop("headers.separator", b","),
            null_literal=texts.pop("null.literal", b"null"),
        )
        if texts:
            raise UsageError(f"unknown --property {next(iter(texts))!r}")
        return record_format

    def write_all(self, records: Sequence[ConsumerRecord]) -> int:
        """Write records to standard output, and return their number."""
        for record in records:
            self.write(record, sys.stdout.buffer)
        sys.stdout.buffer.flush()
        return len(records)

    def write(self, record: ConsumerRecord, out: BinaryIO) -> None:
        """Write one record."""
        parts = []
        if self.prints_timestamp:
            label = _TIMESTAMP_LABELS[record.timestamp_type]
            has_time = record.timestamp_type is not TimestampType.NO_TIMESTAMP_TYPE
            parts.append(f"{label}:{record.timestamp}".encode() if has_time else label.encode())
        if self.prints_partition:
            parts.append(b"Partition:%d" % record.partition)
        if self.prints_offset:
            parts.append(b"Offset:%d" % record.offset)
        if self.prints_headers:
            headers = [header.key + b":" + self._text(header.value) for header in record.headers]
            parts.append(self.headers_separator.join(headers) if headers else b"NO_HEADERS")
        if self.prints_key:
            parts.append(self._text(record.key))
        if self.prints_value:
            parts.append(self._text(record.value))
        out.write(self.key_separator.join(parts) + self.line_separator)

    def _text(self, data: bytes | None) -> bytes:
        return self.null_literal if data is None else data
