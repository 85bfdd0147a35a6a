"""Fault rules and the clock's offset of running brokers, set, listed and cleared through an admin client."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ..broker.config.fault_keys import RULE_PREFIX
from ..broker.faults.rule_syntax import OFF, check_rule_name, parse_rule
from ..client.admin import Admin, AlterOperation, ResourceType
from ..protocol.messages.describe_configs import DescribeConfigsResourceResult

CLOCK = "gregor.fault.clock.offset.ms"
ALL_BROKERS = ""
OWN_SOURCE, CLUSTER_SOURCE = 2, 3
"""The sources of rules that can be deleted: the broker, or all brokers (DescribeConfigsResponse.ConfigSource)."""
SOURCE_NAMES = {OWN_SOURCE: "broker", CLUSTER_SOURCE: "all brokers"}
FROM_THE_START = "start"


class ListedRule(NamedTuple):
    """A rule in the configuration of a broker; the clock's offset is listed under its key."""

    broker: str
    name: str
    source: str
    text: str


async def set_rule(admin: Admin, name: str, text: str, *, target: str = ALL_BROKERS) -> None:
    """Set a rule, or replace the rule of that name. Raises FaultRuleError, BrokerError, ClientError."""
    check_rule_name(name)
    parse_rule(text)
    await admin.alter_configs(ResourceType.BROKER, target, [(AlterOperation.SET, RULE_PREFIX + name, text)])


async def set_clock_offset(admin: Admin, offset_ms: int, *, target: str = ALL_BROKERS) -> None:
    """Shift the clocks of brokers; negative is behind the right time. Raises BrokerError, ClientError."""
    await admin.alter_configs(ResourceType.BROKER, target, [(AlterOperation.SET, CLOCK, str(offset_ms))])


async def faults_of(admin: Admin, target: str) -> list[DescribeConfigsResourceResult]:
    """Return the fault rules of a broker, and the clock's offset if there is one. Raises BrokerError, ClientError."""
    return list(_faults(await admin.describe_configs(ResourceType.BROKER, target)))


async def list_rules(admin: Admin, brokers: Iterable[str]) -> list[ListedRule]:
    """Return the rules of these brokers, sorted. Raises BrokerError, ClientError."""
    rules = []
    for broker in brokers:
        for entry in await faults_of(admin, broker):
            name = entry.name.removeprefix(RULE_PREFIX)
            source = SOURCE_NAMES.get(entry.config_source, FROM_THE_START)
            rules.append(ListedRule(broker, name, source, entry.value or ""))
    return sorted(rules)


async def clear_faults(admin: Admin, wanted: Iterable[str] = (), *, broker: str | None = None) -> set[str]:
    """Clear faults by their configuration keys (all faults if none is given), and return the keys of those cleared.

    Without `broker`, those of all brokers are cleared; `ALL_BROKERS` clears those that were set for all of them.
    Raises BrokerError, ClientError.
    """
    keys = set(wanted)
    if broker is not None:
        return await _clear_of(admin, broker, keys)
    cleared = await _clear_of(admin, ALL_BROKERS, keys)
    for node in sorted((await admin.describe_cluster()).brokers):
        cleared |= await _clear_of(admin, str(node), keys)
    return cleared


async def _clear_of(admin: Admin, target: str, wanted: set[str]) -> set[str]:
    """Clear the faults of one broker, or the cluster-wide ones; return their keys."""
    changes: list[tuple[AlterOperation, str, str | None]] = []
    for entry in await faults_of(admin, target):
        if wanted and entry.name not in wanted:
            continue
        own_source = CLUSTER_SOURCE if target == ALL_BROKERS else OWN_SOURCE
        if entry.config_source == own_source:
            changes.append((AlterOperation.DELETE, entry.name, None))
        elif entry.config_source not in SOURCE_NAMES and entry.value != OFF:
            changes.append((AlterOperation.SET, entry.name, OFF if entry.name != CLOCK else "0"))
    if changes:
        await admin.alter_configs(ResourceType.BROKER, target, changes)
    return {name for _, name, _ in changes}


def _faults(entries: list[DescribeConfigsResourceResult]) -> Iterator[DescribeConfigsResourceResult]:
    for entry in entries:
        if entry.name.startswith(RULE_PREFIX) or (entry.name == CLOCK and entry.value not in (None, "0")):
            yield entry
