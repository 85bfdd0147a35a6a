"""A group of the consumer protocol (KIP-848) as a value: three epochs tell how far it is.

The *group epoch* counts changes of members, subscriptions and topics. The *assignment epoch* is the group epoch that
the target assignment was made for. A *member's epoch* is the assignment epoch that the member has moved to. From that
follows the state: no members, Empty; assignment behind the group, Assigning; members behind the assignment,
Reconciling; else Stable.

A group never changes: what happens to it makes another one, which is written to the log before it takes the old one's
place. Source: Kafka `ConsumerGroup`, `ModernGroup`, `TargetAssignmentBuilder`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property
from typing import NamedTuple
from uuid import UUID

from ....protocol.errors import BrokerError, ErrorCode
from .assignment import NOTHING, Assignment, Subscriber, without
from .assignors import Assignor
from .consumer_member import ConsumerMember, MemberState
from .current_topics import CurrentTopics


class ConsumerGroupState(Enum):
    """States of such a group; the values are the names that tools show."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class TopicMetadata(NamedTuple):
    """What an assignment depends on of a topic."""

    topic_id: UUID
    name: str
    partition_count: int


@dataclass(frozen=True)
class ConsumerGroup:
    """One group. The order of `members` is the order of joining."""

    group_id: str
    epoch: int = 0
    assignment_epoch: int = 0
    members: Mapping[str, ConsumerMember] = field(default_factory=dict)
    target: Mapping[str, Assignment] = field(default_factory=dict)
    """By member id: what each is meant to have in the assignment epoch."""
    topics: Mapping[str, TopicMetadata] = field(default_factory=dict)
    """By name: the subscribed topics that existed when the group epoch began."""
    matched: Mapping[str, frozenset[str]] = field(default_factory=dict, compare=False)
    """Topics by the pattern that they match, for members that subscribe by one; worked out anew after a restart."""

    @property
    def state(self) -> ConsumerGroupState:
        """What follows from the epochs."""
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.assignment_epoch:
            return ConsumerGroupState.ASSIGNING
        if all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values()):
            return ConsumerGroupState.STABLE
        return ConsumerGroupState.RECONCILING

    # --- members

    def member(self, member_id: str) -> ConsumerMember:
        """A member by its id. Raises BrokerError UNKNOWN_MEMBER_ID."""
        member = self.members.get(member_id)
        if member is None:
            raise BrokerError(
                ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {self.group_id}."
            )
        return member

    def static_member(self, instance_id: str) -> ConsumerMember | None:
        """The member with this instance id (KIP-345)."""
        return self._static_members.get(instance_id)

    @cached_property
    def _static_members(self) -> dict[str, ConsumerMember]:
        return {member.instance_id: member for member in self.members.values() if member.instance_id is not None}

    def with_member(self, member: ConsumerMember) -> ConsumerGroup:
        """The group with this member in it, or with its new value."""
        if self.members.get(member.member_id) == member:
            return self
        return replace(self, members={**self.members, member.member_id: member})

    def without_members(self, member_ids: Iterable[str]) -> ConsumerGroup:
        """The group without these members and their targets."""
        leaving = set(member_ids)
        return replace(
            self,
            members={member_id: member for member_id, member in self.members.items() if member_id not in leaving},
            target={member_id: target for member_id, target in self.target.items() if member_id not in leaving},
        )

    def with_replaced(self, old: ConsumerMember, new_member_id: str) -> ConsumerGroup:
        """The group in which a static member is back under another id: with its place, its target and no epoch yet."""
        new = replace(old, member_id=new_member_id, epoch=0, previous_epoch=0)
        return replace(
            self,
            members={
                member.member_id: member
                for member in (new if present is old else present for present in self.members.values())
            },
            target={
                new_member_id if member_id == old.member_id else member_id: target
                for member_id, target in self.target.items()
            },
        )

    def is_free(self, topic_id: UUID, index: int) -> bool:
        """Whether no member has this partition or is still giving it up."""
        return index not in self._taken.get(topic_id, ())

    @cached_property
    def _taken(self) -> dict[UUID, set[int]]:
        taken: dict[UUID, set[int]] = {}
        for member in self.members.values():
            for assignment in (member.assigned, member.revoking):
                for topic_id, partitions in assignment.items():
                    taken.setdefault(topic_id, set()).update(partitions)
        return taken

    def waits_for_others(self, member: ConsumerMember) -> bool:
        """Whether it is up to others to give up what this member still lacks."""
        if member.state is not MemberState.UNRELEASED_PARTITIONS:
            return False
        missing = without(self.target.get(member.member_id, NOTHING), member.assigned)
        return any(not self.is_free(topic_id, index) for topic_id, indexes in missing.items() for index in indexes)

    # --- subscriptions and targets

    def topics_of(self, member: ConsumerMember) -> frozenset[str]:
        """Names of the topics that a member wants to read, whether they exist or not."""
        if not member.subscribed_regex:
            return member.subscribed_topics
        return member.subscribed_topics | self.matched.get(member.subscribed_regex, frozenset())

    @cached_property
    def _subscribed_topics(self) -> frozenset[str]:
        return frozenset().union(*map(self.topics_of, self.members.values()))

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member reads the topic."""
        return topic in self.topics or topic in self._subscribed_topics

    @cached_property
    def patterns(self) -> frozenset[str]:
        """The regular expressions that members subscribe with."""
        return frozenset(member.subscribed_regex for member in self.members.values() if member.subscribed_regex)

    def with_current_topics(self, topics: CurrentTopics) -> ConsumerGroup:
        """The group that knows which topics its members want, and how many partitions these have now.

        A pattern whose topics are still being looked up means what it meant before; if it never meant anything, as
        after a restart, the group stays what it is.
        """
        matched: dict[str, frozenset[str]] = {}
        for pattern in self.patterns:
            names = topics.matching(pattern)
            if names is None and pattern not in self.matched:
                return self
            matched[pattern] = self.matched[pattern] if names is None else names
        group = self if matched == self.matched else replace(self, matched=matched)
        existing = [topics.by_name[name] for name in group._subscribed_topics if name in topics.by_name]
        current = {topic.name: TopicMetadata(topic.topic_id, topic.name, len(topic.partitions)) for topic in existing}
        return group if current == group.topics else replace(group, topics=current)

    def with_new_epoch(self) -> ConsumerGroup:
        """The group after a change that needs another assignment."""
        return replace(self, epoch=self.epoch + 1)

    def preferred_assignor(self, default: str) -> str:
        """The assignor that most members ask for; `default` if none of them asks."""
        votes = Counter(member.assignor for member in self.members.values() if member.assignor is not None)
        return max(votes, key=lambda name: votes[name], default=default)

    def with_new_target(self, assignor: Assignor) -> ConsumerGroup:
        """The group with a target assignment for its epoch."""
        ids = {name: metadata.topic_id for name, metadata in self.topics.items()}
        subscribers = {
            member_id: Subscriber(
                topics=frozenset(ids[name] for name in self.topics_of(member) if name in ids),
                target=self.target.get(member_id, NOTHING),
                instance_id=member.instance_id,
            )
            for member_id, member in self.members.items()
        }
        counts = {metadata.topic_id: metadata.partition_count for metadata in self.topics.values()}
        return replace(self, target=assignor(subscribers, counts), assignment_epoch=self.epoch)

    # --- the way of one member

    def advance(
        self,
        member: ConsumerMember,
        owned: Assignment | None,
        topics: CurrentTopics,
        assignors: Mapping[str, Assignor],
    ) -> ConsumerGroup:
        """The group after it has heard of a member: what that wants may have changed, and it may take a step.

        `owned` is what the member says that it has, None if it says nothing. Raises BrokerError as
        `ConsumerMember.reconcile`.
        """
        before = self.members.get(member.member_id)
        group = self.with_member(member).with_current_topics(topics)
        if before is None or not member.wants_the_same(before) or group.topics != self.topics:
            group = group.with_new_epoch()
        if group.epoch > group.assignment_epoch:
            group = group.with_new_target(assignors[group.preferred_assignor(next(iter(assignors)))])
        target = group.target.get(member.member_id, NOTHING)
        return group.with_member(member.reconcile(group.assignment_epoch, target, owned, group.is_free))

    def remove(self, member_ids: Iterable[str], topics: CurrentTopics) -> ConsumerGroup:
        """The group after members have left; the others get their partitions as they are heard of."""
        return self.without_members(member_ids).with_current_topics(topics).with_new_epoch()
