"""Clusters of Gregor or Apache Kafka 3.9.1 on loopback, whose nodes a measurement may stop, kill and start again.

In both, the first node is the only controller and also a broker, and the others are brokers.
"""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import trio

from bench.broker_pair import BenchBroker, Kafka, gregor_command
from gregor.client.admin import Admin, NewTopic
from gregor.command_line.local_cluster import LocalCluster
from gregor.protocol.errors import BrokerError

READY_LIMIT_S = 60.0
POLL_S = 0.05
FIRST_KAFKA_PORT = 19700
KAFKA_PORTS = itertools.count(FIRST_KAFKA_PORT, 10)
"""The ports of the nodes: each node uses two, its own and the next."""


class GregorNode(BenchBroker):
    """A broker of a `gregor cluster`, as a process of its own."""

    def __init__(self, name: str, port: int, directory: Path, settings: Sequence[str]) -> None:
        super().__init__(name, port, directory)
        self._settings = settings
        directory.mkdir(parents=True)

    def command(self) -> list[str]:
        """Return the command with which `gregor cluster` starts the node."""
        return gregor_command(*self._settings)


@dataclass
class BenchCluster:
    """A running cluster; `nodes[0]` is the controller, and the id of `nodes[i]` is i + 1."""

    name: str
    nodes: list[BenchBroker]

    @property
    def bootstrap(self) -> str:
        """The value of ``bootstrap.servers`` for clients."""
        return ",".join(f"{host}:{port}" for host, port in (node.address for node in self.nodes))

    @property
    def pids(self) -> str:
        """The process ids in the format of the load driver."""
        return ",".join(str(node.pid) for node in self.nodes)

    def shared_memory_mib(self) -> float:
        """Return the memory of all nodes now, with shared pages counted once (the sum of their PSS)."""
        total_kib = 0
        for node in self.nodes:
            for line in Path(f"/proc/{node.pid}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total_kib += int(line.split()[1])
        return total_kib / 1024

    def wait_for_brokers(self) -> None:
        """Wait until clients see all nodes."""

        async def wait() -> None:
            async with Admin(self.bootstrap) as admin:
                with trio.fail_after(READY_LIMIT_S):
                    await until(self.has_all_brokers, admin)

        trio.run(wait)

    def create_topic(self, name: str, *, partitions: int, replicas: int) -> None:
        """Create a topic as soon as all brokers may have replicas of it; return when all replicas are in sync."""
        trio.run(self._create_topic, name, partitions, replicas)

    async def _create_topic(self, name: str, partitions: int, replicas: int) -> None:
        async with Admin(self.bootstrap) as admin:
            with trio.fail_after(READY_LIMIT_S):
                await until(self.has_all_brokers, admin)
                await admin.create_topics([NewTopic(name, partitions, replicas)])
                await until(self.is_in_sync, admin, name, replicas)

    async def has_all_brokers(self, admin: Admin) -> bool:
        """Return whether clients see all nodes."""
        return len((await admin.describe_cluster()).brokers) == len(self.nodes)

    @staticmethod
    async def is_in_sync(admin: Admin, name: str, replicas: int) -> bool:
        """Return whether every partition has a leader and all of its replicas are in sync."""
        try:
            (topic,) = await admin.describe_topics([name])
        except BrokerError:
            return False
        return all(p.leader is not None and len(p.in_sync_replicas) == replicas for p in topic.partitions)

    def delete_topic(self, name: str) -> None:
        """Delete a topic with its records."""

        async def delete() -> None:
            async with Admin(self.bootstrap) as admin:
                await admin.delete_topics([name])

        trio.run(delete)

    def remove(self) -> None:
        """Stop all nodes, the controller last, and delete their data."""
        for node in reversed(self.nodes):
            node.remove()


async def until(is_so: Callable[..., Awaitable[bool]], *arguments: object) -> None:
    """Wait until `is_so` returns True."""
    while not await is_so(*arguments):  # noqa: ASYNC110 (others know, who do not tell)
        await trio.sleep(POLL_S)


@contextmanager
def gregor_cluster(count: int, directory: Path, *settings: str) -> Iterator[BenchCluster]:
    """Run this checkout's brokers, on free ports, during the context."""
    plan = LocalCluster(count, directory, host="127.0.0.1", first_port=0, overrides=settings)
    ports = [int(address.rpartition(":")[2]) for address in plan.bootstrap.split(",")]
    cluster = BenchCluster(f"Gregor x {count}", [])
    try:
        for node_id, port in enumerate(ports, 1):
            node_directory = directory / f"broker-{node_id}" / "logs"
            own = [*plan.settings(node_id), f"log.dirs={node_directory}"]
            node = GregorNode(f"Gregor {node_id} of {count}", port, node_directory, own)
            cluster.nodes.append(node)
            node.start()
        yield cluster
    finally:
        cluster.remove()


@contextmanager
def kafka_cluster(count: int, *settings: str) -> Iterator[BenchCluster]:
    """Run Apache Kafka's brokers, with ../shared/peer, during the context."""
    ports = list(itertools.islice(KAFKA_PORTS, count))
    cluster = BenchCluster(f"Kafka x {count}", [])
    try:
        for node_id, port in enumerate(ports, 1):
            own = [*settings, f"node.id={node_id}", f"controller.quorum.voters=1@127.0.0.1:{ports[0] + 1}"]
            if node_id > 1:
                listener = f"PLAINTEXT://127.0.0.1:{port}"
                own += ["process.roles=broker", f"listeners={listener}", f"advertised.listeners={listener}"]
            node = Kafka(tuple(own), port=port)
            cluster.nodes.append(node)
            node.start()
        yield cluster
    finally:
        cluster.remove()
