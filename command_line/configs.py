"""`gregor configs`: show and change settings of topics, brokers and groups, and quotas, with kafka-configs' options."""

from __future__ import annotations

import argparse
import re

from ..client.admin import Admin, AlterOperation, ResourceType
from ..client.admin.quotas import ANY_NAME
from ..protocol.messages.describe_configs import DescribeConfigsResourceResult
from .asking import (
    UsageError,
    add_actions,
    add_connection_options,
    add_json_option,
    client_properties,
    run_client,
    say,
    say_json,
)
from .named_brokers import check_brokers
from .quota_configs import ENTITY_KEYS, alter_quotas, describe_quotas

_TYPES = {
    "topics": ResourceType.TOPIC,
    "brokers": ResourceType.BROKER,
    "broker-loggers": ResourceType.BROKER_LOGGER,
    "groups": ResourceType.GROUP,
}

_SOURCES = {
    1: "DYNAMIC_TOPIC_CONFIG",
    2: "DYNAMIC_BROKER_CONFIG",
    3: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    4: "STATIC_BROKER_CONFIG",
    5: "DEFAULT_CONFIG",
    6: "DYNAMIC_BROKER_LOGGER_CONFIG",
    8: "DYNAMIC_GROUP_CONFIG",
}
"""The source of a value (Kafka's DescribeConfigsResponse.ConfigSource)."""

_DYNAMIC_SOURCES = {1, 2, 3, 6, 8}


EXAMPLES = """\
examples:
  gregor configs --describe --topic orders --all
  gregor configs --alter --topic orders --add-config retention.ms=3600000
  gregor configs --alter --broker 1 --delete-config log.retention.ms
  gregor configs --alter --entity-type clients --entity-name shipper --add-config producer_byte_rate=1048576
  gregor configs --describe --entity-type users
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the parser of this command."""
    parser = subparsers.add_parser(
        "configs",
        help="show and change configurations of topics, brokers, users and clients",
        epilog=EXAMPLES,
    )
    add_connection_options(parser)
    add_json_option(parser)
    add_actions(parser, {"describe": "show configurations", "alter": "change configurations"})
    parser.add_argument(
        "--entity-type",
        action="append",
        default=[],
        choices=sorted([*_TYPES, *ENTITY_KEYS]),
        help="type of the entity; users and clients may be combined",
    )
    parser.add_argument(
        "--entity-name", action="append", default=[], help="name of the topic or id of the broker; one for each type"
    )
    parser.add_argument("--entity-default", action="store_true", help="the default of all entities of the type")
    parser.add_argument("--topic", help="short for --entity-type topics --entity-name")
    parser.add_argument("--broker", help="short for --entity-type brokers --entity-name")
    for kind, key in ENTITY_KEYS.items():
        parser.add_argument(
            f"--{kind.removesuffix('s')}", dest=key, help=f"short for --entity-type {kind}, with a name"
        )
    parser.add_argument(
        "--all", action="store_true", help="describe all configurations, not only those that were changed"
    )
    parser.add_argument("--add-config", metavar="K=V,K=[V,V]", help="configurations to set")
    parser.add_argument("--delete-config", metavar="K,K", help="configurations to remove")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the action; the exit code is 1 if the broker refused."""

    async def work() -> None:
        quota_entity = _quota_entity(arguments)
        async with Admin(arguments.bootstrap_server, **client_properties(arguments)) as admin:
            if quota_entity is not None and arguments.action == "alter":
                await alter_quotas(admin, quota_entity, *_changes(arguments))
            elif quota_entity is not None:
                await describe_quotas(admin, quota_entity, as_json=arguments.json)
            else:
                await _configure(admin, arguments)

    return run_client(work, arguments.bootstrap_server)


def _quota_entity(arguments: argparse.Namespace) -> dict[str, str | None] | None:
    """Return the entity of quotas, None if the options name none. Raises UsageError."""
    named = {key: getattr(arguments, key) for key in ENTITY_KEYS.values() if getattr(arguments, key) is not None}
    kinds = [kind for kind in arguments.entity_type if kind in ENTITY_KEYS]
    if kinds and len(kinds) < len(arguments.entity_type):
        raise UsageError("quotas are of users, clients and ips alone")
    entity: dict[str, str | None] = dict(named)
    names = list(arguments.entity_name)
    for kind in kinds:
        if names:
            entity[ENTITY_KEYS[kind]] = names.pop(0)
        elif arguments.entity_default:
            entity[ENTITY_KEYS[kind]] = None
        elif arguments.action == "describe":
            entity[ENTITY_KEYS[kind]] = ANY_NAME
        else:
            raise UsageError(f"--entity-type {kind} needs --entity-name or --entity-default")
    return entity or None


def _changes(arguments: argparse.Namespace) -> tuple[dict[str, str], list[str]]:
    """Return the settings to set and the keys to delete. Raises UsageError without either."""
    settings = parse_settings(arguments.add_config or "")
    deleted = [key.strip() for key in (arguments.delete_config or "").split(",") if key.strip()]
    if not settings and not deleted:
        raise UsageError("--alter needs --add-config or --delete-config")
    return settings, deleted


async def _configure(admin: Admin, arguments: argparse.Namespace) -> None:
    kind, name = _entity(arguments)
    if kind in (ResourceType.BROKER, ResourceType.BROKER_LOGGER) and name:
        if not name.isdecimal():
            raise UsageError(f"the name of a broker is its id, a number, not {name!r}")
        await check_brokers(admin, "--broker", [int(name)])
    if arguments.action == "alter":
        await _alter(admin, kind, name, arguments)
    elif name is None and kind is ResourceType.TOPIC:
        if arguments.json:
            say_json([await _described_json(admin, kind, topic, arguments) for topic in await admin.list_topics()])
            return
        for topic in await admin.list_topics():
            await _describe(admin, kind, topic, arguments)
    else:
        await _describe(admin, kind, name or "", arguments)


def _entity(arguments: argparse.Namespace) -> tuple[ResourceType, str | None]:
    if arguments.topic is not None:
        return ResourceType.TOPIC, arguments.topic
    if arguments.broker is not None:
        return ResourceType.BROKER, arguments.broker
    if len(arguments.entity_type) != 1 or len(arguments.entity_name) > 1:
        raise UsageError("give one --entity-type, or one of --topic and --broker")
    (entity_type,) = arguments.entity_type
    name = arguments.entity_name[0] if arguments.entity_name else None
    kind = _TYPES[entity_type]
    if name is None and not arguments.entity_default and kind is not ResourceType.TOPIC:
        raise UsageError(f"--entity-type {entity_type} needs --entity-name or --entity-default")
    if name is None and arguments.action == "alter" and kind is ResourceType.TOPIC:
        raise UsageError("--alter needs --entity-name")
    return kind, name


async def _alter(admin: Admin, kind: ResourceType, name: str | None, arguments: argparse.Namespace) -> None:
    settings, deleted = _changes(arguments)
    if deleted:
        entries = await admin.describe_configs(kind, name or "")
        present = {entry.name for entry in entries if entry.config_source in _DYNAMIC_SOURCES}
        missing = [key for key in deleted if key not in present]
        if missing:
            raise UsageError(f"Invalid config(s): {','.join(missing)}")
    changes: list[tuple[AlterOperation, str, str | None]] = [
        (AlterOperation.SET, key, value) for key, value in settings.items()
    ]
    changes += [(AlterOperation.DELETE, key, None) for key in deleted]
    await admin.alter_configs(kind, name or "", changes)
    say(f"Completed updating {_described(kind, name or '')}.")


async def _describe(admin: Admin, kind: ResourceType, name: str, arguments: argparse.Namespace) -> None:
    if arguments.json:
        say_json([await _described_json(admin, kind, name, arguments)])
        return
    entries = await admin.describe_configs(kind, name)
    which = "All" if arguments.all else "Dynamic"
    say(f"{which} configs for {_described(kind, name)} are:")
    for entry in entries:
        if arguments.all or entry.config_source in _DYNAMIC_SOURCES:
            say(f"  {_line(entry)}")


async def _described_json(
    admin: Admin, kind: ResourceType, name: str, arguments: argparse.Namespace
) -> dict[str, object]:
    configs = [
        {
            "name": entry.name,
            "value": entry.value,
            "source": _SOURCES.get(entry.config_source, str(entry.config_source)),
            "sensitive": entry.is_sensitive,
            "read_only": entry.read_only,
        }
        for entry in await admin.describe_configs(kind, name)
        if arguments.all or entry.config_source in _DYNAMIC_SOURCES
    ]
    return {"entity_type": kind.name.lower(), "entity_name": name, "configs": configs}


def _described(kind: ResourceType, name: str) -> str:
    entity = kind.name.lower().replace("_", " ")
    return f"{entity} {name}" if name else f"default {entity}s in the cluster"


def _line(entry: DescribeConfigsResourceResult) -> str:
    value = _shown(entry.value)
    synonyms = ", ".join(f"{_SOURCES.get(s.source, s.source)}:{s.name}={_shown(s.value)}" for s in entry.synonyms)
    synonyms = synonyms or f"{_SOURCES.get(entry.config_source, entry.config_source)}:{entry.name}={value}"
    return f"{entry.name}={value} sensitive={str(entry.is_sensitive).lower()} synonyms={{{synonyms}}}"


def _shown(value: str | None) -> str:
    """Return a value as Kafka's tool prints it: brokers never send secrets."""
    return "null" if value is None else value


def parse_settings(text: str) -> dict[str, str]:
    """Parse K=V,K=[V,V]; commas inside brackets belong to the value. Raises UsageError."""
    settings = {}
    for item in re.split(r",(?![^\[]*\])", text):
        if not item.strip():
            continue
        key, equals, value = item.partition("=")
        if not equals:
            raise UsageError(f"--add-config must look like K=V,K=[V,V], not {item!r}")
        settings[key.strip()] = value.strip().removeprefix("[").removesuffix("]")
    return settings
