"""A network between running brokers that is cut by fault rules, as `gregor faults` sets them, and heals."""

from __future__ import annotations

import itertools
import time

from gregor.broker.faults.rule import SPARED_CLIENT_ID
from gregor.broker.metadata.state import ResourceType
from gregor.protocol.apis import ApiKey
from gregor.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.cluster_of_processes import CONTROLLER, ClusterOfProcesses, until
from tests.wire import Wire

SETTINGS = (
    "gregor.fault.injection.enable=true",
    "broker.session.timeout.ms=4000",
    "broker.heartbeat.interval.ms=200",
    "replica.lag.time.max.ms=2000",
    "auto.leader.rebalance.enable=false",
    "offsets.topic.num.partitions=1",
)
"""Settings with which brokers soon notice an unreachable broker."""
ALL = ""
"""Value in the place of a node id, for a rule of every broker."""
DELAYS_MS = (300, 1_000, 3_000, 10_000, 30_000)
"""The delay before new rules apply, within which the brokers that will be cut off must have got the rules."""
MARGIN_S = 0.5
SET, DELETE = 0, 1
IN_FORCE = "is in force"
NUMBERS = itertools.count(1)
"""No two rules have the same name, so that each is told of once."""


class Network:
    """A network between the brokers of a cluster; its rules are set at the controller and apply there as well."""

    def __init__(self, cluster: ClusterOfProcesses) -> None:
        self._cluster = cluster
        self._rules: dict[str, str] = {}
        """The node that each rule is for, by the rule's name."""

    def cut(self, *rules: tuple[str, str], begins: str | None = None) -> None:
        """Set rules, each for one broker or `ALL`; return once all brokers know them, just before they apply.

        A slow machine needs a longer moment (``begins``).
        """
        if begins is not None:
            self._set(rules, begins)
            until(lambda: self._do_all_know(IN_FORCE))
            return
        for delay_ms in DELAYS_MS:
            self._set(rules, f"from={delay_ms}ms")
            deadline = time.monotonic() + delay_ms / 1000 + MARGIN_S
            while time.monotonic() < deadline:
                if self._do_all_know(IN_FORCE):
                    return
                time.sleep(0.01)
            self.heal()
        raise AssertionError(f"not all brokers hear of {rules} in time")

    def _set(self, rules: tuple[tuple[str, str], ...], begins: str) -> None:
        for node, text in rules:
            name = f"cut-{next(NUMBERS)}"
            self._rules[name] = node
            self._alter(node, name, SET, f"{text} {begins}")

    def isolate(self, node_id: int, action: str) -> None:
        """Cut one broker off from all others; it may be the controller, and clients still reach it."""
        self.cut((ALL, f"isolate={node_id} {action}"))

    def part(self, one: int, other: int, action: str) -> None:
        """Cut two brokers off from each other only."""
        self.cut((str(one), f"broker={other} {action}"), (str(other), f"broker={one} {action}"))

    def heal(self) -> None:
        """Remove all rules; return once all brokers with rules know that."""
        for name, node in self._rules.items():
            self._alter(node, name, DELETE, None)
        until(lambda: self._do_all_know("has ended", but_who_does_not=IN_FORCE))
        self._rules.clear()

    def _do_all_know(self, what: str, *, but_who_does_not: str | None = None) -> bool:
        """Return whether all brokers that answer report each of their rules."""
        for name, node in self._rules.items():
            for node_id, broker in self._cluster.brokers.items():
                told = broker.output() if node in (ALL, str(node_id)) else None
                if told is None or (but_who_does_not and f"fault rule {name} {but_who_does_not}" not in told):
                    continue
                if f"fault rule {name} {what}" not in told:
                    return False
        return True

    def _alter(self, node: str, name: str, operation: int, text: str | None) -> None:
        change = AlterableConfig(name=f"gregor.fault.rule.{name}", config_operation=operation, value=text)
        resource = AlterConfigsResource(resource_type=ResourceType.BROKER, resource_name=node, configs=[change])
        with Wire(self._cluster.brokers[CONTROLLER].address, client_id=SPARED_CLIENT_ID) as wire:
            request = IncrementalAlterConfigsRequest(resources=[resource])
            answer = wire.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request).responses[0]
        assert answer.error_code == 0, answer.error_message
