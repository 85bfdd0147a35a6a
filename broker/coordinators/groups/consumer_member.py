"""A member of a group of the consumer protocol (KIP-848) as an immutable value, and its steps to the target assignment.

A member moves to its target in steps that never give a partition two owners:

                              its target has changed, and lacks partitions that the member has
       STABLE ----------------------------------------------------------------> UNREVOKED_PARTITIONS
         ^  \\                                                                      |
         |   \\  it may have all of its target,                                     | it no longer names them
         |    \\ some of which others have not released                             | as its own
         |     v                                                                   v
         +--- UNRELEASED_PARTITIONS  <--------- (or STABLE, or others to revoke) --+
          they have

Source: Kafka `ConsumerGroupMember`, `MemberState`, `CurrentAssignmentBuilder`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import NamedTuple
from uuid import UUID

from ....protocol.errors import BrokerError, ErrorCode
from .assignment import NOTHING, Assignment, common, overlap, together, without
from .classic_member import MemberProtocol

LEAVE_EPOCH = -1
"""A member's epoch when it leaves."""
LEAVE_FOR_A_WHILE_EPOCH = -2
"""A static member's epoch when it leaves, to be back with another member id before its session ends."""


class MemberState(IntEnum):
    """A state of a member's reconciliation; the numbers are those of the log."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127
    """A state that a later version of Kafka has written."""


class ClassicSide(NamedTuple):
    """A record of the classic protocol's data of a member that still uses that protocol in an upgraded group."""

    session_timeout_ms: int
    protocols: tuple[MemberProtocol, ...]


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    """A member: its identity, its subscription, its assignment, and the partitions that it must revoke."""

    member_id: str
    epoch: int = 0
    """The epoch of the target that the member has reached, or one of the leaving epochs."""
    previous_epoch: int = -1
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    client_id: str = ""
    client_host: str = ""
    subscribed_topics: frozenset[str] = frozenset()
    subscribed_regex: str | None = ""
    assignor: str | None = None
    """The server-side assignor that the member prefers."""
    classic: ClassicSide | None = None
    """None if the member uses the consumer protocol."""
    state: MemberState = MemberState.STABLE
    assigned: Assignment = field(default_factory=dict)
    """Partitions that the member may consume."""
    revoking: Assignment = field(default_factory=dict)
    """Partitions that the member must revoke and has not confirmed yet."""

    def is_reconciled_to(self, epoch: int) -> bool:
        """Return whether the member has exactly the target of this epoch."""
        return self.state is MemberState.STABLE and self.epoch == epoch

    def wants_the_same(self, other: ConsumerMember) -> bool:
        """Return whether both members have the same subscription."""
        return self.subscribed_topics == other.subscribed_topics and (self.subscribed_regex or "") == (
            other.subscribed_regex or ""
        )

    def left_for_a_while(self) -> ConsumerMember:
        """Return the member as one that has left and keeps its place until its session ends."""
        return replace(self, epoch=LEAVE_FOR_A_WHILE_EPOCH, revoking=NOTHING)

    def reconcile(
        self, target_epoch: int, target: Assignment, owned: Assignment | None, is_free: Callable[[UUID, int], bool]
    ) -> ConsumerMember:
        """Return the member after its next step to the target, or the member itself if no step is possible now.

        `owned` are the partitions that the member reports, None if it reports none. Raises BrokerError
        FENCED_MEMBER_EPOCH for a member in a state of a later Kafka that still owns partitions.
        """
        if self.is_reconciled_to(target_epoch):
            return self
        if self.state is MemberState.UNREVOKED_PARTITIONS:
            if _has_any(owned, self.revoking):
                return self
            return self._step(self.epoch + 1, target_epoch, target, owned, is_free)
        if self.state is MemberState.UNKNOWN:
            if owned is None or owned:
                raise BrokerError(
                    ErrorCode.FENCED_MEMBER_EPOCH,
                    "The consumer group member is in a unknown state. "
                    "The member must abandon all its partitions and rejoin.",
                )
            return self._step(target_epoch, target_epoch, target, owned, is_free)
        return self._step(self.epoch, target_epoch, target, owned, is_free)

    def _step(
        self,
        revoking_epoch: int,
        target_epoch: int,
        target: Assignment,
        owned: Assignment | None,
        is_free: Callable[[UUID, int], bool],
    ) -> ConsumerMember:
        kept = common(self.assigned, target)
        revoking = without(self.assigned, kept)
        if revoking and _has_any(owned, revoking):
            return replace(
                self,
                state=MemberState.UNREVOKED_PARTITIONS,
                epoch=revoking_epoch,
                previous_epoch=self.epoch,
                assigned=kept,
                revoking=revoking,
            )
        wanted = without(target, kept)
        new = {
            topic_id: frozenset(index for index in partitions if is_free(topic_id, index))
            for topic_id, partitions in wanted.items()
        }
        new = {topic_id: partitions for topic_id, partitions in new.items() if partitions}
        return replace(
            self,
            state=MemberState.STABLE if new == wanted else MemberState.UNRELEASED_PARTITIONS,
            epoch=target_epoch,
            previous_epoch=self.epoch,
            assigned=together(kept, new),
            revoking=NOTHING,
        )


def _has_any(owned: Assignment | None, partitions: Assignment) -> bool:
    """Return whether the member may still consume some of these partitions; True if it does not report any."""
    return owned is None or overlap(owned, partitions)
