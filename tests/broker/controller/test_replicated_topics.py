"""Topics with three replicas on three brokers: leadership and replicas move, and records stay."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gregor.broker.metadata.state import ResourceType
from gregor.protocol.apis import ApiKey
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from gregor.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from gregor.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from gregor.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from gregor.protocol.messages.metadata import MetadataResponsePartition
from gregor.protocol.messages.unregister_broker import UnregisterBrokerRequest
from tests.broker.controller.cluster_calls import create, fetched, produce
from tests.cluster_of_processes import ClusterOfProcesses, running_cluster, until

pytestmark = pytest.mark.slow

SETTINGS = (
    "broker.session.timeout.ms=4000",
    "broker.heartbeat.interval.ms=200",
    "auto.leader.rebalance.enable=false",
)


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterOfProcesses]:
    """Provide three brokers that notice each other's death soon."""
    with running_cluster(tmp_path_factory.mktemp("replicated"), 3, *SETTINGS) as running:
        yield running


def partition(cluster: ClusterOfProcesses, topic: str, index: int) -> MetadataResponsePartition:
    """Return a partition as broker 1 sees it."""
    found = cluster.metadata(1, topic).topics[0].partitions
    return next(described for described in found if described.partition_index == index)


def elect_preferred(cluster: ClusterOfProcesses, through: int, topic: str, index: int) -> int:
    """Ask for the first replica to lead; the error code."""
    wanted = TopicPartitions(topic=topic, partitions=[index])
    with cluster.wire(through) as wire:
        answer = wire.ask(ApiKey.ELECT_LEADERS, 2, ElectLeadersRequest(topic_partitions=[wanted]))
    return int(answer.replica_election_results[0].partition_result[0].error_code)


def test_a_dead_leader_is_replaced_and_leads_again_after_a_preferred_election(cluster: ClusterOfProcesses) -> None:
    create(cluster, 1, "r", replicas=3)
    index = cluster.leaders(1, "r").index(3)
    for number in range(5):
        assert produce(cluster, 3, "r", index, b"record-%d" % number) == 0
    cluster.brokers[3].kill()
    leader = until(lambda: next((found for found in (cluster.leaders(1, "r")[index],) if found in (1, 2)), 0))
    until(lambda: produce(cluster, leader, "r", index, b"after") == 0)
    data = fetched(cluster, leader, "r", index)[1]
    assert all(value in data for value in (b"record-0", b"record-4", b"after"))
    assert partition(cluster, "r", index).offline_replicas == [3]
    assert elect_preferred(cluster, 2, "r", index) == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    cluster.brokers[3].start_again()
    until(lambda: sorted(partition(cluster, "r", index).isr_nodes) == [1, 2, 3])
    assert elect_preferred(cluster, 2, "r", index) == 0
    until(lambda: cluster.leaders(3, "r")[index] == 3)
    until(lambda: b"after" in fetched(cluster, 3, "r", index)[1])
    assert elect_preferred(cluster, 3, "r", index) == ErrorCode.ELECTION_NOT_NEEDED


def test_a_broker_in_controlled_shutdown_moves_its_leadership_first(cluster: ClusterOfProcesses) -> None:
    create(cluster, 1, "r", replicas=3)
    assert cluster.brokers[2].stop() == 0
    assert 2 not in cluster.leaders(1, "r")
    assert -1 not in cluster.leaders(1, "r")


def test_a_controller_in_controlled_shutdown_moves_its_leadership_and_brokers_keep_serving(
    cluster: ClusterOfProcesses,
) -> None:
    create(cluster, 1, "r", replicas=3)
    assert cluster.brokers[1].stop() == 0
    leaders = cluster.leaders(2, "r")
    assert set(leaders) <= {2, 3}
    for index, leader in enumerate(leaders):
        assert produce(cluster, leader, "r", index, b"without a controller") == 0
    cluster.brokers[1].start_again()
    cluster.wait_until_all_see_all()
    until(lambda: all(len(partition(cluster, "r", index).isr_nodes) == 3 for index in range(3)))


def test_an_unclean_leader_is_elected_once_its_topic_enables_unclean_elections(cluster: ClusterOfProcesses) -> None:
    create(cluster, 1, "risky", partitions=1, replicas=2, on=[2, 3])
    cluster.brokers[3].kill()
    until(lambda: partition(cluster, "risky", 0).isr_nodes == [2])
    cluster.brokers[2].kill()
    until(lambda: cluster.leaders(1, "risky") == [-1])
    cluster.brokers[3].start_again()
    until(lambda: cluster.brokers_seen_by(1) == [1, 3])
    assert cluster.leaders(1, "risky") == [-1]
    change = AlterableConfig(name="unclean.leader.election.enable", value="true")
    resource = AlterConfigsResource(resource_type=ResourceType.TOPIC, resource_name="risky", configs=[change])
    with cluster.wire(3) as wire:
        request = IncrementalAlterConfigsRequest(resources=[resource])
        assert wire.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request).responses[0].error_code == 0
    until(lambda: cluster.leaders(1, "risky") == [3])
    until(lambda: produce(cluster, 3, "risky", 0, b"at any price") == 0)


def test_a_partition_is_moved_with_its_records(cluster: ClusterOfProcesses) -> None:
    create(cluster, 1, "moving", partitions=1)
    (leader,) = cluster.leaders(1, "moving")
    assert produce(cluster, leader, "moving", 0, b"luggage") == 0
    target = leader % 3 + 1
    wanted = ReassignableTopic(name="moving", partitions=[ReassignablePartition(partition_index=0, replicas=[target])])
    with cluster.wire(3) as wire:
        request = AlterPartitionReassignmentsRequest(topics=[wanted])
        (answer,) = wire.ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, request).responses[0].partitions
        assert answer.error_code == 0
        listing = ListPartitionReassignmentsRequest(topics=None)
        until(lambda: wire.ask(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, listing).topics == [])
    until(lambda: partition(cluster, "moving", 0).replica_nodes == [target])
    until(lambda: cluster.leaders(target, "moving") == [target])
    until(lambda: b"luggage" in fetched(cluster, target, "moving", 0)[1])
    until(lambda: fetched(cluster, leader, "moving", 0)[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER)


def test_a_dead_broker_can_be_unregistered(cluster: ClusterOfProcesses) -> None:
    cluster.brokers[3].kill()
    with cluster.wire(2) as wire:
        assert wire.ask(ApiKey.UNREGISTER_BROKER, 0, UnregisterBrokerRequest(broker_id=3)).error_code == 0
        again = wire.ask(ApiKey.UNREGISTER_BROKER, 0, UnregisterBrokerRequest(broker_id=3))
    assert again.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
    assert cluster.brokers_seen_by(1) == [1, 2]
