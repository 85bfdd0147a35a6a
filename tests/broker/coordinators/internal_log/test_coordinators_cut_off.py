"""Coordinators during a network partition: their answers, and the followers that they wait for."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from gregor.client import Producer
from gregor.protocol.apis import ApiKey
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from gregor.protocol.messages.end_txn import EndTxnRequest
from gregor.protocol.messages.find_coordinator import FindCoordinatorRequest
from gregor.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from gregor.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from gregor.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from gregor.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from tests.broker.controller.cluster_calls import create
from tests.broker.replicas.replication.network_cuts import SETTINGS, Network
from tests.cluster_of_processes import CONTROLLER, ClusterOfProcesses, running_cluster, until

pytestmark = pytest.mark.slow

GROUP, TRANSACTION = 0, 1
READ_COMMITTED = 1
LATEST = -1


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterOfProcesses]:
    """Provide three brokers, the first of which is the controller too; each of them coordinates something."""
    settings = (
        *(setting for setting in SETTINGS if not setting.startswith(("offsets.topic", "replica.lag"))),
        # The coordinator waits for replicas that do not fetch.
        "replica.lag.time.max.ms=60000",
        "offsets.topic.num.partitions=3",
        "transaction.state.log.num.partitions=3",
        "offsets.commit.timeout.ms=500",
    )
    with running_cluster(tmp_path_factory.mktemp("cut-off"), 3, *settings) as running:
        yield running


@pytest.fixture
def network(cluster: ClusterOfProcesses) -> Iterator[Network]:
    """Provide a network that is whole before and after each test."""
    network = Network(cluster)
    yield network
    network.heal()
    cluster.wait_until_all_see_all()


def coordinator(cluster: ClusterOfProcesses, key: str, key_type: int) -> int:
    """Wait for the coordinator of a group or a transactional id; return it."""

    def found() -> int:
        with cluster.wire(CONTROLLER) as wire:
            answer = wire.ask(ApiKey.FIND_COORDINATOR, 3, FindCoordinatorRequest(key=key, key_type=key_type))
        return int(answer.node_id) if answer.error_code == ErrorCode.NONE else 0

    return until(found)


def commit(cluster: ClusterOfProcesses, node_id: int, group: str, offset: int) -> ErrorCode:
    """Commit an offset of the topic's only partition at one broker."""
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topic = OffsetCommitRequestTopic(name="read", partitions=[partition])
    with cluster.wire(node_id) as wire:
        answer = wire.ask(ApiKey.OFFSET_COMMIT, 8, OffsetCommitRequest(group_id=group, topics=[topic]))
    return ErrorCode(answer.topics[0].partitions[0].error_code)


def fetched(cluster: ClusterOfProcesses, node_id: int, group: str, *, stable: bool = False) -> tuple[ErrorCode, int]:
    """Return the group's committed offset from one broker, and its error for the group or the partition."""
    topic = OffsetFetchRequestTopic(name="read", partition_indexes=[0])
    request = OffsetFetchRequest(group_id=group, topics=[topic], require_stable=stable)
    with cluster.wire(node_id) as wire:
        answer = wire.ask(ApiKey.OFFSET_FETCH, 7, request)
    if answer.error_code:
        return ErrorCode(answer.error_code), -1
    found = answer.topics[0].partitions[0]
    return ErrorCode(found.error_code), found.committed_offset


def test_an_isolated_group_coordinator_returns_only_replicated_offsets(
    cluster: ClusterOfProcesses, network: Network
) -> None:
    create(cluster, CONTROLLER, "read", partitions=1, replicas=3)
    group = next(g for g in map(str, itertools.count()) if coordinator(cluster, g, GROUP) != CONTROLLER)
    old = coordinator(cluster, group, GROUP)
    assert until(lambda: commit(cluster, old, group, 0) == ErrorCode.NONE)
    network.isolate(old, "stall")
    outcomes = []
    until(lambda: outcomes.append(commit(cluster, old, group, len(outcomes))) or outcomes[-1])
    assert outcomes[-1] == ErrorCode.COORDINATOR_NOT_AVAILABLE
    safe = (ErrorCode.NONE, max(len(outcomes) - 2, 0))
    assert fetched(cluster, old, group) == safe
    assert fetched(cluster, old, group, stable=True)[0] == ErrorCode.UNSTABLE_OFFSET_COMMIT
    until(lambda: coordinator(cluster, group, GROUP) != old)
    new = coordinator(cluster, group, GROUP)
    until(lambda: commit(cluster, new, group, 1_000) == ErrorCode.NONE)
    assert fetched(cluster, new, group) == (ErrorCode.NONE, 1_000)
    assert fetched(cluster, old, group) == safe
    network.heal()
    until(lambda: fetched(cluster, old, group)[0] == ErrorCode.NOT_COORDINATOR)
    assert fetched(cluster, new, group) == (ErrorCode.NONE, 1_000)


class RawProducer:
    """A transactional producer that sends each request to a given broker; its coordinator is not the controller."""

    TOPIC = "written"

    def __init__(self, cluster: ClusterOfProcesses) -> None:
        self._cluster = cluster
        names = map(str, itertools.count())
        self.name = next(name for name in names if coordinator(cluster, name, TRANSACTION) != CONTROLLER)
        self.coordinator = coordinator(cluster, self.name, TRANSACTION)
        self._identity = until(self._initialized)

    def _initialized(self) -> InitProducerIdResponse:
        request = InitProducerIdRequest(transactional_id=self.name, transaction_timeout_ms=600_000)
        with self._cluster.wire(self.coordinator) as wire:
            answer = wire.ask(ApiKey.INIT_PRODUCER_ID, 4, request)
        assert isinstance(answer, InitProducerIdResponse)
        assert answer.error_code == ErrorCode.NONE
        return answer

    def add(self, node_id: int) -> ErrorCode:
        """Make the topic's partition part of the transaction."""
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self._identity.producer_id,
            v3_and_below_producer_epoch=self._identity.producer_epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=self.TOPIC, partitions=[0])],
        )
        with self._cluster.wire(node_id) as wire:
            added = wire.ask(ApiKey.ADD_PARTITIONS_TO_TXN, 3, request).results_by_topic_v3_and_below[0]
        return ErrorCode(added.results_by_partition[0].partition_error_code)

    def commit(self, node_id: int) -> ErrorCode:
        """Commit the transaction."""
        request = EndTxnRequest(
            transactional_id=self.name,
            producer_id=self._identity.producer_id,
            producer_epoch=self._identity.producer_epoch,
            committed=True,
        )
        with self._cluster.wire(node_id) as wire:
            return ErrorCode(wire.ask(ApiKey.END_TXN, 3, request).error_code)


@pytest.fixture
def producer(cluster: ClusterOfProcesses) -> RawProducer:
    """Return a producer with a topic to write to."""
    if RawProducer.TOPIC not in {topic.name for topic in cluster.metadata(CONTROLLER).topics}:
        create(cluster, CONTROLLER, RawProducer.TOPIC, on=[CONTROLLER])
    return RawProducer(cluster)


def test_end_txn_is_refused_while_the_coordinators_followers_cannot_fetch(
    cluster: ClusterOfProcesses, network: Network, producer: RawProducer
) -> None:
    until(lambda: producer.add(producer.coordinator) == ErrorCode.NONE)
    others = ",".join(str(other) for other in cluster.brokers if other != producer.coordinator)
    network.cut((str(producer.coordinator), f"api=Fetch broker={others} stall"), begins="")
    assert producer.commit(producer.coordinator) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    network.heal()
    until(lambda: producer.commit(producer.coordinator) == ErrorCode.NONE)


def test_an_isolated_former_coordinator_refuses_to_end_a_newer_transaction(
    cluster: ClusterOfProcesses, network: Network, producer: RawProducer
) -> None:
    old = producer.coordinator
    until(lambda: producer.add(old) == ErrorCode.NONE)
    until(lambda: producer.commit(old) == ErrorCode.NONE)
    until(lambda: producer.commit(old) == ErrorCode.NONE)
    network.isolate(old, "stall")
    until(lambda: coordinator(cluster, producer.name, TRANSACTION) != old)
    new = coordinator(cluster, producer.name, TRANSACTION)
    until(lambda: producer.add(new) == ErrorCode.NONE)
    assert producer.commit(old) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    until(lambda: producer.commit(new) == ErrorCode.NONE)


def stable_offset(cluster: ClusterOfProcesses, node_id: int, topic: str, partition: int) -> int:
    """Return the last stable offset of the partition's leader."""
    wanted = ListOffsetsTopic(
        name=topic, partitions=[ListOffsetsPartition(partition_index=partition, timestamp=LATEST)]
    )
    request = ListOffsetsRequest(replica_id=-1, isolation_level=READ_COMMITTED, topics=[wanted])
    with cluster.wire(node_id) as wire:
        return int(wire.ask(ApiKey.LIST_OFFSETS, 5, request).topics[0].partitions[0].offset)


async def test_a_leader_that_stalls_transaction_markers_does_not_delay_other_leaders(
    cluster: ClusterOfProcesses, network: Network
) -> None:
    create(cluster, CONTROLLER, "first", on=[2])
    create(cluster, CONTROLLER, "second", on=[3])
    transactional_id = next(
        name for name in map(str, itertools.count()) if coordinator(cluster, name, TRANSACTION) == CONTROLLER
    )
    network.cut(("2", "api=WriteTxnMarkers stall"), begins="")
    async with Producer(cluster.bootstrap, transactional_id=transactional_id) as producer:
        async with producer.transaction():
            await producer.send("first", b"of 2", partition=0)
            await producer.send("second", b"of 3", partition=0)
        until(lambda: stable_offset(cluster, 3, "second", 0) == 2)
        assert stable_offset(cluster, 2, "first", 0) == 0
    network.heal()
    until(lambda: stable_offset(cluster, 2, "first", 0) == 2)
