"""A group of the consumer protocol (KIP-848) as an immutable value, whose state follows from three epochs.

The *group epoch* counts changes of members, subscriptions and topics. The *assignment epoch* is the group epoch for
which the target assignment was computed. A *member epoch* is the assignment epoch that the member has reached. The
state is Empty without members; Assigning if the assignment epoch is behind the group epoch; Reconciling if members are
behind the assignment epoch; else Stable.

A change creates a new group value, which is written to the log before it replaces the old one. Source: Kafka
`ConsumerGroup`, `ModernGroup`, `TargetAssignmentBuilder`.
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
from .classic_group import CONSUMER_PROTOCOL_TYPE
from .consumer_member import ConsumerMember, MemberState
from .current_topics import CurrentTopics


class ConsumerGroupState(Enum):
    """A state of a group of the consumer protocol; its value is the name that tools show."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class TopicMetadata(NamedTuple):
    """The facts about a topic on which an assignment depends."""

    topic_id: UUID
    name: str
    partition_count: int


@dataclass(frozen=True)
class ConsumerGroup:
    """A group of the consumer protocol; `members` is in the order of joining."""

    group_id: str
    epoch: int = 0
    assignment_epoch: int = 0
    members: Mapping[str, ConsumerMember] = field(default_factory=dict)
    target: Mapping[str, Assignment] = field(default_factory=dict)
    """By member id: the target assignment of the assignment epoch."""
    topics: Mapping[str, TopicMetadata] = field(default_factory=dict)
    """By name: the subscribed topics that existed when the group epoch started."""
    matched: Mapping[str, frozenset[str]] = field(default_factory=dict, compare=False)
    """Matching topics by pattern, for members that subscribe with a pattern; computed again after a restart."""

    @property
    def protocol_type(self) -> str:
        """The protocol type that tools show, which is that of classic consumers."""
        return CONSUMER_PROTOCOL_TYPE

    @property
    def state(self) -> ConsumerGroupState:
        """The state that follows from the epochs."""
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.assignment_epoch:
            return ConsumerGroupState.ASSIGNING
        if all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values()):
            return ConsumerGroupState.STABLE
        return ConsumerGroupState.RECONCILING

    @property
    def is_empty(self) -> bool:
        """Whether the group has no members."""
        return not self.members

    @property
    def is_unused(self) -> bool:
        """Whether the group has no members."""
        return not self.members

    @property
    def is_consumer_group(self) -> bool:
        """Whether subscriptions can be read: always, unlike those of a classic group."""
        return True

    # --- members

    def member(self, member_id: str) -> ConsumerMember:
        """Return a member by its id. Raises BrokerError UNKNOWN_MEMBER_ID."""
        member = self.members.get(member_id)
        if member is None:
            raise BrokerError(
                ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {self.group_id}."
            )
        return member

    def static_member(self, instance_id: str) -> ConsumerMember | None:
        """Return the member with this instance id (KIP-345), None if there is none."""
        return self._static_members.get(instance_id)

    @cached_property
    def _static_members(self) -> dict[str, ConsumerMember]:
        return {member.instance_id: member for member in self.members.values() if member.instance_id is not None}

    def with_member(self, member: ConsumerMember) -> ConsumerGroup:
        """Return the group with this member added or updated."""
        if self.members.get(member.member_id) == member:
            return self
        return replace(self, members={**self.members, member.member_id: member})

    def without_members(self, member_ids: Iterable[str]) -> ConsumerGroup:
        """Return the group without these members and their targets."""
        leaving = set(member_ids)
        return replace(
            self,
            members={member_id: member for member_id, member in self.members.items() if member_id not in leaving},
            target={member_id: target for member_id, target in self.target.items() if member_id not in leaving},
        )

    def with_replaced(self, old: ConsumerMember, new_member_id: str) -> ConsumerGroup:
        """Return the group in which a static member has a new id: with its old place and target, and epoch 0."""
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
        """Return whether no member owns this partition or is still revoking it."""
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
        """Return whether other members must first release the partitions that this member lacks."""
        if member.state is not MemberState.UNRELEASED_PARTITIONS:
            return False
        missing = without(self.target.get(member.member_id, NOTHING), member.assigned)
        return any(not self.is_free(topic_id, index) for topic_id, indexes in missing.items() for index in indexes)

    # --- subscriptions and targets

    def topics_of(self, member: ConsumerMember) -> frozenset[str]:
        """Return the names of the topics that a member subscribes to, whether they exist or not."""
        if not member.subscribed_regex:
            return member.subscribed_topics
        return member.subscribed_topics | self.matched.get(member.subscribed_regex, frozenset())

    @cached_property
    def _subscribed_topics(self) -> frozenset[str]:
        return frozenset().union(*map(self.topics_of, self.members.values()))

    def is_subscribed_to(self, topic: str) -> bool:
        """Return whether a member subscribes to the topic."""
        return topic in self.topics or topic in self._subscribed_topics

    @cached_property
    def patterns(self) -> frozenset[str]:
        """The regular expressions with which members subscribe."""
        return frozenset(member.subscribed_regex for member in self.members.values() if member.subscribed_regex)

    def with_current_topics(self, topics: CurrentTopics) -> ConsumerGroup:
        """Return the group with the present topics of its subscriptions, and their partition counts.

        A pattern that is still being matched keeps its previous topics; if it has none, as after a restart, the group
        is returned unchanged.
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
        """Return the group with the next group epoch, after a change that needs a new assignment."""
        return replace(self, epoch=self.epoch + 1)

    def preferred_assignor(self, default: str) -> str:
        """Return the assignor that most members prefer; `default` if no member names one."""
        votes = Counter(member.assignor for member in self.members.values() if member.assignor is not None)
        return max(votes, key=lambda name: votes[name], default=default)

    def with_new_target(self, assignor: Assignor) -> ConsumerGroup:
        """Return the group with a target assignment for its epoch."""
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

    # --- the steps of one member

    def advance(
        self,
        member: ConsumerMember,
        owned: Assignment | None,
        topics: CurrentTopics,
        assignors: Mapping[str, Assignor],
    ) -> ConsumerGroup:
        """Return the group after a member's heartbeat: its subscription may have changed, and it may take one step.

        `owned` are the partitions that the member reports, None if it reports none. Raises BrokerError as
        `ConsumerMember.reconcile` does.
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
        """Return the group without these members, in a new epoch.

        The others get the partitions at their next heartbeats.
        """
        return self.without_members(member_ids).with_current_topics(topics).with_new_epoch()
