"""``python -m bench.rebalance``: the time of a rebalance of a classic group of 50 members, beside Apache Kafka 3.9.1.

Each member is a connection of its own that acts as a consumer: JoinGroup, SyncGroup, heartbeats, and a new JoinGroup
when a heartbeat requests it. Three times are measured, round by round and broker by broker: all members join at once;
one leaves; one joins again. Each ends when every member has its assignment of the same generation. The first rebalance
has no delay (`group.initial.rebalance.delay.ms=0`); heartbeats are 100 ms apart, so that up to 100 ms of the last two
times are due to the members. Medians; lowest and highest in brackets.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections import defaultdict
from pathlib import Path

import trio

from bench.broker_pair import BenchBroker, broker_pair
from gregor.client.config import ClientConfig
from gregor.client.metrics import Metrics
from gregor.client.wire.connection import Connection
from gregor.protocol.codec import encode
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages.consumer_protocol_assignment import ConsumerProtocolAssignment, TopicPartition
from gregor.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from gregor.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from gregor.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from gregor.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from gregor.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from gregor.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse

TOPIC, PARTITIONS = "rebalanced", 200
JOIN_VERSION, SYNC_VERSION, HEARTBEAT_VERSION, LEAVE_VERSION = 9, 5, 4, 5
HEARTBEAT_S = 0.1
SESSION_MS = 30_000
EMBEDDED_VERSION = b"\0\0"
"""The version before a subscription or an assignment inside JoinGroup and SyncGroup."""
SUBSCRIPTION = EMBEDDED_VERSION + encode(ConsumerProtocolSubscription(topics=[TOPIC]), 0)
AGAIN = (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION)


NOT_YET = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)


class Group:
    """The state of a group, as its members see it."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self._generations: dict[int, int] = {}
        self._size = 0
        self._generation = -1
        self._changed = trio.Event()

    def led(self, generation: int, size: int) -> None:
        """Note that the leader of a generation received the list of members."""
        self._generation, self._size = generation, size

    def assigned(self, number: int, generation: int) -> None:
        """Note that a member has its assignment."""
        self._generations[number] = generation
        self._tell()

    def left(self, number: int) -> None:
        """Note that a member has left."""
        self._generations.pop(number, None)
        self._tell()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    async def stable(self, size: int) -> None:
        """Wait until `size` members have assignments of the newest generation."""
        while (
            self._size != size
            or len(self._generations) != size
            or set(self._generations.values()) != {self._generation}
        ):
            await self._changed.wait()


class Member:
    """A consumer's part in the protocol; `number` identifies the member in the group."""

    def __init__(self, group: Group, number: int, connection: Connection) -> None:
        self._group = group
        self._number = number
        self._connection = connection
        self._member_id = ""
        self._leaving = trio.Event()

    async def run(self) -> None:
        """Run the protocol until `leave`."""
        while not self._leaving.is_set():
            generation = await self._join_and_sync()
            if generation is not None:
                self._group.assigned(self._number, generation)
                await self._stay(generation)
        identity = MemberIdentity(member_id=self._member_id)
        request = LeaveGroupRequest(group_id=self._group.group_id, members=[identity])
        await self._connection.request(request, LeaveGroupResponse, version=LEAVE_VERSION)
        self._group.left(self._number)

    def leave(self) -> None:
        """Leave the group at once."""
        self._leaving.set()

    async def _join_and_sync(self) -> int | None:
        """Return the generation of this member's assignment; None if another one has begun meanwhile."""
        joined = await self._join()
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = joined.member_id
            joined = await self._join()
        if joined.error_code:
            raise RuntimeError(f"JoinGroup: {ErrorCode(joined.error_code).name}")
        assignments: list[SyncGroupRequestAssignment] = []
        if joined.leader == self._member_id:
            members = [member.member_id for member in joined.members]
            self._group.led(joined.generation_id, len(members))
            assignments = assigned(members)
        request = SyncGroupRequest(
            group_id=self._group.group_id,
            generation_id=joined.generation_id,
            member_id=self._member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=assignments,
        )
        synced = await self._connection.request(request, SyncGroupResponse, version=SYNC_VERSION)
        if synced.error_code in AGAIN:
            return None
        if synced.error_code:
            raise RuntimeError(f"SyncGroup: {ErrorCode(synced.error_code).name}")
        return joined.generation_id

    async def _join(self) -> JoinGroupResponse:
        """Send JoinGroup, with retries while the group's coordinator is starting."""
        request = JoinGroupRequest(
            group_id=self._group.group_id,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=2 * SESSION_MS,
            member_id=self._member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION)],
        )
        while True:
            joined = await self._connection.request(request, JoinGroupResponse, version=JOIN_VERSION)
            if joined.error_code not in NOT_YET:
                return joined
            await trio.sleep(HEARTBEAT_S)

    async def _stay(self, generation: int) -> None:
        """Send heartbeats until the group rebalances or this member leaves."""
        request = HeartbeatRequest(group_id=self._group.group_id, generation_id=generation, member_id=self._member_id)
        while True:
            with trio.move_on_after(HEARTBEAT_S):
                await self._leaving.wait()
                return
            beat = await self._connection.request(request, HeartbeatResponse, version=HEARTBEAT_VERSION)
            if beat.error_code in AGAIN:
                return
            if beat.error_code:
                raise RuntimeError(f"Heartbeat: {ErrorCode(beat.error_code).name}")


def assigned(members: list[str]) -> list[SyncGroupRequestAssignment]:
    """Return every member's share of the partitions."""
    return [
        SyncGroupRequestAssignment(
            member_id=member,
            assignment=EMBEDDED_VERSION
            + encode(
                ConsumerProtocolAssignment(
                    assigned_partitions=[
                        TopicPartition(topic=TOPIC, partitions=list(range(PARTITIONS)[place :: len(members)]))
                    ]
                ),
                0,
            ),
        )
        for place, member in enumerate(members)
    ]


async def find_coordinator(broker: BenchBroker, group_id: str) -> None:
    """Find the coordinator, which makes the broker create its topic of groups if necessary."""
    async with trio.open_nursery() as nursery:
        connection = await connected(broker, nursery)
        code: int = ErrorCode.COORDINATOR_NOT_AVAILABLE
        while code in NOT_YET:
            request = FindCoordinatorRequest(key=group_id)
            code = (await connection.request(request, FindCoordinatorResponse, version=2)).error_code
            await trio.sleep(HEARTBEAT_S)
        nursery.cancel_scope.cancel()


async def connected(broker: BenchBroker, nursery: trio.Nursery) -> Connection:
    """Return a connection that is open as long as the nursery."""
    stream = await trio.open_tcp_stream(*broker.address)
    connection = Connection(stream, broker.name, ClientConfig(), Metrics())
    await nursery.start(connection.run)
    return connection


async def one_round(broker: BenchBroker, group_id: str, size: int) -> dict[str, float]:
    """Run one group; return the seconds of each phase, and the broker's CPU seconds in all."""
    figures: dict[str, float] = {}
    group = Group(group_id)
    await find_coordinator(broker, group_id)
    cpu_before = broker.cpu_seconds()
    async with trio.open_nursery() as connections:
        members = [Member(group, number, await connected(broker, connections)) for number in range(size)]
        spare = Member(group, size, await connected(broker, connections))
        async with trio.open_nursery() as life:
            begin = time.perf_counter()
            for member in members:
                life.start_soon(member.run)
            await group.stable(size)
            figures["all join"] = time.perf_counter() - begin
            begin = time.perf_counter()
            members[-1].leave()
            await group.stable(size - 1)
            figures["one leaves"] = time.perf_counter() - begin
            begin = time.perf_counter()
            life.start_soon(spare.run)
            await group.stable(size)
            figures["one joins"] = time.perf_counter() - begin
            for member in (*members, spare):
                member.leave()
        connections.cancel_scope.cancel()
    figures["broker CPU"] = broker.cpu_seconds() - cpu_before
    return figures


def main() -> int:
    """Run all rounds and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--members", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    results: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    with (
        tempfile.TemporaryDirectory(prefix="gregor-bench-") as scratch,
        broker_pair(
            Path(scratch), "group.initial.rebalance.delay.ms=0", "offsets.topic.replication.factor=1"
        ) as brokers,
    ):
        for broker in brokers:
            broker.start()
        for number in range(-1, arguments.rounds):
            for broker in brokers:
                figures = trio.run(one_round, broker, f"rebalance-{number}", arguments.members)
                for phase, seconds in figures.items():
                    # The first round warms the brokers up.
                    if number >= 0:
                        results[phase, broker.name].append(seconds * 1e3)
    print(f"| {arguments.members} members | broker | ms |\n|" + " --- |" * 3)
    for (phase, name), figures_ms in sorted(results.items()):
        middle = statistics.median(figures_ms)
        print(f"| {phase} | {name} | {middle:,.0f} ({min(figures_ms):,.0f}-{max(figures_ms):,.0f}) |")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
