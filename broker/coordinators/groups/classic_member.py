"""One member of a classic group, as values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ....protocol.messages.join_group import JoinGroupResponse
from ....protocol.messages.sync_group import SyncGroupResponse
from ...server.promise import Promise
from ...server.timers import Timer


class MemberProtocol(NamedTuple):
    """An assignment strategy that a member supports, and what it tells the leader for that strategy."""

    name: str
    metadata: bytes


@dataclass(slots=True, eq=False)
class ClassicMember:
    """A member: who it is, what it supports, what it was given, and which of its requests are parked."""

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
    """Joining for the first time: it has no member id yet and cannot send heartbeats."""
    parked_join: Promise[JoinGroupResponse] | None = None
    parked_sync: Promise[SyncGroupResponse] | None = None
    session: Timer | None = field(default=None, repr=False)

    @property
    def is_static(self) -> bool:
        """Whether it has an instance id (KIP-345)."""
        return self.group_instance_id is not None

    @property
    def protocol_names(self) -> set[str]:
        """Names of the supported strategies."""
        return {protocol.name for protocol in self.protocols}

    def metadata_for(self, protocol_name: str | None) -> bytes:
        """What it tells the leader for a strategy, empty if it does not support that."""
        return next((protocol.metadata for protocol in self.protocols if protocol.name == protocol_name), b"")

    def vote(self, candidates: set[str]) -> str:
        """The strategy it likes best among `candidates`, of which it supports at least one."""
        return next(protocol.name for protocol in self.protocols if protocol.name in candidates)

    def answer_join(self, response: JoinGroupResponse) -> bool:
        """Answer the parked JoinGroup; False if there is none."""
        parked, self.parked_join = self.parked_join, None
        if parked is not None:
            parked.keep(response)
        return parked is not None

    def answer_sync(self, response: SyncGroupResponse) -> bool:
        """Answer the parked SyncGroup; False if there is none."""
        parked, self.parked_sync = self.parked_sync, None
        if parked is not None:
            parked.keep(response)
        return parked is not None
