"""Work that grows with the members of a group, and with the number of groups."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from bench.broker_pair import BenchBroker
from bench.curves.work import Figures, Work, WorkOfConnections, asker, connect, cpu_us, create_topics, resident_mib
from gregor.protocol.apis import ApiKey
from gregor.protocol.codec import encode
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from gregor.protocol.messages.describe_groups import DescribeGroupsRequest
from gregor.protocol.messages.find_coordinator import FindCoordinatorRequest
from gregor.protocol.messages.heartbeat import HeartbeatRequest
from gregor.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from gregor.protocol.messages.list_groups import ListGroupsRequest
from gregor.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from gregor.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.wire import Wire

NO_COORDINATOR_YET = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)
"""The errors after which a client looks for the coordinator again."""
RETRY_S = 0.05
SUBSCRIPTION = bytes(2) + encode(ConsumerProtocolSubscription(topics=["t0"], user_data=b"x" * 30), 0)
"""The metadata of a member, after its version. Kafka never answers JoinGroup if it cannot read the metadata."""


def await_coordinator(wire: Wire, group: str) -> None:
    """Return when the broker coordinates the group and has loaded its partition of `__consumer_offsets`."""
    while True:
        found = wire.ask(ApiKey.FIND_COORDINATOR, 1, FindCoordinatorRequest(key=group))
        if not found.error_code:
            described = wire.ask(ApiKey.DESCRIBE_GROUPS, 1, DescribeGroupsRequest(groups=[group])).groups[0]
            if described.error_code not in NO_COORDINATOR_YET:
                return
        time.sleep(RETRY_S)


class Members(WorkOfConnections):
    """Members of one group: the time of a rebalance in which all take part, and their heartbeats."""

    NAME = "members of a group"
    SIZES = (1, 10, 100, 1_000)
    # The default, which ../shared/peer overrides: all members join before the first generation begins.
    SETTINGS = ("group.initial.rebalance.delay.ms=3000",)

    def measure(self, broker: BenchBroker, size: int) -> Figures:
        """Let a new group of that size form, and send heartbeats of all members."""
        group = f"group-{size}"
        with connect(broker) as wire:
            await_coordinator(wire, group)
        before, begun = broker.cpu_seconds(), time.monotonic()
        protocol = JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION)
        joining = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=60_000,
            rebalance_timeout_ms=60_000,
            protocol_type="consumer",
            protocols=[protocol],
        )
        joined = self._all(ApiKey.JOIN_GROUP, 3, [joining] * size)
        leader = joined[0].leader
        given = [SyncGroupRequestAssignment(member_id=answer.member_id, assignment=b"x" * 50) for answer in joined]
        self._all(
            ApiKey.SYNC_GROUP,
            2,
            [
                SyncGroupRequest(
                    group_id=group,
                    generation_id=answer.generation_id,
                    member_id=answer.member_id,
                    assignments=given if answer.member_id == leader else [],
                )
                for answer in joined
            ],
        )
        figures = {"rebalance, s": time.monotonic() - begun, "rebalance, CPU s": broker.cpu_seconds() - before}
        frames = [
            wire.frame(
                ApiKey.HEARTBEAT,
                2,
                HeartbeatRequest(group_id=group, generation_id=answer.generation_id, member_id=answer.member_id),
            )
            for wire, answer in zip(self._wires, joined, strict=True)
        ]

        def beat() -> int:
            for wire, frame in zip(self._wires, frames, strict=True):
                wire.socket.sendall(frame)
                wire.receive_frame()
            return size

        return figures | {"Heartbeat, CPU us": cpu_us(broker, beat), "RSS, MiB": resident_mib(broker)}

    def _all(self, key: ApiKey, version: int, requests: Sequence[Any]) -> list[Any]:
        """Send a request on each connection; return the answers, none of which has an error."""
        for wire, request in zip(self._wires, requests, strict=True):
            wire.send(key, version, request)
        answers = [wire.answer(key, version) for wire in self._wires]
        refused = {ErrorCode(answer.error_code).name for answer in answers if answer.error_code}
        if refused:
            raise RuntimeError(f"{key.name}: {', '.join(sorted(refused))}")
        return answers


class Groups(Work):
    """Groups with committed offsets: a commit, and the list of all groups."""

    NAME = "groups"
    SIZES = (1, 100, 1_000, 10_000)

    def __init__(self) -> None:
        self._count = 0

    def grow(self, broker: BenchBroker, size: int) -> None:
        """Commit an offset for each new group."""
        create_topics(broker, ["t0"])
        with connect(broker) as wire:
            while self._count < size:
                answer = wire.ask(ApiKey.OFFSET_COMMIT, 2, self._commit(self._count))
                error = answer.topics[0].partitions[0].error_code
                if error == ErrorCode.NONE:
                    self._count += 1
                elif error in NO_COORDINATOR_YET:
                    await_coordinator(wire, f"g{self._count}")
                else:
                    raise RuntimeError(f"OffsetCommit: {ErrorCode(error).name}")

    def measure(self, broker: BenchBroker, size: int) -> Figures:
        """Return the CPU cost of requests while there are that many groups."""
        with connect(broker) as wire:
            return {
                "OffsetCommit, CPU us": cpu_us(broker, asker(wire, ApiKey.OFFSET_COMMIT, 2, self._commit(0), 200)),
                "ListGroups, CPU us": cpu_us(broker, asker(wire, ApiKey.LIST_GROUPS, 2, ListGroupsRequest(), 1)),
                "RSS, MiB": resident_mib(broker),
            }

    def _commit(self, number: int) -> OffsetCommitRequest:
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=7)
        topic = OffsetCommitRequestTopic(name="t0", partitions=[partition])
        return OffsetCommitRequest(group_id=f"g{number}", topics=[topic])
