"""`gregor reset`: delete all topics, groups and offsets of a running broker, for tests that begin from nothing."""

from __future__ import annotations

import argparse
import sys
import time

from ..client.admin import Admin, NewTopic, ResourceType
from ..client.wire.cluster import TopicMetadata, parse_servers
from ..protocol.errors import BrokerError, ErrorCode
from .asking import UsageError, add_connection_options, client_properties, run_client, say
from .topics import TOPIC_CONFIG_SOURCE

HERE = ("localhost", "127.0.0.1", "::1")

DESCRIPTION = """\
Delete all topics with their records, and all groups with their offsets. The broker keeps running.

  gregor reset
  gregor reset --recreate                        create the topics again, empty, with new ids
  gregor reset --bootstrap-server test-kafka:9092 --yes
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this command to the program's."""
    parser = subparsers.add_parser(
        "reset",
        help="delete all topics, groups and offsets of a test broker",
        description=DESCRIPTION,
    )
    add_connection_options(parser)
    parser.add_argument("--recreate", action="store_true", help="create the topics again, empty, with their settings")
    parser.add_argument("--yes", action="store_true", help="needed for a broker that is not at localhost")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Delete everything; the exit code is 1 if something could not be deleted."""

    is_remote = any(host not in HERE for host, _ in parse_servers(arguments.bootstrap_server))
    if is_remote and not arguments.yes:
        print(f"Error: this deletes everything at {arguments.bootstrap_server}: add --yes", file=sys.stderr)  # noqa: T201
        return 1

    async def work() -> None:
        async with Admin(arguments.bootstrap_server, **client_properties(arguments)) as admin:
            began = time.monotonic()
            topics, groups = await reset(admin, recreates=arguments.recreate)
            took_ms = (time.monotonic() - began) * 1000
            say(f"Deleted {topics} topics and {groups} groups in {took_ms:.0f} ms.")

    return run_client(work, arguments.bootstrap_server)


async def reset(admin: Admin, *, recreates: bool) -> tuple[int, int]:
    """Delete all topics and groups, and return how many of each there were.

    Raises UsageError for groups that have members, after everything else has been deleted; BrokerError, ClientError.
    """
    # A group with offsets only is deleted with the last of its topics; it is counted before that.
    groups = [group.group_id for group in await admin.list_groups()]
    names = await admin.list_topics()
    again = [await _as_new(admin, topic) for topic in await admin.describe_topics(names)] if recreates and names else []
    if names:
        await admin.delete_topics(names)
    if again:
        await admin.create_topics(again)
    active = []
    for group in groups:
        try:
            await admin.delete_groups([group])
        except BrokerError as error:
            if error.code is ErrorCode.NON_EMPTY_GROUP:
                active.append(group)
            elif error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
                raise
    if active:
        raise UsageError(f"groups with members stay: {', '.join(active)}; stop their consumers first")
    return len(names), len(groups)


async def _as_new(admin: Admin, topic: TopicMetadata) -> NewTopic:
    """Return what creates a topic again with its partitions and its own settings."""
    settings = {
        entry.name: entry.value
        for entry in await admin.describe_configs(ResourceType.TOPIC, topic.name)
        if entry.config_source == TOPIC_CONFIG_SOURCE and entry.value is not None
    }
    return NewTopic(topic.name, len(topic.partitions), len(topic.partitions[0].replicas), settings)
