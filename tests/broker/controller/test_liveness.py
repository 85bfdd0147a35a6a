"""The effects of registered and fenced brokers on partitions: from states to records to states."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

import pytest

from gregor.broker.controller import in_sync, reassignment
from gregor.broker.controller.liveness import fencing, is_active, preferred_elections, shutting_down, unfencing
from gregor.broker.controller.registration import registering, unregistering
from gregor.broker.metadata.state import (
    NO_LEADER,
    BrokerState,
    ClusterState,
    PartitionState,
    TopicState,
    broker_record,
    topic_records,
)
from gregor.protocol.errors import BrokerError, ErrorCode
from gregor.protocol.messages.alter_partition import BrokerState as WantedReplica
from gregor.protocol.messages.alter_partition import PartitionData
from gregor.protocol.messages.broker_registration import BrokerRegistrationRequest, Listener
from gregor.protocol.schema import Message

TOPIC = UUID(int=70)
CLUSTER = "a-cluster"


def never_unclean(_: TopicState) -> bool:
    return False


@pytest.fixture
def state() -> ClusterState:
    """Return a state of three live brokers; broker 1 leads partition 0 of all three, 2 has partition 1 alone."""
    made = ClusterState()
    for node_id in (1, 2, 3):
        broker = BrokerState(node_id, 10 + node_id, UUID(int=node_id), {"PLAINTEXT": ("h", 9000 + node_id)})
        broker.is_fenced = False
        broker.log_dirs = [UUID(int=100 + node_id)]
        apply(made, [broker_record(broker)])
    shared = PartitionState(0, 1, 0, [1, 2, 3], [1, 2, 3])
    alone = PartitionState(1, 2, 0, [2], [2])
    apply(made, topic_records(TopicState("t", TOPIC, [shared, alone])))
    return made


def apply(state: ClusterState, records: Iterable[Message]) -> None:
    for record in list(records):
        state.apply(record)


def places(state: ClusterState) -> list[tuple[int, list[int]]]:
    return [(partition.leader, partition.isr) for partition in state.topics["t"].partitions]


def registration(node_id: int, incarnation: int, log_dir: int, **more: str) -> BrokerRegistrationRequest:
    request = BrokerRegistrationRequest(
        broker_id=node_id,
        cluster_id=CLUSTER,
        incarnation_id=UUID(int=incarnation),
        listeners=[Listener(name="PLAINTEXT", host="h", port=9999)],
        log_dirs=[UUID(int=log_dir)],
    )
    for name, value in more.items():
        setattr(request, name, value)
    return request


def register(state: ClusterState, request: BrokerRegistrationRequest, *, is_heard_of: bool = False) -> None:
    records = registering(
        state, request, cluster_id=CLUSTER, next_epoch=50, is_heard_of=is_heard_of, unclean=never_unclean
    )
    apply(state, records)


def test_a_fenced_broker_leaves_the_isr_except_where_it_is_the_last_member(state: ClusterState) -> None:
    apply(state, fencing(state, state.brokers[2], never_unclean))
    assert places(state) == [(1, [1, 3]), (NO_LEADER, [2])]
    apply(state, fencing(state, state.brokers[1], never_unclean))
    assert places(state) == [(3, [3]), (NO_LEADER, [2])]


def test_an_unfenced_broker_leads_partitions_where_it_is_the_last_isr_member(state: ClusterState) -> None:
    apply(state, fencing(state, state.brokers[2], never_unclean))
    apply(state, unfencing(state, state.brokers[2], never_unclean))
    assert places(state) == [(1, [1, 3]), (2, [2])]
    assert [partition.leader_epoch for partition in state.topics["t"].partitions] == [0, 2]


def test_a_broker_in_controlled_shutdown_gives_up_leadership_and_is_not_fenced(state: ClusterState) -> None:
    apply(state, shutting_down(state, state.brokers[1], never_unclean))
    assert places(state)[0] == (2, [2, 3])
    assert not state.brokers[1].is_fenced
    assert not is_active(state, 1)


def test_a_preferred_election_waits_until_the_preferred_leader_is_in_sync(state: ClusterState) -> None:
    apply(state, fencing(state, state.brokers[1], never_unclean))
    apply(state, unfencing(state, state.brokers[1], never_unclean))
    assert list(preferred_elections(state)) == []
    state.topics["t"].partitions[0].isr = [2, 3, 1]
    apply(state, preferred_elections(state))
    assert places(state)[0] == (1, [2, 3, 1])


def test_a_broker_that_restarts_within_its_session_is_fenced_and_leaves_the_isr(state: ClusterState) -> None:
    register(state, registration(2, 22, log_dir=102), is_heard_of=True)
    assert places(state) == [(1, [1, 3]), (2, [2])]
    broker = state.brokers[2]
    assert (broker.epoch, broker.is_fenced, broker.endpoints) == (50, True, {"PLAINTEXT": ("h", 9999)})


def test_another_node_with_the_id_of_a_live_broker_gets_duplicate_broker_registration(state: ClusterState) -> None:
    stranger = registration(2, 22, log_dir=999)
    with pytest.raises(BrokerError) as refused:
        register(state, stranger, is_heard_of=True)
    assert refused.value.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    register(state, stranger, is_heard_of=False)
    assert state.brokers[2].incarnation_id == UUID(int=22)


def test_a_repeated_registration_of_one_incarnation_keeps_its_broker_epoch(state: ClusterState) -> None:
    register(state, registration(2, 2, log_dir=102), is_heard_of=True)
    assert state.brokers[2].epoch == 12
    assert places(state)[0] == (1, [1, 2, 3])


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (registration(4, 4, 104, cluster_id="another"), ErrorCode.INCONSISTENT_CLUSTER_ID),
        (registration(4, 4, 104, listeners=[]), ErrorCode.INVALID_REGISTRATION),  # type: ignore[arg-type]
    ],
)
def test_registrations_with_another_cluster_id_or_without_listeners_are_refused(
    state: ClusterState, request_: BrokerRegistrationRequest, code: ErrorCode
) -> None:
    with pytest.raises(BrokerError) as refused:
        register(state, request_)
    assert refused.value.code is code


def test_an_unregistered_broker_leaves_the_cluster_and_the_isr(state: ClusterState) -> None:
    apply(state, unregistering(state, state.brokers[3], never_unclean))
    assert sorted(state.brokers) == [1, 2]
    assert places(state)[0] == (1, [1, 2])


# --- AlterPartition


def wanted(isr: dict[int, int], *, leader_epoch: int = 0, partition_epoch: int = 0) -> PartitionData:
    members = [WantedReplica(broker_id=node_id, broker_epoch=epoch) for node_id, epoch in isr.items()]
    return PartitionData(
        partition_index=0, leader_epoch=leader_epoch, partition_epoch=partition_epoch, new_isr_with_epochs=members
    )


def test_a_leader_changes_its_in_sync_set(state: ClusterState) -> None:
    record = in_sync.altering(state, state.topics["t"], wanted({1: 11, 3: 13}), leader_id=1)
    assert record is not None
    apply(state, [record])
    partition = state.topics["t"].partitions[0]
    assert (partition.isr, partition.leader_epoch, partition.partition_epoch) == ([1, 3], 0, 1)


def test_an_unchanged_isr_writes_no_record(state: ClusterState) -> None:
    assert in_sync.altering(state, state.topics["t"], wanted({1: 11, 2: 12, 3: -1}), leader_id=1) is None


@pytest.mark.parametrize(
    ("request_", "leader_id", "code"),
    [
        (wanted({1: 11}, leader_epoch=-1), 1, ErrorCode.FENCED_LEADER_EPOCH),
        (wanted({1: 11}, leader_epoch=1), 1, ErrorCode.NOT_CONTROLLER),
        (wanted({1: 11}, partition_epoch=1), 1, ErrorCode.NOT_CONTROLLER),
        (wanted({1: 11}, partition_epoch=-1), 1, ErrorCode.INVALID_UPDATE_VERSION),
        (wanted({2: 12}), 2, ErrorCode.INVALID_REQUEST),
        (wanted({2: 12}), 1, ErrorCode.INVALID_REQUEST),
        (wanted({1: 11, 4: 14}), 1, ErrorCode.INVALID_REQUEST),
        (wanted({1: 11, 2: 99}), 1, ErrorCode.INELIGIBLE_REPLICA),
    ],
)
def test_alter_partition_with_wrong_epochs_or_ineligible_replicas_is_refused(
    state: ClusterState, request_: PartitionData, leader_id: int, code: ErrorCode
) -> None:
    with pytest.raises(BrokerError) as refused:
        in_sync.altering(state, state.topics["t"], request_, leader_id)
    assert refused.value.code is code


def test_a_fenced_broker_cannot_be_in_sync(state: ClusterState) -> None:
    apply(state, fencing(state, state.brokers[3], never_unclean))
    request = wanted({1: 11, 2: 12, 3: 13}, partition_epoch=1)
    with pytest.raises(BrokerError) as refused:
        in_sync.altering(state, state.topics["t"], request, leader_id=1)
    assert refused.value.code is ErrorCode.INELIGIBLE_REPLICA


# --- reassignment


def reassign(state: ClusterState, index: int, replicas: list[int]) -> None:
    partition = state.topics["t"].partitions[index]
    record = reassignment.reassigning(
        TOPIC, partition, replicas, registered=[1, 2, 3], may_lead=lambda node_id: is_active(state, node_id)
    )
    apply(state, [] if record is None else [record])


def test_a_partition_moves_once_its_new_replica_has_caught_up(state: ClusterState) -> None:
    reassign(state, 1, [3])
    partition = state.topics["t"].partitions[1]
    assert (partition.replicas, partition.adding, partition.removing) == ([3, 2], [3], [2])
    request = PartitionData(partition_index=1, partition_epoch=1, new_isr=[2, 3])
    record = in_sync.altering(state, state.topics["t"], request, leader_id=2)
    assert record is not None
    apply(state, [record])
    assert (partition.replicas, partition.isr, partition.leader) == ([3], [3], 3)
    assert not reassignment.is_under_way(partition)


def test_a_reassignment_can_be_cancelled(state: ClusterState) -> None:
    reassign(state, 1, [3])
    partition = state.topics["t"].partitions[1]
    record = reassignment.cancelling(TOPIC, partition, lambda node_id: is_active(state, node_id))
    assert record is not None
    apply(state, [record])
    assert (partition.replicas, partition.isr, partition.leader) == ([2], [2], 2)
    with pytest.raises(BrokerError) as refused:
        reassignment.cancelling(TOPIC, partition, lambda node_id: is_active(state, node_id))
    assert refused.value.code is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


def test_a_reassignment_that_only_removes_replicas_completes_at_once(state: ClusterState) -> None:
    reassign(state, 0, [2, 3])
    assert places(state)[0] == (2, [2, 3])
    assert state.topics["t"].partitions[0].replicas == [2, 3]


def test_a_reassignment_to_an_unregistered_broker_is_refused(state: ClusterState) -> None:
    with pytest.raises(BrokerError) as refused:
        reassign(state, 0, [1, 9])
    assert refused.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
