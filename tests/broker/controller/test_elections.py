"""Elections of leaders from replicas, in-sync sets and active brokers, as plain functions."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gregor.broker.controller.elections import Election, Target, change_of, electing, unclean_elections
from gregor.broker.metadata.state import NO_CHANGE, NO_LEADER, ClusterState, PartitionState, TopicState, topic_records
from gregor.protocol.errors import BrokerError, ErrorCode
from gregor.protocol.messages.cluster_metadata_records import PartitionChangeRecord

ID = UUID(int=7)


def partition(
    leader: int,
    isr: list[int],
    replicas: list[int] | None = None,
    *,
    adding: list[int] | None = None,
    removing: list[int] | None = None,
) -> PartitionState:
    return PartitionState(0, leader, 5, replicas or [1, 2, 3], isr, 9, adding or [], removing or [])


def active(*node_ids: int):  # type: ignore[no-untyped-def]
    return lambda node_id: node_id in node_ids


def test_no_election_while_the_leader_is_active_and_in_sync() -> None:
    assert change_of(ID, partition(2, [1, 2, 3]), active(1, 2, 3)) is None


def test_the_first_active_in_sync_replica_is_elected_after_the_leader_fails() -> None:
    record = change_of(ID, partition(1, [1, 3]), active(2, 3), target=Target(isr=[3]))
    assert record == PartitionChangeRecord(partition_id=0, topic_id=ID, isr=[3], leader=3)


def test_shrinking_the_isr_keeps_an_active_leader() -> None:
    record = change_of(ID, partition(1, [1, 2, 3]), active(1, 2), target=Target(isr=[1, 2]))
    assert record is not None
    assert (record.isr, record.leader) == ([1, 2], NO_CHANGE)


def test_the_last_in_sync_replica_stays_in_the_isr_when_it_fails() -> None:
    record = change_of(ID, partition(1, [1]), active(2, 3), target=Target(isr=[]))
    assert record == PartitionChangeRecord(partition_id=0, topic_id=ID, leader=NO_LEADER)


def test_the_last_in_sync_replica_leads_again_once_it_is_active() -> None:
    record = change_of(ID, partition(NO_LEADER, [1]), active(1, 2, 3))
    assert record == PartitionChangeRecord(partition_id=0, topic_id=ID, leader=1)


def test_an_unclean_election_elects_an_active_replica_as_the_only_isr_member() -> None:
    record = change_of(ID, partition(NO_LEADER, [1]), active(3), election=Election.UNCLEAN)
    assert record == PartitionChangeRecord(partition_id=0, topic_id=ID, leader=3, isr=[3])


def test_the_preferred_leader_is_the_first_replica() -> None:
    record = electing(ID, partition(3, [1, 3]), active(1, 3), Election.PREFERRED)
    assert record == PartitionChangeRecord(partition_id=0, topic_id=ID, leader=1)


@pytest.mark.parametrize(
    ("state", "kind", "code"),
    [
        (partition(1, [1, 2]), Election.PREFERRED, ErrorCode.ELECTION_NOT_NEEDED),
        (partition(2, [2, 3]), Election.PREFERRED, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE),
        (partition(2, [2, 3]), Election.UNCLEAN, ErrorCode.ELECTION_NOT_NEEDED),
        (partition(NO_LEADER, [1], [1]), Election.UNCLEAN, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE),
    ],
)
def test_unneeded_or_impossible_elections_are_refused(state: PartitionState, kind: Election, code: ErrorCode) -> None:
    with pytest.raises(BrokerError) as refused:
        electing(ID, state, active(2, 3), kind)
    assert refused.value.code is code


def test_a_reassignment_ends_once_the_new_replicas_are_in_sync() -> None:
    moving = partition(1, [1, 2], [2, 3, 1], adding=[3], removing=[1])
    assert change_of(ID, moving, active(1, 2, 3)) is None
    record = change_of(ID, moving, active(1, 2, 3), target=Target(isr=[1, 2, 3]))
    assert record is not None
    assert (record.replicas, record.isr, record.leader) == ([2, 3], [2, 3], 2)
    assert (record.adding_replicas, record.removing_replicas) == ([], [])


def test_completing_a_reassignment_names_the_same_leader_to_raise_the_leader_epoch() -> None:
    moving = partition(2, [1, 2], [2, 3, 1], adding=[3], removing=[1])
    record = change_of(ID, moving, active(1, 2, 3), target=Target(isr=[1, 2, 3]))
    assert record is not None
    assert record.leader == 2


nodes = st.sets(st.integers(1, 5))


@given(
    replicas=st.lists(st.integers(1, 5), min_size=1, unique=True),
    data=st.data(),
    alive=nodes,
    kind=st.sampled_from(Election),
)
def test_an_elected_leader_is_always_active_and_in_sync(
    replicas: list[int], data: st.DataObject, alive: set[int], kind: Election
) -> None:
    isr = data.draw(st.lists(st.sampled_from(replicas), min_size=1, unique=True))
    leader = data.draw(st.sampled_from([NO_LEADER, *isr]))
    wanted = data.draw(st.lists(st.sampled_from(replicas), unique=True))
    state = ClusterState()
    before = PartitionState(0, leader, 5, replicas, isr)
    for record in topic_records(TopicState("t", ID, [before])):
        state.apply(record)
    change = change_of(ID, before, lambda node_id: node_id in alive, target=Target(isr=wanted), election=kind)
    if change is not None:
        state.apply(change)
    (after,) = state.topics["t"].partitions
    assert after.isr
    assert set(after.isr) <= set(replicas)
    assert after.leader == NO_LEADER or (after.leader in alive and after.leader in after.isr)
    if after.leader == NO_LEADER:
        assert not set(after.isr) & alive
    if kind is not Election.UNCLEAN:
        assert set(after.isr) == (set(wanted) or set(isr))
    assert after.leader_epoch >= before.leader_epoch


def test_only_elections_of_replicas_outside_the_isr_are_counted_as_unclean() -> None:
    state = ClusterState()
    state.topics_by_id[ID] = TopicState("t", ID, [partition(NO_LEADER, [1])])
    clean, unclean, none = (
        PartitionChangeRecord(partition_id=0, topic_id=ID, leader=node) for node in (1, 3, NO_LEADER)
    )
    stays = PartitionChangeRecord(partition_id=0, topic_id=ID, isr=[1, 2])
    elsewhere = PartitionChangeRecord(partition_id=0, topic_id=UUID(int=8), leader=3)
    assert unclean_elections(state, [clean, none, stays, elsewhere]) == 0
    assert unclean_elections(state, [clean, unclean]) == 1
