"""Several brokers as a user starts them: processes of their own, the first of which is the controller too."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias, TypeVar

from gregor.protocol.apis import ApiKey
from gregor.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tests.broker_process import KEEPS_OLD_RECORDS, BrokerProcess, spawn_broker, wait_until_it_answers
from tests.free_ports import free_address
from tests.waiting import PATIENCE_S
from tests.wire import Wire

CONTROLLER = 1
NODE_ID = "{node.id}"
"""Text in a setting of all brokers that stands for the id of each."""
Found = TypeVar("Found")
OwnSettings: TypeAlias = Callable[[int, tuple[str, int]], list[str]]
"""Function that returns the settings of one node, from its id and address; by default node 1 is the controller."""


class ClusterOfProcesses:
    """A set of running brokers by node id; each may be killed, stopped and started again (`BrokerProcess`)."""

    def __init__(self, directory: Path, count: int, *overrides: str, own_settings: OwnSettings | None = None) -> None:
        addresses = [free_address() for _ in range(count + 1)]
        self.controller_address = addresses.pop()
        self.brokers: dict[int, BrokerProcess] = {}
        for node_id, address in enumerate(addresses, CONTROLLER):
            home = directory / f"broker-{node_id}"
            home.mkdir(parents=True)
            own = (own_settings or self._settings)(node_id, address)
            shared = (override.replace(NODE_ID, str(node_id)) for override in overrides)
            settings = (KEEPS_OLD_RECORDS, *shared, f"node.id={node_id}", *own)
            self.brokers[node_id] = BrokerProcess(spawn_broker(address, home, settings), address, home, settings)

    def _settings(self, node_id: int, address: tuple[str, int]) -> list[str]:
        controller = f"{self.controller_address[0]}:{self.controller_address[1]}"
        settings = [
            f"controller.quorum.voters={CONTROLLER}@{controller}",
            "controller.listener.names=CONTROLLER",
            "process.roles=broker",
        ]
        if node_id == CONTROLLER:
            listeners = f"listeners=PLAINTEXT://{address[0]}:{address[1]},CONTROLLER://{controller}"
            settings += ["process.roles=broker,controller", listeners]
        return settings

    @property
    def bootstrap(self) -> str:
        """Return the address for ``bootstrap.servers`` of clients."""
        return ",".join(broker.bootstrap for broker in self.brokers.values())

    def wire(self, node_id: int) -> Wire:
        """Return a connection to one broker. Raises ConnectionError for -1, the leader of a partition without one."""
        if node_id not in self.brokers:
            raise ConnectionError(f"there is no broker {node_id}")
        return Wire(self.brokers[node_id].address)

    def metadata(self, node_id: int, *topics: str) -> MetadataResponse:
        """Return one broker's metadata of these topics, or of all; create no topic."""
        wanted = [MetadataRequestTopic(name=name) for name in topics] if topics else None
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
        with self.wire(node_id) as wire:
            answer = wire.ask(ApiKey.METADATA, 12, request)
        assert isinstance(answer, MetadataResponse)
        return answer

    def leaders(self, node_id: int, topic: str) -> list[int]:
        """Return the leader of each partition of a topic as one broker sees it, -1 for none."""
        partitions = self.metadata(node_id, topic).topics[0].partitions
        return [found.leader_id for found in sorted(partitions, key=lambda found: found.partition_index)]

    def brokers_seen_by(self, node_id: int) -> list[int]:
        """Return the node ids of the brokers in one broker's metadata."""
        return sorted(broker.node_id for broker in self.metadata(node_id).brokers)

    def wait_until_all_see_all(self) -> None:
        """Return once the metadata of each running broker has all running brokers."""
        running = sorted(node_id for node_id, broker in self.brokers.items() if broker.process.poll() is None)
        for node_id in running:
            until(lambda node_id=node_id: self.brokers_seen_by(node_id) == running)  # type: ignore[misc]

    def output(self) -> str:
        """Return the output of all brokers."""
        return "\n".join(f"--- broker {node_id}\n{broker.output()}" for node_id, broker in self.brokers.items())


@contextlib.contextmanager
def running_cluster(
    directory: Path, count: int, *overrides: str, own_settings: OwnSettings | None = None
) -> Iterator[ClusterOfProcesses]:
    """Provide a cluster for the length of a block, ready for clients; brokers still running must then end well."""
    cluster = ClusterOfProcesses(directory, count, *overrides, own_settings=own_settings)
    try:
        for broker in cluster.brokers.values():
            wait_until_it_answers(broker)
        cluster.wait_until_all_see_all()
        yield cluster
        for broker in reversed(cluster.brokers.values()):
            if broker.process.poll() is None:
                assert broker.stop() == 0, broker.output()
    except BaseException:
        print(cluster.output())
        raise
    finally:
        for broker in cluster.brokers.values():
            if broker.process.poll() is None:
                broker.kill()


def until(true: Callable[[], Found]) -> Found:
    """Call a function until its result is true, and return the result; OSError and AssertionError are retried."""
    deadline = time.monotonic() + PATIENCE_S
    trouble: Exception | None = None
    while time.monotonic() < deadline:
        try:
            if found := true():
                return found
            trouble = None
        except (OSError, AssertionError) as error:
            trouble = error
        time.sleep(0.05)
    raise AssertionError(f"not within {PATIENCE_S} s") from trouble
