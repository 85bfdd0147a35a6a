"""Three brokers as three processes: their metadata, their answers, and the death of one of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from gregor.protocol.apis import ApiKey
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from gregor.protocol.messages.describe_cluster import DescribeClusterRequest
from gregor.protocol.messages.describe_quorum import DescribeQuorumRequest, PartitionData, TopicData
from tests.broker.controller.cluster_calls import create, fetched, produce
from tests.broker_process import BrokerProcess, spawn_broker
from tests.cluster_of_processes import ClusterOfProcesses, running_cluster, until
from tests.free_ports import free_address

pytestmark = pytest.mark.slow

SESSION = ("broker.session.timeout.ms=4000", "broker.heartbeat.interval.ms=200")
"""A dead broker is noticed soon, and one that stood still for a moment is not taken for one."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterOfProcesses]:
    """Provide a cluster for tests that change no broker."""
    with running_cluster(tmp_path_factory.mktemp("three"), 3) as running:
        yield running


@pytest.fixture
def mortal_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterOfProcesses]:
    """Provide a cluster for tests that kill brokers."""
    with running_cluster(tmp_path_factory.mktemp("mortal"), 3, *SESSION) as running:
        yield running


@pytest.mark.parametrize("through", [1, 2, 3])
def test_a_topic_is_created_through_any_broker_and_spread_over_all(cluster: ClusterOfProcesses, through: int) -> None:
    name = f"through-{through}"
    create(cluster, through, name, partitions=6)
    seen = [cluster.leaders(node_id, name) for node_id in cluster.brokers]
    assert seen[0] == seen[1] == seen[2]
    assert sorted(seen[0]) == [1, 1, 2, 2, 3, 3]


def test_every_broker_reports_the_same_brokers_and_controller(cluster: ClusterOfProcesses) -> None:
    ports = sorted(broker.address[1] for broker in cluster.brokers.values())
    for node_id in cluster.brokers:
        answer = cluster.metadata(node_id)
        assert sorted(broker.port for broker in answer.brokers) == ports
        assert answer.controller_id == 1
        with cluster.wire(node_id) as wire:
            described = wire.ask(ApiKey.DESCRIBE_CLUSTER, 1, DescribeClusterRequest())
        assert described.cluster_id == answer.cluster_id
        assert sorted(broker.port for broker in described.brokers) == ports


def test_produce_and_fetch_at_a_non_leader_get_not_leader_or_follower(cluster: ClusterOfProcesses) -> None:
    create(cluster, 1, "wrong")
    leader = cluster.leaders(1, "wrong")[0]
    for node_id in cluster.brokers:
        expected = ErrorCode.NONE if node_id == leader else ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert produce(cluster, node_id, "wrong", 0, b"x") == expected
        assert fetched(cluster, node_id, "wrong", 0)[0] == expected
    assert produce(cluster, leader, "wrong", 99, b"x") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_an_error_of_the_controller_is_returned_by_the_broker_that_forwards_the_request(
    cluster: ClusterOfProcesses,
) -> None:
    topic = CreatableTopic(name="too-many", num_partitions=1, replication_factor=4)
    with cluster.wire(3) as wire:
        (result,) = wire.ask(ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest(topics=[topic])).topics
    assert result.error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert "only 3 broker(s) are registered" in result.error_message


def test_a_broker_that_is_not_the_controller_describes_the_quorum(cluster: ClusterOfProcesses) -> None:
    request = DescribeQuorumRequest(
        topics=[TopicData(topic_name="__cluster_metadata", partitions=[PartitionData(partition_index=0)])]
    )
    with cluster.wire(2) as wire:
        (partition,) = wire.ask(ApiKey.DESCRIBE_QUORUM, 1, request).topics[0].partitions
    assert (partition.leader_id, [voter.replica_id for voter in partition.current_voters]) == (1, [1])
    assert sorted(observer.replica_id for observer in partition.observers) == [2, 3]


def test_unreplicated_partitions_have_no_leader_until_their_dead_broker_restarts(
    mortal_cluster: ClusterOfProcesses,
) -> None:
    cluster = mortal_cluster
    create(cluster, 1, "mortal")
    lost = cluster.leaders(1, "mortal").index(3)
    assert produce(cluster, 3, "mortal", lost, b"kept") == 0
    cluster.brokers[3].kill()
    for node_id in (1, 2):
        until(lambda node_id=node_id: cluster.brokers_seen_by(node_id) == [1, 2])  # type: ignore[misc]
        until(lambda node_id=node_id: cluster.leaders(node_id, "mortal")[lost] == -1)  # type: ignore[misc]
    create(cluster, 2, "meanwhile")
    assert set(cluster.leaders(1, "meanwhile")) == {1, 2}
    cluster.brokers[3].start_again()
    cluster.wait_until_all_see_all()
    until(lambda: cluster.leaders(1, "mortal")[lost] == 3)
    until(lambda: cluster.leaders(3, "meanwhile") == cluster.leaders(1, "meanwhile"))
    until(lambda: fetched(cluster, 3, "mortal", lost)[0] == 0)
    assert b"kept" in fetched(cluster, 3, "mortal", lost)[1]


def test_a_broker_that_restarts_within_its_session_leads_at_once(tmp_path_factory: pytest.TempPathFactory) -> None:
    with running_cluster(tmp_path_factory.mktemp("quick"), 2, "broker.session.timeout.ms=600000") as cluster:
        create(cluster, 1, "quick", partitions=2)
        mine = cluster.leaders(1, "quick").index(2)
        cluster.brokers[2].kill()
        cluster.brokers[2].start_again()
        until(lambda: produce(cluster, 2, "quick", mine, b"again") == 0)


def test_brokers_serve_while_the_controller_is_down_and_follow_it_after_its_restart(
    mortal_cluster: ClusterOfProcesses,
) -> None:
    cluster = mortal_cluster
    create(cluster, 1, "served")
    leaders = cluster.leaders(2, "served")
    cluster.brokers[1].kill()
    for node_id in (2, 3):
        assert produce(cluster, node_id, "served", leaders.index(node_id), b"without") == 0
        assert cluster.leaders(node_id, "served") == leaders
    cluster.brokers[1].start_again()
    cluster.wait_until_all_see_all()
    create(cluster, 3, "after")
    assert sorted(cluster.leaders(2, "after")) == [1, 2, 3]
    until(lambda: cluster.leaders(2, "served") == leaders)
    until(lambda: "following the controller again" in cluster.brokers[2].output())


def test_a_broker_that_shuts_down_is_fenced_and_removed_from_the_metadata(mortal_cluster: ClusterOfProcesses) -> None:
    cluster = mortal_cluster
    assert cluster.brokers[2].stop() == 0
    until(lambda: cluster.brokers_seen_by(1) == [1, 3])
    until(lambda: "broker 2 is fenced" in cluster.brokers[1].output())


def test_settings_of_a_kafka_with_three_controllers_make_a_cluster_with_one(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Every node of many compose files is broker and controller, and a voter: the first voter decides alone."""
    ports = [free_address()[1] for _ in range(3)]
    voters = ",".join(f"{node_id}@127.0.0.1:{port}" for node_id, port in enumerate(ports, 1))
    shared = ("controller.quorum.voters=" + voters, "process.roles=broker,controller")
    with running_cluster(tmp_path_factory.mktemp("voters"), 3, own_settings=kafkas_settings(ports, *shared)) as cluster:
        create(cluster, 2, "voted", partitions=6)
        assert sorted(cluster.leaders(3, "voted")) == [1, 1, 2, 2, 3, 3]
        assert "Gregor supports one controller" in cluster.brokers[2].output()


def test_a_node_with_only_the_controller_role_serves_two_brokers(tmp_path_factory: pytest.TempPathFactory) -> None:
    controller = free_address()
    address = f"{controller[0]}:{controller[1]}"
    quorum = (f"controller.quorum.bootstrap.servers={address}", "controller.listener.names=CONTROLLER")
    apart = (f"listeners=CONTROLLER://{address}", "node.id=100", "process.roles=controller")
    home = tmp_path_factory.mktemp("controller")
    process = BrokerProcess(spawn_broker(controller, home, (*quorum, *apart)), controller, home, ())
    try:
        directory = tmp_path_factory.mktemp("brokers")
        with running_cluster(directory, 2, own_settings=lambda _, __: [*quorum, "process.roles=broker"]) as cluster:
            create(cluster, 2, "apart", partitions=4)
            assert sorted(cluster.leaders(1, "apart")) == [1, 1, 2, 2]
            assert cluster.brokers_seen_by(1) == [1, 2]
            assert cluster.metadata(1).controller_id in (1, 2)
        assert process.stop() == 0
    finally:
        if process.process.poll() is None:
            process.kill()


def kafkas_settings(controller_ports: list[int], *shared: str) -> Callable[[int, tuple[str, int]], list[str]]:
    """Return the settings of nodes that all open a controller's listener."""

    def settings(node_id: int, address: tuple[str, int]) -> list[str]:
        controller = f"CONTROLLER://127.0.0.1:{controller_ports[node_id - 1]}"
        listeners = f"listeners=PLAINTEXT://{address[0]}:{address[1]},{controller}"
        return [*shared, "controller.listener.names=CONTROLLER", listeners]

    return settings
