"""Faults: the rules of the cluster's brokers, adding and removing rules, and switching them off for a while."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

from ...broker.config.fault_keys import ENABLE, RULE_PREFIX
from ...broker.faults.rule_syntax import WORDS, FaultRuleError
from ...broker.http.messages import HttpResponse
from ...client.admin import Admin, ResourceType
from ..fault_rules import ALL_BROKERS, CLUSTER_SOURCE, SOURCE_NAMES, clear_faults, list_rules, set_rule
from .site import ANY, RefusedError, Site, Visit, link

if TYPE_CHECKING:
    from .sources import Sources

MOST_REMEMBERED = 50


class SwitchedOff(NamedTuple):
    """A rule that is not in force: one to begin with, or one that the console has switched off."""

    name: str
    rule: str
    meaning: str = ""
    broker: str = ALL_BROKERS


PRESETS = (
    SwitchedOff("slow", "api=Produce,Fetch delay=50ms..200ms", "answers of Produce and Fetch are late"),
    SwitchedOff(
        "moved", "api=Produce error=NOT_LEADER_OR_FOLLOWER first=3", "three Produce requests get a stale leader"
    ),
    SwitchedOff(
        "lost-acks", "api=Produce at=answer disconnect probability=0.1", "records are stored, some answers lost"
    ),
    SwitchedOff("cut", "disconnect probability=0.05", "one request of twenty ends its connection"),
    SwitchedOff("rebalancing", "api=Heartbeat error=REBALANCE_IN_PROGRESS every=5", "groups rebalance repeatedly"),
    SwitchedOff("full-disk", "disk=append error=ENOSPC until=30s", "no append finds space for 30 seconds"),
)


def add_fault_pages(site: Site, sources: Sources) -> None:
    """Add the page about faults to the site."""
    admin = sources.admin
    switched_off = OrderedDict((preset.name, preset) for preset in PRESETS)

    @site.get("faults")
    async def show_faults(visit: Visit) -> HttpResponse:
        brokers = [str(node) for node in sorted((await admin.describe_cluster()).brokers)]
        is_enabled = await _is_enabled(admin, brokers)
        rules = await list_rules(admin, brokers) if is_enabled else []
        counts = sources.services.faults.strike_counts() if sources.services and sources.services.faults else {}
        return site.page(
            "faults.html",
            visit,
            is_enabled=is_enabled,
            brokers=brokers,
            rules=rules,
            counts=counts,
            switched_off=[rule for rule in switched_off.values() if rule.name not in {known.name for known in rules}],
            words=WORDS,
        )

    @site.post("faults")
    async def add_rule(visit: Visit) -> HttpResponse:
        name, text, broker = visit.text("name"), visit.text("rule"), visit.text("broker")
        try:
            await set_rule(admin, name, text, target=broker)
        except FaultRuleError as error:
            raise RefusedError(str(error)) from None
        return site.done(f"Rule {name} is in force.", link("faults"))

    @site.post("faults", ANY, "off")
    async def remove_rule(visit: Visit) -> HttpResponse:
        name, broker, text = visit.names[0], visit.text("broker"), visit.text("rule")
        scope = ALL_BROKERS if visit.text("source") == SOURCE_NAMES[CLUSTER_SOURCE] else broker
        removed = await clear_faults(admin, {RULE_PREFIX + name, name}, broker=scope)
        if removed and text:
            meaning = next((preset.meaning for preset in PRESETS if preset.rule == text), "")
            switched_off[name] = SwitchedOff(name, text, meaning, scope)
            while len(switched_off) > MOST_REMEMBERED:
                switched_off.popitem(last=False)
        return site.done(f"Rule {name} is off.", link("faults"))


async def _is_enabled(admin: Admin, brokers: list[str]) -> bool:
    """Return whether the first broker applies fault rules; other brokers than Gregor know no such key."""
    if not brokers:
        return False
    entries = await admin.describe_configs(ResourceType.BROKER, brokers[0])
    return any(entry.name == ENABLE and entry.value == "true" for entry in entries)
