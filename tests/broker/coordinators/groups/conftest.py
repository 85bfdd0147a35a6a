"""A group coordinator without sockets and files: its topic is in memory, its time jumps."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import pytest
import trio

from gregor.broker.config import BrokerConfig
from gregor.broker.coordinators.groups.classic_protocol import JoiningClient
from gregor.broker.coordinators.groups.coordinator import OFFSETS_TOPIC, GroupCoordinator
from gregor.broker.metadata.state import PartitionState, TopicState
from gregor.broker.server.pending import Pending, completed
from gregor.protocol.errors import BrokerError, ErrorCode
from gregor.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from gregor.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from gregor.protocol.records.offsets_cy import assign_offsets
from gregor.storage.clock import ManualClock


class MemoryLog:
    """A partition and its log in memory, as a coordinator uses them; its followers may be `cut_off`."""

    def __init__(self) -> None:
        self.role = None
        self.cut_off = False
        self._waiting: list[Pending[ErrorCode]] = []
        self.config = SimpleNamespace(max_message_bytes=1 << 20)
        self.log_start_offset = 0
        self.log_end_offset = 0
        self.batches: list[tuple[int, bytes]] = []
        self.log = self

    def append(self, produced: Any, **_: object) -> Any:
        base_offset = self.log_end_offset
        self.log_end_offset = assign_offsets(produced, base_offset, leader_epoch=0) + 1
        self.batches.append((base_offset, bytes(produced.data)))
        return SimpleNamespace(base_offset=base_offset)

    def is_replicated(self, offset: int) -> bool:
        return not self.cut_off

    def replicated(self, offset: int, timeout_s: float = 0) -> Pending[ErrorCode]:
        if not self.cut_off:
            return completed(ErrorCode.NONE)
        self._waiting.append(Pending())
        return self._waiting[-1]

    def settle_all(self, code: ErrorCode = ErrorCode.NONE) -> None:
        """Complete all pending appends: the followers have the records, or an error is known."""
        waiting, self._waiting = self._waiting, []
        for pending in waiting:
            pending.complete(code)

    def read(self, offset: int, max_bytes: int) -> Any:
        return MemorySlice(b"".join(data for base, data in self.batches if base >= offset))


class MemorySlice:
    def __init__(self, data: bytes) -> None:
        self._data = data

    def read(self) -> bytes:
        return self._data

    def __enter__(self) -> MemorySlice:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class MemoryTopics:
    """A set of internal topics of four partitions each."""

    COUNT = 4

    def __init__(self) -> None:
        self.topics: dict[str, list[MemoryLog]] = {}

    def ensure_internal_topic(self, name: str) -> int:
        self.topics.setdefault(name, [MemoryLog() for _ in range(self.COUNT)])
        return self.COUNT

    def internal_topic_partitions(self, name: str) -> int:
        return len(self.topics.get(name, ()))

    def internal_partition(self, name: str, index: int) -> Any:
        return self.topics[name][index]


class KnownTopics:
    """A set of the topics that clients can read."""

    def __init__(self) -> None:
        self.topics: dict[str, TopicState] = {}
        self.changes = 0

    def topic_by_id(self, topic_id: UUID) -> TopicState | None:
        return next((topic for topic in self.topics.values() if topic.topic_id == topic_id), None)

    @property
    def end_offset(self) -> int:
        return self.changes

    def add(self, name: str, partitions: int) -> UUID:
        """Create a topic, or give it more partitions."""
        self.changes += 1
        topic = self.topics.setdefault(name, TopicState(name, uuid4()))
        topic.partitions = [PartitionState(index, 0, 0, [0], [0]) for index in range(partitions)]
        return topic.topic_id


class Bench:
    """A running coordinator with methods for the steps of a scenario."""

    def __init__(self, nursery: trio.Nursery, clock: ManualClock) -> None:
        self.clock = clock
        self.topics = MemoryTopics()
        self.known_topics = KnownTopics()
        self.settings: dict[str, Any] = {"group_initial_rebalance_delay_ms": 0}
        self._nursery = nursery
        self.groups = self._new_coordinator()

    def _new_coordinator(self) -> GroupCoordinator:
        return GroupCoordinator(BrokerConfig(**self.settings), self.clock, self.topics, self.known_topics)

    async def start(self, **settings: Any) -> GroupCoordinator:
        """Start a coordinator, also in the place of a running one: its state is that of the log."""
        self.settings |= settings
        self.groups = self._new_coordinator()
        self.groups.load_all()
        await self._nursery.start(self.groups.run)
        await trio.testing.wait_all_tasks_blocked()
        return self.groups

    def join(
        self,
        member_id: str = "",
        *,
        group: str = "g",
        protocols: Sequence[tuple[str, bytes]] = (("range", b"meta"),),
        instance: str | None = None,
        session_ms: int = 10_000,
        rebalance_ms: int = 30_000,
        version: int = 3,
        kind: str = "consumer",
    ) -> Pending[JoinGroupResponse]:
        request = JoinGroupRequest(
            group_id=group,
            member_id=member_id,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            group_instance_id=instance,
            protocol_type=kind,
            protocols=[JoinGroupRequestProtocol(name=name, metadata=metadata) for name, metadata in protocols],
        )
        client = JoiningClient("client", "/host", takes_member_id=version >= 4, skips_assignment=version >= 9)
        return self.groups.join(request, client)

    def sync(
        self,
        joined: JoinGroupResponse,
        assignments: dict[str, bytes] | None = None,
        *,
        group: str = "g",
        instance: str | None = None,
    ) -> Pending[SyncGroupResponse]:
        request = SyncGroupRequest(
            group_id=group,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            group_instance_id=instance,
            assignments=[
                SyncGroupRequestAssignment(member_id=member, assignment=data)
                for member, data in (assignments or {}).items()
            ],
        )
        try:
            return self.groups.sync(request)
        except BrokerError as refusal:
            return completed(SyncGroupResponse(error_code=refusal.code))

    @staticmethod
    def outcome(call: Callable[[], object]) -> ErrorCode:
        """Make a call; return the code of its refusal, NONE if it is not refused."""
        try:
            call()
        except BrokerError as refusal:
            return refusal.code
        return ErrorCode.NONE

    async def stable_member(self, **details: Any) -> JoinGroupResponse:
        """Return the only member of a stable group."""
        joined = await self.join(**details).wait()
        assert joined.error_code == ErrorCode.NONE
        where = {name: details[name] for name in ("group", "instance") if name in details}
        synced = await self.sync(joined, {joined.member_id: b"all"}, **where).wait()
        assert synced.error_code == ErrorCode.NONE
        return joined

    def log(self, group: str = "g") -> MemoryLog:
        """Return the log of a group's partition."""
        index = self.groups.partition_of(group)
        return self.topics.topics[OFFSETS_TOPIC][index]

    def state(self, group: str = "g") -> str:
        return self.groups.describe(group).group_state


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    """Provide a bench, for tests whose own signature has `autojump_clock`, as pytest-trio needs."""
    async with trio.open_nursery() as nursery:
        yield Bench(nursery, ManualClock(1_700_000_000_000))
        nursery.cancel_scope.cancel()
