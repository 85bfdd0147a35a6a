"""The state of one member of a classic group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ....protocol.messages.join_group import JoinGroupResponse
from ....protocol.messages.sync_group import SyncGroupResponse
from ...server.pending import Pending
from ...server.timers import Timer


class MemberProtocol(NamedTuple):
    """An assignment strategy that a member supports, with the member's metadata for the leader."""

    name: str
    metadata: bytes


@dataclass(slots=True, eq=False)
class ClassicMember:
    """A member of a classic group: its identity, its protocols, its assignment and its pending requests."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocol_type: str
    protocols: Sequence[MemberProtocol]
    assignment: bytes = b""
    is_new: bool = False
    """Whether the member joins for the first time: it has no member id yet and cannot send heartbeats."""
    parked_join: Pending[JoinGroupResponse] | None = None
    parked_sync: Pending[SyncGroupResponse] | None = None
    session: Timer | None = field(default=None, repr=False)

    @property
    def is_static(self) -> bool:
        """Whether the member has an instance id (KIP-345)."""
        return self.group_instance_id is not None

    @property
    def protocol_names(self) -> set[str]:
        """The names of the supported protocols."""
        return {protocol.name for protocol in self.protocols}

    def metadata_for(self, protocol_name: str | None) -> bytes:
        """Return the member's metadata for a protocol, empty if the member does not support the protocol."""
        return next((protocol.metadata for protocol in self.protocols if protocol.name == protocol_name), b"")

    def vote(self, candidates: set[str]) -> str:
        """Return the member's preferred protocol among `candidates`, of which it supports at least one."""
        return next(protocol.name for protocol in self.protocols if protocol.name in candidates)

    def answer_join(self, response: JoinGroupResponse) -> bool:
        """Answer the pending JoinGroup; return False if there is none."""
        parked, self.parked_join = self.parked_join, None
        if parked is not None:
            parked.complete(response)
        return parked is not None

    def answer_sync(self, response: SyncGroupResponse) -> bool:
        """Answer the pending SyncGroup; return False if there is none."""
        parked, self.parked_sync = self.parked_sync, None
        if parked is not None:
            parked.complete(response)
        return parked is not None
