"""Brokers that cannot reach each other, while clients reach all of them: no client gets a wrong answer.

A former leader that is cut off still acts as the leader, and serves the records that were replicated before. It
acknowledges nothing with acks=all, as the controller shrinks no in-sync set for it, and records that only this leader
has are lost when the network heals.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from gregor.broker.faults.rule import SPARED_CLIENT_ID
from gregor.command_line import main
from gregor.protocol.apis import ApiKey
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages.alter_partition import AlterPartitionRequest, BrokerState, PartitionData, TopicData
from gregor.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from gregor.protocol.messages.metadata import MetadataResponsePartition
from gregor.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from gregor.protocol.records import v2
from gregor.protocol.records.record import Record
from tests.broker.controller.cluster_calls import create
from tests.broker.replicas.replication.network_cuts import ALL, SETTINGS, Network
from tests.cluster_of_processes import CONTROLLER, ClusterOfProcesses, running_cluster, until
from tests.wire import Wire

pytestmark = pytest.mark.slow

ACTIONS = ("stall", "disconnect")
EVERYBODY = [1, 2, 3]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterOfProcesses]:
    """Provide three brokers, the first of which is the controller too."""
    with running_cluster(tmp_path_factory.mktemp("network"), 3, *SETTINGS) as running:
        yield running


@pytest.fixture
def network(cluster: ClusterOfProcesses) -> Iterator[Network]:
    """Provide a network that is whole before and after each test."""
    network = Network(cluster)
    yield network
    network.heal()
    cluster.wait_until_all_see_all()


def produce(
    cluster: ClusterOfProcesses, node_id: int, topic: str, value: bytes, acks: int = -1, timeout_ms: int = 500
) -> ErrorCode:
    """Ask one broker to append one record and to wait for half a second; its answer."""
    batch = v2.build_batch([Record(0, 1_700_000_000_000, None, value)])
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=batch)])
    with cluster.wire(node_id) as wire:
        answer = wire.ask(ApiKey.PRODUCE, 9, ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=[data]))
    return ErrorCode(answer.responses[0].partition_responses[0].error_code)


def is_acknowledged(cluster: ClusterOfProcesses, node_id: int, topic: str, value: bytes) -> bool:
    """Return whether one broker appends one record and the in-sync replicas get it within a minute."""
    return produce(cluster, node_id, topic, value, timeout_ms=60_000) == ErrorCode.NONE


class Served(NamedTuple):
    """The result of a consumer's fetch."""

    high_watermark: int
    records: bytes


def fetched(cluster: ClusterOfProcesses, node_id: int, topic: str) -> Served:
    """Return what a consumer fetches from one broker, whether that broker leads or not."""
    wanted = FetchTopic(topic=topic, partitions=[FetchPartition(partition=0, partition_max_bytes=100_000)])
    with cluster.wire(node_id) as wire:
        answer = wire.ask(ApiKey.FETCH, 12, FetchRequest(max_wait_ms=0, topics=[wanted]))
    found = answer.responses[0].partitions[0]
    assert found.error_code == ErrorCode.NONE
    return Served(found.high_watermark, bytes(found.records))


def partition(cluster: ClusterOfProcesses, node_id: int, topic: str) -> MetadataResponsePartition:
    """Return the topic's only partition as one broker sees it."""
    return cluster.metadata(node_id, topic).topics[0].partitions[0]


def alter_partition(cluster: ClusterOfProcesses, topic: str, broker_epoch: int, leader_epoch: int) -> tuple[int, int]:
    """Ask the controller, in the name of broker 3, that 3 alone be in sync; the errors of request and partition."""
    described = cluster.metadata(CONTROLLER, topic).topics[0]
    wanted = PartitionData(
        partition_index=0,
        leader_epoch=leader_epoch,
        new_isr_with_epochs=[BrokerState(broker_id=3, broker_epoch=-1)],
        partition_epoch=0,
    )
    request = AlterPartitionRequest(
        broker_id=3,
        broker_epoch=broker_epoch,
        topics=[TopicData(topic_id=described.topic_id, partitions=[wanted])],
    )
    with Wire(cluster.controller_address, client_id=SPARED_CLIENT_ID) as wire:
        answer = wire.ask(ApiKey.ALTER_PARTITION, 3, request)
    return answer.error_code, answer.topics[0].partitions[0].error_code if answer.topics else 0


def wait_until_alike(cluster: ClusterOfProcesses, topic: str) -> bytes:
    """Wait until all replicas are in sync and serve the same records; return these."""

    def common() -> bytes:
        seen = partition(cluster, CONTROLLER, topic)
        assert sorted(seen.isr_nodes) == EVERYBODY, seen
        served = {fetched(cluster, node_id, topic) for node_id in EVERYBODY}
        assert len(served) == 1, served
        return served.pop().records

    return until(common)


def wait_until_unacknowledged_or_alone(cluster: ClusterOfProcesses, topic: str, in_sync: list[int]) -> None:
    """Write ``waits`` until it is not acknowledged, as a cut follower is in sync, or until only ``in_sync`` are so.

    A slow machine may take longer for the first record after the cut than for the removal of the follower.
    """

    def is_so() -> bool:
        leader = partition(cluster, 1, topic).leader_id
        code = produce(cluster, leader, topic, b"waits")
        return code == ErrorCode.REQUEST_TIMED_OUT or sorted(partition(cluster, 1, topic).isr_nodes) == in_sync

    until(is_so)


@pytest.mark.parametrize("action", ACTIONS)
def test_an_isolated_leader_acknowledges_no_record_with_acks_all(
    cluster: ClusterOfProcesses, network: Network, action: str
) -> None:
    topic = f"cut-leader-{action}"
    create(cluster, 1, topic, on=[3, 1, 2])
    until(lambda: is_acknowledged(cluster, 3, topic, b"before"))
    old = partition(cluster, 1, topic)
    until(lambda: fetched(cluster, 3, topic).high_watermark >= 1)
    network.isolate(3, action)
    until(lambda: produce(cluster, 3, topic, b"doubtful") == ErrorCode.REQUEST_TIMED_OUT)
    safe_offset = fetched(cluster, 3, topic).high_watermark
    until(lambda: partition(cluster, 1, topic).leader_id in (1, 2))
    new = partition(cluster, 1, topic)
    assert new.leader_epoch > old.leader_epoch
    # On a slow machine the other follower may be removed for a moment.
    until(lambda: sorted(partition(cluster, 1, topic).isr_nodes) == [1, 2])
    until(lambda: cluster.brokers_seen_by(2) == [1, 2])
    until(lambda: is_acknowledged(cluster, new.leader_id, topic, b"after"))
    # Broker 3 still acts as the leader, as it does not know of the election, and its requests to shrink the ISR fail.
    assert produce(cluster, 3, topic, b"for me alone", acks=1) == ErrorCode.NONE
    assert [produce(cluster, 3, topic, b"for all") for _ in range(6)] == [ErrorCode.REQUEST_TIMED_OUT] * 6
    seen = partition(cluster, 3, topic)
    assert (seen.leader_id, sorted(seen.isr_nodes), cluster.brokers_seen_by(3)) == (3, EVERYBODY, EVERYBODY)
    served = fetched(cluster, 3, topic)
    assert served.high_watermark == safe_offset
    assert b"for me alone" not in served.records
    network.heal()
    records = wait_until_alike(cluster, topic)
    assert b"before" in records
    assert b"after" in records
    assert not [value for value in (b"for me alone", b"for all") if value in records]
    assert f"{topic}-0: truncated from offset" in cluster.brokers[3].output()
    assert produce(cluster, 3, topic, b"late") == ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize("healer", [1, 3])
def test_the_isolation_of_a_broker_can_be_cleared_on_either_side(
    cluster: ClusterOfProcesses, network: Network, healer: int
) -> None:
    words = ["isolate=3", "stall", "from=300ms"]
    assert main(["faults", "add", "cut", *words, "--bootstrap-server", cluster.brokers[2].bootstrap]) == 0
    until(lambda: cluster.brokers_seen_by(2) == [1, 2])
    assert main(["faults", "clear", "--bootstrap-server", cluster.brokers[healer].bootstrap]) == 0
    until(lambda: cluster.brokers_seen_by(2) == EVERYBODY)


def test_the_controller_refuses_alter_partition_of_a_former_leader(
    cluster: ClusterOfProcesses, network: Network
) -> None:
    create(cluster, 1, "fenced", on=[3, 1, 2])
    old = partition(cluster, 1, "fenced")
    network.isolate(3, "stall")
    until(lambda: partition(cluster, 1, "fenced").leader_id in (1, 2))
    epoch = int(re.findall(r"broker 3 is registered, epoch (\d+)", cluster.brokers[CONTROLLER].output())[-1])
    assert alter_partition(cluster, "fenced", epoch, old.leader_epoch) == (0, ErrorCode.FENCED_LEADER_EPOCH)
    assert alter_partition(cluster, "fenced", epoch - 1, old.leader_epoch) == (ErrorCode.STALE_BROKER_EPOCH, 0)
    until(lambda: sorted(partition(cluster, 1, "fenced").isr_nodes) == [1, 2])


@pytest.mark.parametrize("action", ACTIONS)
def test_without_their_controller_leaders_and_followers_go_on(
    cluster: ClusterOfProcesses, network: Network, action: str
) -> None:
    create(cluster, 1, f"of-two-{action}", on=[2, 3])
    create(cluster, 1, f"of-all-{action}", on=[2, 3, 1])
    network.isolate(CONTROLLER, action)
    until(lambda: cluster.brokers_seen_by(1) == [1])
    # Brokers 2 and 3 do not know the controller's decision; the next leader has the records that both of them have.
    until(lambda: partition(cluster, 1, f"of-two-{action}").leader_id == -1)
    # Broker 2, or broker 3 if broker 2 stood still before the cut.
    leader = partition(cluster, 2, f"of-two-{action}").leader_id
    codes = [produce(cluster, leader, f"of-two-{action}", b"%d" % number, timeout_ms=60_000) for number in range(3)]
    assert codes == [ErrorCode.NONE] * 3
    leader = partition(cluster, 2, f"of-all-{action}").leader_id
    assert leader != CONTROLLER
    assert produce(cluster, leader, f"of-all-{action}", b"in vain") == ErrorCode.REQUEST_TIMED_OUT
    until(lambda: is_acknowledged(cluster, 1, f"of-all-{action}", b"at the controller"))
    network.heal()
    until(lambda: sorted(partition(cluster, 1, f"of-two-{action}").isr_nodes) == [2, 3])
    leader = partition(cluster, 1, f"of-two-{action}").leader_id
    until(lambda: fetched(cluster, leader, f"of-two-{action}").high_watermark == 3)
    records = wait_until_alike(cluster, f"of-all-{action}")
    assert b"at the controller" in records
    assert b"in vain" not in records


def test_below_min_insync_replicas_no_acks_all_write_is_acknowledged(
    cluster: ClusterOfProcesses, network: Network
) -> None:
    create(cluster, 1, "two-at-least", on=[2, 1, 3], configs={"min.insync.replicas": "2"})
    network.cut((ALL, "isolate=2 stall"), (ALL, "isolate=3 disconnect"))
    until(lambda: partition(cluster, 1, "two-at-least").isr_nodes == [1])
    until(lambda: produce(cluster, 1, "two-at-least", b"here") == ErrorCode.NOT_ENOUGH_REPLICAS)
    assert produce(cluster, 2, "two-at-least", b"there") == ErrorCode.REQUEST_TIMED_OUT
    assert produce(cluster, 1, "two-at-least", b"one is enough", acks=1) == ErrorCode.NONE
    assert fetched(cluster, 1, "two-at-least").high_watermark == 0
    network.heal()
    assert b"one is enough" in wait_until_alike(cluster, "two-at-least")


@pytest.mark.parametrize("action", ACTIONS)
def test_a_follower_disconnected_only_from_its_leader_is_removed_from_the_isr(
    cluster: ClusterOfProcesses, network: Network, action: str
) -> None:
    topic = f"parted-{action}"
    create(cluster, 1, topic, on=[2, 3, 1])
    network.part(2, 3, action)
    wait_until_unacknowledged_or_alone(cluster, topic, [1, 2])
    until(lambda: sorted(partition(cluster, 1, topic).isr_nodes) == [1, 2])
    until(lambda: produce(cluster, 2, topic, b"goes on") == ErrorCode.NONE)
    assert [cluster.brokers_seen_by(node_id) for node_id in EVERYBODY] == [EVERYBODY] * 3
    network.heal()
    assert b"waits" in wait_until_alike(cluster, topic)


@pytest.mark.parametrize("action", ACTIONS)
def test_a_leader_that_followers_cannot_reach_shrinks_the_isr_to_itself(
    cluster: ClusterOfProcesses, network: Network, action: str
) -> None:
    """Its followers' fetches do not reach it, its heartbeats reach the controller."""
    topic = f"deaf-{action}"
    create(cluster, 1, topic, on=[3, 1, 2])
    network.cut(("3", f"broker=1,2 {action}"))
    wait_until_unacknowledged_or_alone(cluster, topic, [3])
    # Each further record shows which replica is behind.
    until(lambda: produce(cluster, 3, topic, b"alone") == ErrorCode.NONE)
    until(lambda: partition(cluster, 1, topic).isr_nodes == [3])
    network.heal()
    assert b"alone" in wait_until_alike(cluster, topic)


def test_an_isr_change_whose_answer_is_lost_acknowledges_no_records(
    cluster: ClusterOfProcesses, network: Network
) -> None:
    create(cluster, 1, "unheard", on=[3, 1, 2])
    network.cut(("1", "broker=3 api=AlterPartition,Fetch disconnect at=answer"), ("3", "broker=2 stall"))
    until(lambda: produce(cluster, 3, "unheard", b"waits") == ErrorCode.REQUEST_TIMED_OUT)
    until(lambda: sorted(partition(cluster, 1, "unheard").isr_nodes) == [1, 3])
    assert produce(cluster, 3, "unheard", b"waits too") == ErrorCode.REQUEST_TIMED_OUT
    assert partition(cluster, 1, "unheard").leader_id == 3
    network.heal()
    until(lambda: produce(cluster, 3, "unheard", b"is heard") == ErrorCode.NONE)
    assert b"waits too" in wait_until_alike(cluster, "unheard")
