"""One step of a member on its way from what it holds to its target assignment (KIP-848), as a pure function.

    Stable -----> UnrevokedPartitions -----> UnreleasedPartitions -----> Stable
       \\            (it gives up)              (others give up)            ^
        `-----------------------------------------------------------------'

No partition is ever held by two members: what another still holds is handed over only once that one has given it up.
Source: Kafka `CurrentAssignmentBuilder`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from uuid import UUID

from .consumer_member import Assignment, ConsumerMember, MemberState


def next_step(
    member: ConsumerMember,
    *,
    target_epoch: int,
    target: Assignment,
    is_held: Callable[[UUID, int], bool],
    owned: Assignment | None,
) -> ConsumerMember:
    """The member after this step; itself if it must wait.

    `is_held` says whether some member holds a partition or still has to give it up; `owned` is what the member says
    that it has, None if it says nothing new.
    """
    if member.state is MemberState.UNREVOKED_PARTITIONS:
        if _owns_any(owned, member.pending_revocation):
            return member
        return _advance(member, member.member_epoch + 1, target_epoch, target, is_held, owned)
    if member.has_reached(target_epoch):
        return member
    return _advance(member, member.member_epoch, target_epoch, target, is_held, owned)


def _advance(
    member: ConsumerMember,
    own_epoch: int,
    target_epoch: int,
    target: Assignment,
    is_held: Callable[[UUID, int], bool],
    owned: Assignment | None,
) -> ConsumerMember:
    kept: dict[UUID, frozenset[int]] = {}
    to_revoke: dict[UUID, frozenset[int]] = {}
    free: dict[UUID, frozenset[int]] = {}
    must_wait = False
    for topic_id in {*member.assigned, *target}:
        held, wanted = member.assigned.get(topic_id, frozenset()), target.get(topic_id, frozenset())
        missing = wanted - held
        available = frozenset(partition for partition in missing if not is_held(topic_id, partition))
        must_wait = must_wait or len(available) < len(missing)
        for found, partitions in ((kept, held & wanted), (to_revoke, held - wanted), (free, available)):
            if partitions:
                found[topic_id] = partitions
    if to_revoke and _owns_any(owned, to_revoke):
        return replace(
            member,
            state=MemberState.UNREVOKED_PARTITIONS,
            previous_epoch=member.member_epoch,
            member_epoch=own_epoch,
            assigned=kept,
            pending_revocation=to_revoke,
        )
    return replace(
        member,
        state=MemberState.UNRELEASED_PARTITIONS if must_wait else MemberState.STABLE,
        previous_epoch=member.member_epoch,
        member_epoch=target_epoch,
        assigned={
            topic_id: kept.get(topic_id, frozenset()) | free.get(topic_id, frozenset()) for topic_id in {*kept, *free}
        },
        pending_revocation={},
    )


def _owns_any(owned: Assignment | None, partitions: Assignment) -> bool:
    """Whether the member may still have some of these; one that says nothing still has what it had."""
    if owned is None:
        return True
    return any(owned.get(topic_id, frozenset()) & wanted for topic_id, wanted in partitions.items())
