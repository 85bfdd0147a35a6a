"""A network between running brokers that is cut by fault rules, as `gregor faults` sets them, and heals."""

from __future__ import annotations

import itertools

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
    "broker.session.timeout.ms=1500",
    "broker.heartbeat.interval.ms=200",
    "replica.lag.time.max.ms=2000",
    "log.retention.ms=-1",
    "auto.leader.rebalance.enable=false",
    "offsets.topic.num.partitions=1",
)
"""What makes brokers notice soon that somebody is gone."""
ALL = ""
"""In the place of a node id: a rule of every broker."""
BEGINS = "from=300ms"
"""Whoever is to be cut off must have heard of it."""
SET, DELETE = 0, 1
NUMBERS = itertools.count(1)
"""No two rules have the same name, so that each is told of once."""


class Network:
    """What lies between the brokers of a cluster. Its rules are set at the controller, which is never spared itself."""

    def __init__(self, cluster: ClusterOfProcesses) -> None:
        self._cluster = cluster
        self._rules: dict[str, str] = {}
        """The node that each rule is for, by the rule's name."""

    def cut(self, *rules: tuple[str, str], begins: str = BEGINS) -> None:
        """Set rules, each for one broker or `ALL`; returns once they know them, a moment before they strike."""
        for node, text in rules:
            name = f"cut-{next(NUMBERS)}"
            self._rules[name] = node
            self._alter(node, name, SET, f"{text} {begins}")
        self._wait_until_all_know("is in force")

    def isolate(self, node_id: int, action: str) -> None:
        """Cut one broker off from all others, for which it may be the controller; clients reach it."""
        self.cut((ALL, f"isolate={node_id} {action}"))

    def part(self, one: int, other: int, action: str) -> None:
        """Cut two brokers off from each other only."""
        self.cut((str(one), f"broker={other} {action}"), (str(other), f"broker={one} {action}"))

    def heal(self) -> None:
        """Take all rules back; returns once those who were cut off have found out."""
        for name, node in self._rules.items():
            self._alter(node, name, DELETE, None)
        self._wait_until_all_know("has ended")
        self._rules.clear()

    def _wait_until_all_know(self, what: str) -> None:
        for name, node in self._rules.items():
            told = f"fault rule {name} {what}"
            for node_id, broker in self._cluster.brokers.items():
                if node in (ALL, str(node_id)):
                    until(lambda broker=broker, told=told: told in broker.output())  # type: ignore[misc]

    def _alter(self, node: str, name: str, operation: int, text: str | None) -> None:
        change = AlterableConfig(name=f"gregor.fault.rule.{name}", config_operation=operation, value=text)
        resource = AlterConfigsResource(resource_type=ResourceType.BROKER, resource_name=node, configs=[change])
        with Wire(self._cluster.brokers[CONTROLLER].address, client_id=SPARED_CLIENT_ID) as wire:
            request = IncrementalAlterConfigsRequest(resources=[resource])
            answer = wire.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request).responses[0]
        assert answer.error_code == 0, answer.error_message
