"""Replicas whose log directory fails, is lost or refuses writes: the records that the controller writes."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

import pytest

from gregor.broker.controller import directories, in_sync
from gregor.broker.controller.elections import Election, electing
from gregor.broker.controller.liveness import fencing, may_lead_in, unfencing
from gregor.broker.controller.registration import registering
from gregor.broker.metadata.record_batches import decode_record, encode_record
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
from gregor.protocol.messages.alter_partition import PartitionData
from gregor.protocol.messages.broker_registration import BrokerRegistrationRequest, Listener
from gregor.protocol.schema import Message

TOPIC = UUID(int=70)


def directory(node_id: int, number: int = 0) -> UUID:
    return UUID(int=1000 * node_id + number)


def never_unclean(_: TopicState) -> bool:
    return False


@pytest.fixture
def state() -> ClusterState:
    """Return a state of three live brokers with two directories each; broker 1 leads partition 0, 2 partition 1."""
    made = ClusterState()
    for node_id in (1, 2, 3):
        broker = BrokerState(node_id, 10 + node_id, UUID(int=node_id), {"PLAINTEXT": ("h", 9000 + node_id)})
        broker.is_fenced = False
        broker.log_dirs = [directory(node_id), directory(node_id, 1)]
        apply(made, [broker_record(broker)])
    shared = PartitionState(0, 1, 0, [1, 2, 3], [1, 2, 3], directories=[directory(node) for node in (1, 2, 3)])
    alone = PartitionState(1, 2, 0, [2], [2], directories=[directory(2)])
    apply(made, topic_records(TopicState("t", TOPIC, [shared, alone])))
    return made


def apply(state: ClusterState, records: Iterable[Message]) -> None:
    """Apply records as another node that reads the log does."""
    for record in list(records):
        written = decode_record(encode_record(record))
        assert written is not None
        state.apply(written)


def partition(state: ClusterState, index: int = 0) -> PartitionState:
    return state.topics["t"].partitions[index]


def places(state: ClusterState) -> list[tuple[int, list[int]]]:
    return [(found.leader, found.isr) for found in state.topics["t"].partitions]


def come_back(state: ClusterState, node_id: int, *log_dirs: UUID) -> None:
    """Register a new life of a broker, with these directories."""
    request = BrokerRegistrationRequest(
        broker_id=node_id,
        cluster_id="c",
        incarnation_id=UUID(int=50 + node_id),
        listeners=[Listener(name="PLAINTEXT", host="h", port=9999)],
        log_dirs=list(log_dirs),
    )
    apply(
        state,
        registering(state, request, cluster_id="c", next_epoch=90, is_heard_of=False, unclean=never_unclean),
    )


def assign(state: ClusterState, node_id: int, where: UUID, index: int = 0) -> None:
    topic = state.topics["t"]
    record = directories.assigning(state, state.brokers[node_id], topic, topic.partitions[index], where)
    apply(state, [] if record is None else [record])


def unfence(state: ClusterState, node_id: int) -> None:
    apply(state, unfencing(state, state.brokers[node_id], never_unclean))


def last_in_sync(state: ClusterState, node_id: int) -> None:
    """Let all other brokers die, then this one."""
    for gone in [other for other in (1, 2, 3) if other != node_id] + [node_id]:
        apply(state, fencing(state, state.brokers[gone], never_unclean))


def test_the_last_in_sync_replica_on_a_new_disk_is_not_elected_while_others_have_copies(state: ClusterState) -> None:
    last_in_sync(state, 2)
    come_back(state, 2, directory(2, 9))
    assert list(directories.leaderless_for_a_lost_directory(state, state.brokers[2])) == ["t-0"]
    for early in (True, False):
        if early:
            with pytest.raises(BrokerError) as refused:
                assign(state, 2, directory(2, 9))
            assert refused.value.code is ErrorCode.INELIGIBLE_REPLICA
        unfence(state, 2 if early else 3)
        assert places(state)[0] == (NO_LEADER, [2])
    record = electing(TOPIC, partition(state), may_lead_in(state, partition(state)), Election.UNCLEAN)
    apply(state, [record])
    assert places(state)[0] == (3, [3])
    assign(state, 2, directory(2, 9))
    assert partition(state).directory_of(2) == directory(2, 9)


def test_a_replica_leads_again_after_its_directory_is_registered_again(state: ClusterState) -> None:
    last_in_sync(state, 2)
    come_back(state, 2, directory(2, 9))
    come_back(state, 2, directory(2), directory(2, 9))
    unfence(state, 2)
    assert places(state)[0] == (2, [2])


def test_the_only_replica_on_a_new_disk_leads_once_its_directory_is_assigned(state: ClusterState) -> None:
    last_in_sync(state, 2)
    come_back(state, 2, directory(2, 9))
    unfence(state, 2)
    assert places(state)[1] == (NO_LEADER, [2])
    assign(state, 2, directory(2, 9), index=1)
    assert places(state)[1] == (2, [2])


def test_any_replica_may_lead_after_all_replicas_lost_their_directories(state: ClusterState) -> None:
    last_in_sync(state, 2)
    for node_id in (1, 3, 2):
        come_back(state, node_id, directory(node_id, 9))
        unfence(state, node_id)
    assign(state, 2, directory(2, 9))
    assert places(state)[0] == (2, [2])


def test_a_replica_on_a_lost_disk_joins_the_isr_only_after_a_new_directory_is_assigned(state: ClusterState) -> None:
    apply(state, fencing(state, state.brokers[3], never_unclean))
    come_back(state, 3, directory(3, 9))
    unfence(state, 3)
    wanted = PartitionData(partition_index=0, leader_epoch=0, new_isr=[1, 2, 3])
    wanted.partition_epoch = partition(state).partition_epoch
    with pytest.raises(BrokerError) as refused:
        in_sync.altering(state, state.topics["t"], wanted, leader_id=1)
    assert refused.value.code is ErrorCode.INELIGIBLE_REPLICA
    assign(state, 3, directory(3, 9))
    wanted.partition_epoch = partition(state).partition_epoch
    assert in_sync.altering(state, state.topics["t"], wanted, leader_id=1) is not None


def test_replicas_in_a_failed_directory_leave_the_isr_and_give_up_leadership(state: ClusterState) -> None:
    apply(state, directories.failing(state, state.brokers[1], [directory(1)], never_unclean))
    assert places(state)[0] == (2, [2, 3])
    assert state.brokers[1].log_dirs == [directory(1, 1)]
    assert list(directories.failing(state, state.brokers[1], [directory(1)], never_unclean)) == []


def test_a_partition_whose_only_replica_is_in_a_failed_directory_has_no_leader(state: ClusterState) -> None:
    apply(state, directories.failing(state, state.brokers[2], [directory(2)], never_unclean))
    assert places(state) == [(1, [1, 3]), (NO_LEADER, [2])]


def test_partitions_in_other_directories_are_unchanged_after_a_failure(state: ClusterState) -> None:
    apply(state, directories.failing(state, state.brokers[1], [directory(1, 1)], never_unclean))
    assert places(state)[0] == (1, [1, 2, 3])


def test_replicas_in_a_full_directory_give_up_leadership_if_others_are_in_sync(state: ClusterState) -> None:
    full = {directory(2), directory(2, 1)}
    apply(state, directories.handing_over(state, state.brokers[2], full))
    assert places(state) == [(1, [1, 3]), (2, [2])]
    apply(state, directories.handing_over(state, state.brokers[1], {directory(1)}))
    assert places(state)[0] == (3, [3])
    assert list(directories.handing_over(state, state.brokers[3], {directory(3)})) == []


def test_an_unassigned_directory_id_means_the_only_log_directory_of_the_broker(state: ClusterState) -> None:
    partition(state).directories = [UUID(int=0)] * 3
    assert list(directories.handing_over(state, state.brokers[1], {directory(1)})) == []
    state.brokers[1].log_dirs = [directory(1)]
    apply(state, directories.handing_over(state, state.brokers[1], {directory(1)}))
    assert places(state)[0] == (2, [2, 3])


def test_a_replica_in_a_full_directory_does_not_join_the_isr(state: ClusterState) -> None:
    apply(state, directories.handing_over(state, state.brokers[3], {directory(3)}))
    wanted = PartitionData(partition_index=0, leader_epoch=0, partition_epoch=1, new_isr=[1, 2, 3])
    with pytest.raises(BrokerError) as refused:
        in_sync.altering(state, state.topics["t"], wanted, 1, lambda _, node_id: node_id != 3)
    assert refused.value.code is ErrorCode.INELIGIBLE_REPLICA


@pytest.mark.parametrize(
    ("node_id", "where", "code"),
    [(1, UUID(int=5), ErrorCode.INVALID_REQUEST), (3, directory(3), ErrorCode.NOT_LEADER_OR_FOLLOWER)],
)
def test_assignments_of_unknown_directories_and_by_brokers_without_a_replica_are_refused(
    state: ClusterState, node_id: int, where: UUID, code: ErrorCode
) -> None:
    with pytest.raises(BrokerError) as refused:
        assign(state, node_id, where, index=0 if node_id == 1 else 1)
    assert refused.value.code is code


def test_a_snapshot_keeps_directories(state: ClusterState) -> None:
    again = ClusterState()
    apply(again, state.records())
    assert again.topics == state.topics
    assert again.brokers == state.brokers
