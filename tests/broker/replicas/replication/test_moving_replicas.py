"""Replicas that are moved under a throttle: they wait, or continue without it; a move can be cancelled."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gregor.protocol.apis import ApiKey
from gregor.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from gregor.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from gregor.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from gregor.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from tests.broker.controller.cluster_calls import create, fetched, produce
from tests.cluster_of_processes import ClusterOfProcesses, running_cluster, until

pytestmark = pytest.mark.slow

SETTINGS = ("broker.heartbeat.interval.ms=100", "replica.fetch.max.bytes=100000", "fetch.max.bytes=100000")
TOPIC, BROKER = 2, 4
SET, DELETE = 0, 1
RECORDS = 30
LARGE = bytes(100_000)
SIDES = ["leader", "follower"]
RATES = [f"{side}.replication.throttled.rate" for side in SIDES]
REPLICAS = [f"{side}.replication.throttled.replicas" for side in SIDES]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterOfProcesses]:
    """Provide a cluster with partition `moved` on broker 2, which is too large for one Fetch."""
    with running_cluster(tmp_path, 3, *SETTINGS) as running:
        create(running, 1, "moved", on=[2])
        for _ in range(RECORDS):
            assert produce(running, 2, "moved", 0, LARGE) == 0
        yield running


def configure(cluster: ClusterOfProcesses, kind: int, name: str, values: dict[str, str | None]) -> None:
    changes = [
        AlterableConfig(name=key, config_operation=DELETE if value is None else SET, value=value)
        for key, value in values.items()
    ]
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=changes)
    with cluster.wire(1) as wire:
        answer = wire.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, IncrementalAlterConfigsRequest(resources=[resource]))
    assert answer.responses[0].error_code == 0, answer


def throttle(cluster: ClusterOfProcesses, side: str, replicas: str) -> None:
    """Throttle the move as kafka-reassign-partitions.sh --throttle does, at a rate at which it would never end."""
    for node_id in (2, 3):
        configure(cluster, BROKER, str(node_id), {f"{side}.replication.throttled.rate": "1"})
    configure(cluster, TOPIC, "moved", {f"{side}.replication.throttled.replicas": replicas})
    until(lambda: rate_of(cluster, 3, side) == rate_of(cluster, 2, side) == "1")


def rate_of(cluster: ClusterOfProcesses, node_id: int, side: str) -> str | None:
    resource = DescribeConfigsResource(resource_type=BROKER, resource_name=str(node_id), configuration_keys=None)
    with cluster.wire(node_id) as wire:
        answer = wire.ask(ApiKey.DESCRIBE_CONFIGS, 4, DescribeConfigsRequest(resources=[resource]))
    found = {entry.name: entry.value for entry in answer.results[0].configs}
    return found.get(f"{side}.replication.throttled.rate")


def stop_throttle(cluster: ClusterOfProcesses) -> None:
    for node_id in (2, 3):
        configure(cluster, BROKER, str(node_id), dict.fromkeys(RATES))
    configure(cluster, TOPIC, "moved", dict.fromkeys(REPLICAS))


def reassign(cluster: ClusterOfProcesses, replicas: list[int] | None) -> int:
    topic = ReassignableTopic(name="moved", partitions=[ReassignablePartition(partition_index=0, replicas=replicas)])
    with cluster.wire(1) as wire:
        answer = wire.ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, AlterPartitionReassignmentsRequest(topics=[topic]))
    return int(answer.responses[0].partitions[0].error_code)


def moves(cluster: ClusterOfProcesses) -> int:
    with cluster.wire(1) as wire:
        answer = wire.ask(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, ListPartitionReassignmentsRequest(topics=None))
    return len(answer.topics)


def replicas_of(cluster: ClusterOfProcesses, topic: str) -> tuple[list[int], list[int]]:
    partition = cluster.metadata(1, topic).topics[0].partitions[0]
    return sorted(partition.replica_nodes), sorted(partition.isr_nodes)


def copied_bytes(cluster: ClusterOfProcesses, node_id: int) -> int:
    folder = cluster.brokers[node_id].directory / "logs" / "moved-0"
    return sum(path.stat().st_size for path in folder.glob("*.log")) if folder.exists() else -1


@pytest.mark.parametrize("replicas", ["*", "0:2,0:3"])
@pytest.mark.parametrize("side", SIDES)
def test_a_throttled_replica_waits_and_others_do_not(cluster: ClusterOfProcesses, side: str, replicas: str) -> None:
    throttle(cluster, side, replicas)
    assert reassign(cluster, [2, 3]) == 0
    until(lambda: copied_bytes(cluster, 3) > 0)
    create(cluster, 1, "free", on=[2, 3])
    for _ in range(10):
        assert produce(cluster, 2, "free", 0, LARGE) == 0
    assert replicas_of(cluster, "free") == ([2, 3], [2, 3])
    assert copied_bytes(cluster, 3) < copied_bytes(cluster, 2) / 2
    assert replicas_of(cluster, "moved") == ([2, 3], [2])
    stop_throttle(cluster)
    until(lambda: replicas_of(cluster, "moved") == ([2, 3], [2, 3]))
    assert copied_bytes(cluster, 3) == copied_bytes(cluster, 2)


def test_in_sync_replicas_are_not_throttled(cluster: ClusterOfProcesses) -> None:
    assert reassign(cluster, [2, 3]) == 0
    until(lambda: replicas_of(cluster, "moved") == ([2, 3], [2, 3]))
    for side in SIDES:
        throttle(cluster, side, "*")
    for _ in range(10):
        assert produce(cluster, 2, "moved", 0, LARGE) == 0
    assert replicas_of(cluster, "moved") == ([2, 3], [2, 3])


def test_a_reassignment_can_be_cancelled_while_it_is_copying(cluster: ClusterOfProcesses) -> None:
    throttle(cluster, "leader", "*")
    assert reassign(cluster, [3]) == 0
    until(lambda: 0 < copied_bytes(cluster, 3) < copied_bytes(cluster, 2))
    assert moves(cluster) == 1
    assert reassign(cluster, None) == 0
    assert moves(cluster) == 0
    assert replicas_of(cluster, "moved") == ([2], [2])
    until(lambda: copied_bytes(cluster, 3) == -1)
    until(lambda: produce(cluster, 2, "moved", 0, b"still led") == 0)
    assert fetched(cluster, 2, "moved", 0)[0] == 0

    # Files that the first attempt left do not disturb another attempt, nor a reassignment that replaces it.
    assert reassign(cluster, [3]) == 0
    until(lambda: 0 < copied_bytes(cluster, 3) < copied_bytes(cluster, 2))
    assert reassign(cluster, [1]) == 0
    until(lambda: copied_bytes(cluster, 3) == -1)
    stop_throttle(cluster)
    until(lambda: replicas_of(cluster, "moved") == ([1], [1]))
    until(lambda: copied_bytes(cluster, 2) == -1)
    until(lambda: fetched(cluster, 1, "moved", 0)[0] == 0)
