"""Reconciliation: in any order of events no partition has two readers, and all members reach their targets."""

from __future__ import annotations

from collections import Counter
from typing import Any
from uuid import UUID

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gregor.broker.coordinators.groups.assignment import Assignment, is_within, together
from gregor.broker.coordinators.groups.assignors import assign_range, assign_uniform
from gregor.broker.coordinators.groups.consumer_group import ConsumerGroup
from gregor.broker.coordinators.groups.consumer_group_log import difference, replay_record, tombstones
from gregor.broker.coordinators.groups.consumer_member import ConsumerMember, MemberState
from gregor.broker.coordinators.groups.current_topics import CurrentTopics
from gregor.broker.coordinators.groups.group_map import GroupMap
from gregor.broker.metadata.state import PartitionState, TopicState
from gregor.protocol.errors import BrokerError, ErrorCode

T, U = UUID(int=1), UUID(int=2)
ASSIGNORS = {"uniform": assign_uniform, "range": assign_range}


def some(*indexes: int, topic: UUID = T) -> Assignment:
    return {topic: frozenset(indexes)}


def never_free(topic_id: UUID, index: int) -> bool:
    return False


def always_free(topic_id: UUID, index: int) -> bool:
    return True


# --- one step


def test_a_new_member_is_assigned_free_partitions_at_once() -> None:
    member = ConsumerMember("a").reconcile(1, some(0, 1), {}, always_free)
    assert (member.state, member.epoch, member.previous_epoch, member.assigned) == (
        MemberState.STABLE,
        1,
        0,
        some(0, 1),
    )


def test_a_member_waits_for_partitions_that_other_members_have_not_released() -> None:
    member = ConsumerMember("a").reconcile(1, some(0, 1), {}, lambda _, index: index == 1)
    assert (member.state, member.epoch, member.assigned) == (MemberState.UNRELEASED_PARTITIONS, 1, some(1))
    later = member.reconcile(1, some(0, 1), None, always_free)
    assert (later.state, later.assigned) == (MemberState.STABLE, some(0, 1))


def test_a_member_keeps_its_epoch_until_it_has_revoked_its_partitions() -> None:
    member = ConsumerMember("a", epoch=3, assigned=some(0, 1))
    revoking = member.reconcile(4, some(1, 2), None, always_free)
    assert (revoking.state, revoking.epoch) == (MemberState.UNREVOKED_PARTITIONS, 3)
    assert (revoking.assigned, revoking.revoking) == (some(1), some(0))
    assert revoking.reconcile(4, some(1, 2), some(0, 1), always_free) is revoking
    assert revoking.reconcile(4, some(1, 2), None, always_free) is revoking
    done = revoking.reconcile(4, some(1, 2), some(1), always_free)
    assert (done.state, done.epoch, done.previous_epoch, done.assigned) == (MemberState.STABLE, 4, 3, some(1, 2))
    assert not done.revoking


def test_a_member_that_has_already_revoked_partitions_gets_the_new_epoch_at_once() -> None:
    member = ConsumerMember("a", epoch=3, assigned=some(0, 1)).reconcile(4, some(1), some(1), always_free)
    assert (member.state, member.epoch, member.assigned) == (MemberState.STABLE, 4, some(1))


def test_the_target_assignment_can_change_while_a_member_revokes_partitions() -> None:
    revoking = ConsumerMember("a", epoch=3, assigned=some(0, 1)).reconcile(4, some(1), None, always_free)
    more = revoking.reconcile(6, some(topic=U), some(1), always_free)
    assert (more.state, more.epoch, more.revoking) == (MemberState.UNREVOKED_PARTITIONS, 4, some(1))


def test_a_member_in_an_unknown_state_must_rejoin_without_partitions() -> None:
    member = ConsumerMember("a", epoch=3, state=MemberState.UNKNOWN, assigned=some(0))
    with pytest.raises(BrokerError) as refusal:
        member.reconcile(4, some(0), some(0), always_free)
    assert refusal.value.code is ErrorCode.FENCED_MEMBER_EPOCH
    assert member.reconcile(4, some(0), {}, always_free).state is MemberState.STABLE


def test_a_member_without_free_partitions_waits_for_unreleased_partitions() -> None:
    member = ConsumerMember("a").reconcile(1, some(0), {}, never_free)
    assert (member.state, member.assigned) == (MemberState.UNRELEASED_PARTITIONS, {})


# --- whole groups


class MemoryTopics:
    def __init__(self) -> None:
        self.topics: dict[str, TopicState] = {}
        self.end_offset = 0

    def set(self, name: str, partitions: int) -> None:
        self.end_offset += 1
        topic = self.topics.setdefault(name, TopicState(name, UUID(int=ord(name))))
        topic.partitions = [PartitionState(index, 0, 0, [0], [0]) for index in range(partitions)]

    def topic_by_id(self, topic_id: UUID) -> TopicState | None:
        return next((topic for topic in self.topics.values() if topic.topic_id == topic_id), None)


class GroupOfClients(RuleBasedStateMachine):
    """A group of clients that adopt assignments late, revoke partitions at any time, join and leave."""

    def __init__(self) -> None:
        super().__init__()
        self.known = MemoryTopics()
        self.known.set("t", 5)
        self.known.set("u", 2)
        self.topics = CurrentTopics(self.known)
        self.group = ConsumerGroup("g")
        self.owned: dict[str, Assignment] = {}
        """Partitions that each client reads, as the client itself reports."""
        self.logged = GroupMap()
        self.logged.put(self.group)
        self.created = 0

    def become(self, after: ConsumerGroup) -> None:
        for key, value in difference(self.group, after):
            replay_record(self.logged, key, value)
        self.group = after

    def heartbeat(self, member: ConsumerMember, owned: Assignment | None) -> None:
        self.become(self.group.advance(member, owned, self.topics, ASSIGNORS))
        told = self.group.members[member.member_id]
        # A client drops the partitions that are no longer assigned to it, and starts reading the others.
        self.owned[member.member_id] = told.assigned

    @rule(
        names=st.frozensets(st.sampled_from("tux"), min_size=1),
        pattern=st.sampled_from(["", "", "[ux]", "."]),
        assignor=st.sampled_from([None, "uniform", "range"]),
    )
    def join(self, names: frozenset[str], pattern: str, assignor: str | None) -> None:
        if len(self.group.members) < 5:
            self.created += 1
            member = ConsumerMember(
                f"m{self.created}", subscribed_topics=names, subscribed_regex=pattern, assignor=assignor
            )
            self.heartbeat(member, {})

    @precondition(lambda self: self.owned)
    @rule(data=st.data())
    def beat(self, data: Any) -> None:
        """Send a heartbeat of a client that has given up its revoked partitions."""
        member_id = data.draw(st.sampled_from(sorted(self.owned)))
        self.heartbeat(self.group.members[member_id], self.owned[member_id])

    @precondition(lambda self: self.owned)
    @rule(data=st.data())
    def beat_without_news(self, data: Any) -> None:
        """Send a heartbeat without partitions of a client that has not yet given up its revoked partitions."""
        member_id = data.draw(st.sampled_from(sorted(self.owned)))
        before = self.owned[member_id]
        self.heartbeat(self.group.members[member_id], None)
        self.owned[member_id] = before if self.group.members[member_id].revoking else self.owned[member_id]

    @precondition(lambda self: self.owned)
    @rule(data=st.data())
    def leave(self, data: Any) -> None:
        member_id = data.draw(st.sampled_from(sorted(self.owned)))
        self.become(self.group.remove([member_id], self.topics))
        del self.owned[member_id]

    @rule(name=st.sampled_from("tux"), partitions=st.integers(1, 6))
    def change_topic(self, name: str, partitions: int) -> None:
        self.known.set(
            name, max(partitions, len(self.known.topics[name].partitions) if name in self.known.topics else 0)
        )

    @invariant()
    def nobody_reads_what_another_reads(self) -> None:
        readers = Counter(
            (topic, index) for owned in self.owned.values() for topic, indexes in owned.items() for index in indexes
        )
        assert all(count == 1 for count in readers.values()), readers

    @invariant()
    def the_broker_knows_all_readers(self) -> None:
        for member_id, owned in self.owned.items():
            member = self.group.members[member_id]
            assert is_within(owned, together(member.assigned, member.revoking))

    @invariant()
    def the_log_tells_the_same(self) -> None:
        assert self.logged.get("g") == self.group

    def teardown(self) -> None:
        """Check that all members reach their targets without further changes."""
        for _ in range(12):
            for member_id in list(self.owned):
                self.heartbeat(self.group.members[member_id], self.owned[member_id])
        assert self.group.state.value == ("Stable" if self.owned else "Empty")
        for member_id, owned in self.owned.items():
            assert is_within(owned, self.group.target[member_id])
            assert is_within(self.group.target[member_id], owned)
        for key, value in tombstones(self.group):
            replay_record(self.logged, key, value)
        assert not list(self.logged)


GroupOfClients.TestCase.settings = settings(max_examples=60, stateful_step_count=25)
test_a_group_of_clients = GroupOfClients.TestCase
