"""The actions of the control port on the broker's topics, records, groups, faults and clock."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from ...broker.app.lifetime import BrokerLifetime
from ...broker.app.seed_lines import SeedRecord, parse_seed_line
from ...broker.config.fault_keys import RULE_PREFIX
from ...broker.faults.rule_syntax import FaultRuleError
from ...client.admin import Admin, NewTopic
from ...client.admin.topics import BROKER_DEFAULT
from ...client.producer.producer import Producer
from ..asking import UsageError
from ..fault_rules import ALL_BROKERS, CLOCK, clear_faults, faults_of, set_clock_offset, set_rule
from ..own_broker import own_broker
from ..reset import reset
from .refusals import NotFoundError, RefusedError

TOPIC_FIELDS: dict[str, tuple[type, str]] = {
    "name": (str, "a text"),
    "partitions": (int, "a number"),
    "replication": (int, "a number"),
    "configs": (dict, "an object"),
}


class Actions:
    """The actions of one broker, each through clients of its own: a restart ends the connections of older ones.

    Each method raises BrokerError or ClientError if the broker refuses or does not answer.
    """

    def __init__(self, lifetime: BrokerLifetime) -> None:
        self._lifetime = lifetime

    async def topics(self) -> dict[str, int]:
        """Return the number of partitions of each topic, internal topics left out."""
        async with self._admin() as admin:
            names = await admin.list_topics()
            found = await admin.describe_topics(names) if names else []
            return {topic.name: len(topic.partitions) for topic in found}

    async def create_topic(self, fields: Mapping[str, Any]) -> str:
        """Create a topic and return its name. Raises RefusedError for fields of a wrong name or type."""
        topic = _new_topic(fields)
        async with self._admin() as admin:
            await admin.create_topics([topic])
        return topic.name

    async def delete_topic(self, name: str) -> None:
        """Delete a topic and its records."""
        async with self._admin() as admin:
            await admin.delete_topics([name])

    async def load(self, lines: bytes, default_topic: str | None) -> int:
        """Append the records of JSON lines to topics, in the format of `gregor.load`, and return how many there were.

        Nothing is appended if a line cannot be read: RefusedError names that line.
        """
        seeds = list(_seeds(lines, default_topic))
        bootstrap_servers, properties = own_broker(self._lifetime.broker.services)
        async with Producer(bootstrap_servers, **properties) as producer:
            deliveries = [
                await producer.send(
                    seed.topic,
                    seed.record.value,
                    key=seed.record.key,
                    headers=seed.record.headers,
                    partition=seed.partition,
                    timestamp_ms=seed.record.timestamp,
                )
                for seed in seeds
            ]
            for delivery in deliveries:
                await delivery
        return len(seeds)

    async def reset(self, *, recreates: bool) -> tuple[int, int]:
        """Delete all topics and groups, and return how many of each there were. Raises RefusedError as `reset`."""
        async with self._admin() as admin:
            try:
                return await reset(admin, recreates=recreates)
            except UsageError as error:
                raise RefusedError(str(error)) from None

    async def faults(self) -> dict[str, str]:
        """Return the text of each fault rule, by name."""
        async with self._admin() as admin:
            found = await faults_of(admin, str(self._lifetime.broker.config.node_id))
            return {entry.name.removeprefix(RULE_PREFIX): entry.value or "" for entry in found if entry.name != CLOCK}

    async def set_fault(self, name: str, text: str) -> None:
        """Set a fault rule, or replace the rule of that name. Raises RefusedError."""
        if not self._lifetime.broker.config.gregor_fault_injection_enable:
            raise RefusedError("faults are off: start the broker with gregor.fault.injection.enable=true")
        async with self._admin() as admin:
            try:
                await set_rule(admin, name, text)
            except FaultRuleError as error:
                raise RefusedError(str(error)) from None

    async def clear_faults(self, names: Iterable[str] = ()) -> list[str]:
        """Clear these rules, or all rules and the clock's offset, and return the names of what was cleared.

        Raises NotFoundError if there is no rule of a name.
        """
        wanted = {RULE_PREFIX + name for name in names}
        async with self._admin() as admin:
            cleared = await clear_faults(admin, wanted)
        if missing := sorted(wanted - cleared):
            raise NotFoundError(f"there is no rule {missing[0].removeprefix(RULE_PREFIX)!r}")
        return sorted("clock" if key == CLOCK else key.removeprefix(RULE_PREFIX) for key in cleared)

    async def set_clock_offset(self, offset_ms: int) -> None:
        """Shift the broker's clock; negative is behind the right time. Raises RefusedError."""
        if not self._lifetime.broker.config.gregor_fault_injection_enable:
            raise RefusedError("faults are off: start the broker with gregor.fault.injection.enable=true")
        async with self._admin() as admin:
            await set_clock_offset(admin, offset_ms, target=ALL_BROKERS)

    @asynccontextmanager
    async def _admin(self) -> AsyncIterator[Admin]:
        bootstrap_servers, properties = own_broker(self._lifetime.broker.services)
        async with Admin(bootstrap_servers, **properties) as admin:
            yield admin


def _new_topic(fields: Mapping[str, Any]) -> NewTopic:
    for name, value in fields.items():
        if name not in TOPIC_FIELDS:
            raise RefusedError(f"unknown field {name!r}; the fields are {', '.join(TOPIC_FIELDS)}")
        kind, description = TOPIC_FIELDS[name]
        if type(value) is not kind:
            raise RefusedError(f"{name} is not {description}")
    if "name" not in fields:
        raise RefusedError("the topic's name is missing")
    configs = {key: value if isinstance(value, str) else str(value) for key, value in fields.get("configs", {}).items()}
    partitions, replication = fields.get("partitions", BROKER_DEFAULT), fields.get("replication", BROKER_DEFAULT)
    return NewTopic(fields["name"], partitions, replication, configs)


def _seeds(lines: bytes, default_topic: str | None) -> Iterable[SeedRecord]:
    now_ms = time.time_ns() // 1_000_000
    for number, line in enumerate(lines.split(b"\n"), 1):
        if line.strip():
            try:
                yield parse_seed_line(line, default_topic=default_topic, now_ms=now_ms)
            except (ValueError, RecursionError) as fault:
                raise RefusedError(f"line {number}: {fault}") from None
