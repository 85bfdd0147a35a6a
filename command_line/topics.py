"""`gregor topics`: create, list, describe, grow and delete topics, with the options of kafka-topics."""

from __future__ import annotations

import argparse
import re
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Mapping
from uuid import UUID

from ..client.admin import BROKER_DEFAULT, Admin, NewTopic, ResourceType
from ..client.wire.cluster import PartitionMetadata, TopicMetadata
from ..protocol.errors import BrokerError, ErrorCode
from .asking import (
    UsageError,
    add_actions,
    add_connection_options,
    add_json_option,
    client_properties,
    parse_assignments,
    run_client,
    say,
    say_json,
)
from .conversion_forecast import forecast

TOPIC_CONFIG_SOURCE = 1
"""DescribeConfigs' source number of values that were set for the topic itself (DYNAMIC_TOPIC_CONFIG)."""


EXAMPLES = """\
examples:
  gregor topics --create --topic orders --partitions 3 --config retention.ms=3600000
  gregor topics --list
  gregor topics --describe --topic 'orders.*' --json
  gregor topics --describe --down-conversion --topic orders
  gregor topics --alter --topic orders --partitions 6
  gregor topics --delete --topic orders
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the parser of this command."""
    parser = subparsers.add_parser(
        "topics",
        help="create, list, describe, alter and delete topics",
        epilog=EXAMPLES,
    )
    add_connection_options(parser)
    add_json_option(parser)
    add_actions(
        parser,
        {
            "create": "create a topic",
            "delete": "delete a topic",
            "describe": "show partitions, leaders and configurations of topics",
            "list": "list the names of topics",
            "alter": "add partitions to a topic",
        },
    )
    parser.add_argument("--topic", help="name of the topic; a regular expression except with --create")
    parser.add_argument("--partitions", type=int, default=BROKER_DEFAULT, metavar="N", help="number of partitions")
    parser.add_argument(
        "--replication-factor", type=int, default=BROKER_DEFAULT, metavar="N", help="replicas of each partition"
    )
    parser.add_argument(
        "--replica-assignment", metavar="0:1,1:2", help="brokers of each partition, instead of the two counts"
    )
    parser.add_argument(
        "--config",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a configuration of the new topic; repeatable",
    )
    parser.add_argument("--if-exists", action="store_true", help="do nothing if the topic does not exist")
    parser.add_argument("--if-not-exists", action="store_true", help="do nothing if the topic exists already")
    parser.add_argument("--exclude-internal", action="store_true", help="leave out topics like __consumer_offsets")
    parser.add_argument(
        "--topics-with-overrides", action="store_true", help="describe only topics with configurations of their own"
    )
    parser.add_argument(
        "--unavailable-partitions", action="store_true", help="describe only partitions without a leader"
    )
    parser.add_argument(
        "--under-replicated-partitions", action="store_true", help="describe only partitions with a replica out of sync"
    )
    parser.add_argument(
        "--down-conversion",
        action="store_true",
        help="with --describe: estimate what old consumers of the topics would cost, from samples",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the action; the exit code is 1 if the broker refused."""

    async def work() -> None:
        if arguments.action in ("create", "delete", "alter") and not arguments.topic:
            raise UsageError(f"--{arguments.action} needs --topic")
        if arguments.down_conversion and arguments.action != "describe":
            raise UsageError("--down-conversion is for --describe")
        async with Admin(arguments.bootstrap_server, **client_properties(arguments)) as admin:
            await _ACTIONS[arguments.action](admin, arguments)

    return run_client(work, arguments.bootstrap_server)


async def _create(admin: Admin, arguments: argparse.Namespace) -> None:
    topic = NewTopic(
        arguments.topic,
        arguments.partitions,
        arguments.replication_factor,
        parse_assignments(arguments.config),
        _replica_assignments(arguments.replica_assignment),
    )
    try:
        await admin.create_topics([topic])
    except BrokerError as error:
        if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS or not arguments.if_not_exists:
            raise
    else:
        say(f"Created topic {arguments.topic}.")


async def _delete(admin: Admin, arguments: argparse.Namespace) -> None:
    await admin.delete_topics(await _matching(admin, arguments))


async def _list(admin: Admin, arguments: argparse.Namespace) -> None:
    names = await _matching(admin, arguments)
    if arguments.json:
        say_json(names)
        return
    for name in names:
        say(name)


async def _alter(admin: Admin, arguments: argparse.Namespace) -> None:
    if arguments.partitions == BROKER_DEFAULT:
        raise UsageError("--alter needs --partitions")
    for name in await _matching(admin, arguments):
        await admin.create_partitions(name, arguments.partitions)


async def _describe(admin: Admin, arguments: argparse.Namespace) -> None:
    names = await _matching(admin, arguments)
    shows_partitions_only = arguments.unavailable_partitions or arguments.under_replicated_partitions
    objects: list[dict[str, object]] = []
    for topic in await admin.describe_topics(names):
        if arguments.down_conversion:
            found = await forecast(admin, topic)
            objects.append(found.as_object())
            for line in () if arguments.json else found.lines():
                say(line)
            continue
        configs = {
            entry.name: entry.value
            for entry in await admin.describe_configs(ResourceType.TOPIC, topic.name)
            if entry.config_source == TOPIC_CONFIG_SOURCE
        }
        if arguments.topics_with_overrides and not configs:
            continue
        if arguments.json:
            objects.append(_as_object(topic, configs, arguments))
            continue
        overrides = [f"{key}={value}" for key, value in configs.items()]
        if not shows_partitions_only:
            say(
                f"Topic: {topic.name}\tTopicId: {topic_id_text(topic.topic_id)}"
                f"\tPartitionCount: {len(topic.partitions)}"
                f"\tReplicationFactor: {len(topic.partitions[0].replicas)}\tConfigs: {','.join(overrides)}"
            )
        if not arguments.topics_with_overrides:
            _describe_partitions(topic, arguments)

    if arguments.json:
        say_json(objects)


def _as_object(
    topic: TopicMetadata, configs: Mapping[str, str | None], arguments: argparse.Namespace
) -> dict[str, object]:
    return {
        "topic": topic.name,
        "topic_id": topic_id_text(topic.topic_id),
        "partition_count": len(topic.partitions),
        "replication_factor": len(topic.partitions[0].replicas),
        "configs": configs,
        "partitions": [
            {
                "partition": partition.index,
                "leader": partition.leader,
                "replicas": partition.replicas,
                "isr": partition.in_sync_replicas,
            }
            for partition in _chosen_partitions(topic, arguments)
        ],
    }


def _chosen_partitions(topic: TopicMetadata, arguments: argparse.Namespace) -> Iterator[PartitionMetadata]:
    for partition in topic.partitions:
        if arguments.unavailable_partitions and partition.leader is not None:
            continue
        if arguments.under_replicated_partitions and len(partition.in_sync_replicas) >= len(partition.replicas):
            continue
        yield partition


def _describe_partitions(topic: TopicMetadata, arguments: argparse.Namespace) -> None:
    for partition in _chosen_partitions(topic, arguments):
        say(
            f"\tTopic: {topic.name}\tPartition: {partition.index}"
            f"\tLeader: {'none' if partition.leader is None else partition.leader}"
            f"\tReplicas: {_joined(partition.replicas)}\tIsr: {_joined(partition.in_sync_replicas)}"
        )


async def _matching(admin: Admin, arguments: argparse.Namespace) -> list[str]:
    """Return the names of the topics that --topic matches.

    Raises UsageError without any, unless --if-exists is given.
    """
    names = await admin.list_topics(include_internal=not arguments.exclude_internal)
    if arguments.topic is None:
        return names
    try:
        pattern = re.compile(arguments.topic)
    except re.error as error:
        raise UsageError(f"--topic is not a regular expression: {error}") from error
    matching = [name for name in names if pattern.fullmatch(name)]
    if not matching and arguments.action != "list" and not arguments.if_exists:
        raise UsageError(f"Topic '{arguments.topic}' does not exist as expected")
    return matching


def topic_id_text(topic_id: UUID) -> str:
    """Return a topic id as Kafka prints it: URL-safe base 64 without padding."""
    return urlsafe_b64encode(topic_id.bytes).rstrip(b"=").decode()


def _replica_assignments(text: str | None) -> list[list[int]]:
    if text is None:
        return []
    try:
        return [[int(broker) for broker in brokers.split(":")] for brokers in text.split(",")]
    except ValueError:
        raise UsageError(f"--replica-assignment must look like 0:1,1:2, not {text!r}") from None


def _joined(nodes: list[int]) -> str:
    return ",".join(map(str, nodes))


_ACTIONS = {"create": _create, "delete": _delete, "list": _list, "alter": _alter, "describe": _describe}
