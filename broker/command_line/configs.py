"""`gregor configs`: show and change the settings of topics and brokers, with the options of kafka-configs."""

from __future__ import annotations

import argparse
import re

from ...client.admin import Admin, AlterOperation, ResourceType
from ...protocol.messages.describe_configs import DescribeConfigsResourceResult
from .asking import UsageError, add_connection_options, client_properties, run_client, say

_TYPES = {
    "topics": ResourceType.TOPIC,
    "brokers": ResourceType.BROKER,
    "broker-loggers": ResourceType.BROKER_LOGGER,
}

_SOURCES = {
    1: "DYNAMIC_TOPIC_CONFIG",
    2: "DYNAMIC_BROKER_CONFIG",
    3: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    4: "STATIC_BROKER_CONFIG",
    5: "DEFAULT_CONFIG",
    6: "DYNAMIC_BROKER_LOGGER_CONFIG",
}
"""Where a value comes from (Kafka's DescribeConfigsResponse.ConfigSource)."""

_DYNAMIC_SOURCES = {1, 2, 3, 6}


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this command to the program's."""
    parser = subparsers.add_parser("configs", help="show and change settings of topics and brokers")
    add_connection_options(parser)
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--describe", dest="action", action="store_const", const="describe", help="show settings")
    action.add_argument("--alter", dest="action", action="store_const", const="alter", help="change settings")
    parser.add_argument("--entity-type", choices=sorted(_TYPES), help="what the settings belong to")
    parser.add_argument("--entity-name", help="the topic's name or the broker's id")
    parser.add_argument("--entity-default", action="store_true", help="the default of all brokers")
    parser.add_argument("--topic", help="short for --entity-type topics --entity-name")
    parser.add_argument("--broker", help="short for --entity-type brokers --entity-name")
    parser.add_argument("--all", action="store_true", help="describe all settings, not only those that were changed")
    parser.add_argument("--add-config", metavar="K=V,K=[V,V]", help="settings to make")
    parser.add_argument("--delete-config", metavar="K,K", help="settings to take back")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Do what was asked; the exit code is 1 if the broker refused."""

    async def work() -> None:
        kind, name = _entity(arguments)
        async with Admin(arguments.bootstrap_server, **client_properties(arguments)) as admin:
            if arguments.action == "alter":
                await _alter(admin, kind, name, arguments)
            elif name is None and kind is ResourceType.TOPIC:
                for topic in await admin.list_topics():
                    await _describe(admin, kind, topic, arguments)
            else:
                await _describe(admin, kind, name or "", arguments)

    return run_client(work)


def _entity(arguments: argparse.Namespace) -> tuple[ResourceType, str | None]:
    if arguments.topic is not None:
        return ResourceType.TOPIC, arguments.topic
    if arguments.broker is not None:
        return ResourceType.BROKER, arguments.broker
    if arguments.entity_type is None:
        raise UsageError("give --entity-type, or one of --topic and --broker")
    kind = _TYPES[arguments.entity_type]
    if arguments.entity_name is None and not arguments.entity_default and kind is not ResourceType.TOPIC:
        raise UsageError(f"--entity-type {arguments.entity_type} needs --entity-name or --entity-default")
    if arguments.entity_name is None and arguments.action == "alter" and kind is ResourceType.TOPIC:
        raise UsageError("--alter needs --entity-name")
    return kind, arguments.entity_name


async def _alter(admin: Admin, kind: ResourceType, name: str | None, arguments: argparse.Namespace) -> None:
    changes: list[tuple[AlterOperation, str, str | None]] = [
        (AlterOperation.SET, key, value) for key, value in parse_settings(arguments.add_config or "").items()
    ]
    deleted = [key.strip() for key in (arguments.delete_config or "").split(",") if key.strip()]
    changes += [(AlterOperation.DELETE, key, None) for key in deleted]
    if not changes:
        raise UsageError("--alter needs --add-config or --delete-config")
    await admin.alter_configs(kind, name or "", changes)
    say(f"Completed updating {_described(kind, name or '')}.")


async def _describe(admin: Admin, kind: ResourceType, name: str, arguments: argparse.Namespace) -> None:
    entries = await admin.describe_configs(kind, name)
    which = "All" if arguments.all else "Dynamic"
    say(f"{which} configs for {_described(kind, name)} are:")
    for entry in entries:
        if arguments.all or entry.config_source in _DYNAMIC_SOURCES:
            say(f"  {_line(entry)}")


def _described(kind: ResourceType, name: str) -> str:
    entity = kind.name.lower().replace("_", " ")
    return f"{entity} {name}" if name else f"default {entity}s in the cluster"


def _line(entry: DescribeConfigsResourceResult) -> str:
    synonyms = ", ".join(f"{_SOURCES.get(s.source, s.source)}:{s.name}={s.value}" for s in entry.synonyms)
    synonyms = synonyms or f"{_SOURCES.get(entry.config_source, entry.config_source)}:{entry.name}={entry.value}"
    return f"{entry.name}={entry.value} sensitive={str(entry.is_sensitive).lower()} synonyms={{{synonyms}}}"


def parse_settings(text: str) -> dict[str, str]:
    """Settings from K=V,K=[V,V]: commas inside brackets belong to the value. Raises UsageError."""
    settings = {}
    for item in re.split(r",(?![^\[]*\])", text):
        if not item.strip():
            continue
        key, equals, value = item.partition("=")
        if not equals:
            raise UsageError(f"--add-config must look like K=V,K=[V,V], not {item!r}")
        settings[key.strip()] = value.strip().removeprefix("[").removesuffix("]")
    return settings
