"""The interface through which the coordinator serves a group, whichever protocol the group uses."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Generic, Protocol, TypeVar

from ....protocol.messages.heartbeat import HeartbeatRequest
from ....protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from ....protocol.messages.leave_group import MemberIdentity, MemberResponse
from ....protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from ....protocol.topic_partition import TopicPartition
from ...server.pending import Pending
from .classic_protocol import Committer, JoiningClient

GroupT = TypeVar("GroupT")
GroupT_contra = TypeVar("GroupT_contra", contravariant=True)


class GroupProtocol(Protocol[GroupT_contra]):
    """A protocol of groups: it serves classic requests on its groups. Each method raises BrokerError for a refusal."""

    def join(
        self, group: GroupT_contra, request: JoinGroupRequest, client: JoiningClient
    ) -> Pending[JoinGroupResponse]:
        """Add or update a member; the answer is pending until the generation begins."""

    def sync(self, group: GroupT_contra, request: SyncGroupRequest) -> Pending[SyncGroupResponse]:
        """Return the member's assignment; the answer is pending until there is one."""

    def heartbeat(self, group: GroupT_contra, request: HeartbeatRequest) -> None:
        """Extend the member's session. Raises BrokerError REBALANCE_IN_PROGRESS if the member must rejoin."""

    def leave(self, group: GroupT_contra, members: Sequence[MemberIdentity]) -> list[MemberResponse]:
        """Remove members; the answer has an error for each member that could not be removed."""

    def check_commit(self, group: GroupT_contra, committer: Committer, *, is_transactional: bool) -> None:
        """Check that the client may commit offsets."""

    def check_fetch(self, group: GroupT_contra, member_id: str | None, member_epoch: int) -> None:
        """Check that the client may fetch committed offsets."""

    def resume(self, group: GroupT_contra) -> None:
        """Start a new session for each member of a group that was just loaded."""

    def hand_over(self, group: GroupT_contra) -> None:
        """Refuse pending requests and cancel all timers: another broker coordinates the group now."""

    def delete(self, group: GroupT_contra, committed: Collection[TopicPartition]) -> None:
        """Write the tombstones of a group without members and of its committed offsets, and remove the group."""


class ServedGroup(Generic[GroupT]):
    """A group together with its protocol; the methods are those of `GroupProtocol`."""

    __slots__ = ("_group", "_protocol")

    def __init__(self, group: GroupT, protocol: GroupProtocol[GroupT]) -> None:
        self._group = group
        self._protocol = protocol

    def join(self, request: JoinGroupRequest, client: JoiningClient) -> Pending[JoinGroupResponse]:
        """See `GroupProtocol.join`."""
        return self._protocol.join(self._group, request, client)

    def sync(self, request: SyncGroupRequest) -> Pending[SyncGroupResponse]:
        """See `GroupProtocol.sync`."""
        return self._protocol.sync(self._group, request)

    def heartbeat(self, request: HeartbeatRequest) -> None:
        """See `GroupProtocol.heartbeat`."""
        self._protocol.heartbeat(self._group, request)

    def leave(self, members: Sequence[MemberIdentity]) -> list[MemberResponse]:
        """See `GroupProtocol.leave`."""
        return self._protocol.leave(self._group, members)

    def check_commit(self, committer: Committer, *, is_transactional: bool) -> None:
        """See `GroupProtocol.check_commit`."""
        self._protocol.check_commit(self._group, committer, is_transactional=is_transactional)

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """See `GroupProtocol.check_fetch`."""
        self._protocol.check_fetch(self._group, member_id, member_epoch)

    def resume(self) -> None:
        """See `GroupProtocol.resume`."""
        self._protocol.resume(self._group)

    def hand_over(self) -> None:
        """See `GroupProtocol.hand_over`."""
        self._protocol.hand_over(self._group)

    def delete(self, committed: Collection[TopicPartition]) -> None:
        """See `GroupProtocol.delete`."""
        self._protocol.delete(self._group, committed)
