"""Members leave their group, and transactions are aborted, also when the client is cancelled or a request is lost."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
import trio.testing

from gregor.client import Admin, Consumer, Producer
from gregor.client.config import ConsumerConfig
from gregor.client.consumer.classic_protocol_membership import ClassicProtocolMembership
from gregor.client.consumer.consumer_protocol_membership import ConsumerProtocolMembership
from gregor.client.consumer.poll_boundary import PollBoundary
from gregor.client.consumer.subscription import Subscription
from gregor.client.errors import ConnectionLostError
from gregor.client.wire.cluster import Cluster
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from gregor.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from gregor.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from gregor.protocol.schema import Message
from tests.broker_process import BrokerProcess
from tests.client.topics import filled_topic, new_topic
from tests.waiting import PATIENCE_S, eventually

PROTOCOLS: dict[str, dict[str, Any]] = {
    "range": {"partition_assignment_strategy": "range"},
    "cooperative-sticky": {"partition_assignment_strategy": "cooperative-sticky"},
    "consumer": {"group_protocol": "consumer"},
}
each_protocol = pytest.mark.parametrize("protocol", PROTOCOLS)


class OneCoordinator:
    """A cluster and its only connection: `farewells` are the outcomes of the requests to leave, one after another."""

    def __init__(self, *farewells: Exception | ErrorCode, version: int) -> None:
        self.asked: list[Message] = []
        self.topics: dict[str, object] = {}
        self.closings: list[str] = []
        self.beats_are_answered = trio.Event()
        self.versions = SimpleNamespace(version=lambda key: version)
        self._farewells = deque(farewells)

    @property
    def farewells_asked(self) -> int:
        return sum(_is_farewell(message) for message in self.asked)

    async def coordinator(self, kind: object, key: str) -> int:
        return 0

    async def connection(self, node: int) -> OneCoordinator:
        await trio.lowlevel.checkpoint()
        return self

    def forget_coordinator(self, kind: object, key: str) -> None:
        pass

    def close(self, reason: str) -> None:
        self.closings.append(reason)

    async def request(self, message: Message, answer: object, **options: object) -> Message:
        await trio.lowlevel.checkpoint_if_cancelled()
        self.asked.append(message)
        if _is_farewell(message):
            outcome = self._farewells.popleft()
            if isinstance(outcome, Exception):
                raise outcome
            if isinstance(message, LeaveGroupRequest):
                return LeaveGroupResponse(error_code=outcome)
            return ConsumerGroupHeartbeatResponse(error_code=outcome)
        if isinstance(message, ConsumerGroupHeartbeatRequest):
            await self.beats_are_answered.wait()
            return ConsumerGroupHeartbeatResponse(member_id="m", member_epoch=1, heartbeat_interval_ms=60_000)
        assert isinstance(message, JoinGroupRequest)
        if message.member_id:
            # Other members never join.
            await trio.sleep_forever()
        await self.beats_are_answered.wait()
        return JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id="m")


def _is_farewell(message: Message) -> bool:
    is_last_beat = isinstance(message, ConsumerGroupHeartbeatRequest) and message.member_epoch == -1
    return is_last_beat or isinstance(message, LeaveGroupRequest)


def membership(coordinator: OneCoordinator, protocol: str) -> ClassicProtocolMembership | ConsumerProtocolMembership:
    config = ConsumerConfig.from_properties({"group_id": "g", "retry_backoff_ms": 1, **PROTOCOLS[protocol]})
    kind = ConsumerProtocolMembership if protocol == "consumer" else ClassicProtocolMembership
    boundary = PollBoundary()
    boundary.arrive()
    return kind(cast(Cluster, coordinator), Subscription(), config, boundary, cast(Any, None))


async def answer_beats_later(coordinator: OneCoordinator) -> None:
    await trio.testing.wait_all_tasks_blocked()
    coordinator.beats_are_answered.set()


@pytest.mark.parametrize("is_answered_first", [False, True])
@pytest.mark.parametrize(("protocol", "version"), [("consumer", 0), ("consumer", 1), ("range", 5)])
async def test_a_member_leaves_while_its_heartbeat_or_join_group_is_in_flight(
    protocol: str, version: int, is_answered_first: bool
) -> None:
    """The answer has the member's next epoch, which is no epoch to leave with, and perhaps the member's id."""
    coordinator = OneCoordinator(ErrorCode.NONE, version=version)
    member = membership(coordinator, protocol)
    with trio.fail_after(PATIENCE_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(member.run)
            await eventually(lambda: len(coordinator.asked) == 1)
            if is_answered_first:
                coordinator.beats_are_answered.set()
            else:
                nursery.start_soon(answer_beats_later, coordinator)
            await member.leave()
    last = coordinator.asked[-1]
    if isinstance(last, LeaveGroupRequest):
        assert [leaving.member_id for leaving in last.members] == ["m"]
    else:
        assert isinstance(last, ConsumerGroupHeartbeatRequest)
        assert last.member_epoch == -1
        assert last.member_id


LOSSES: list[Exception | ErrorCode] = [
    ConnectionLostError("cut"),
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
]


@pytest.mark.parametrize("loss", LOSSES)
@each_protocol
async def test_a_failed_request_to_leave_the_group_is_retried(protocol: str, loss: Exception | ErrorCode) -> None:
    coordinator = OneCoordinator(loss, loss, ErrorCode.NONE, version=1 if protocol == "consumer" else 5)
    coordinator.beats_are_answered.set()
    member = membership(coordinator, protocol)
    with trio.fail_after(PATIENCE_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(member.run)
            await eventually(lambda: len(coordinator.asked) == (1 if protocol == "consumer" else 2))
            await member.leave()
    assert coordinator.farewells_asked == 3


@pytest.mark.parametrize("protocol", ["range", "cooperative-sticky"])
async def test_an_abandoned_join_group_request_closes_its_connection(protocol: str) -> None:
    """A broker answers in order, and would not read a LeaveGroup behind a JoinGroup that waits for other members."""
    coordinator = OneCoordinator(ErrorCode.NONE, version=5)
    coordinator.beats_are_answered.set()
    member = membership(coordinator, protocol)
    with trio.fail_after(PATIENCE_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(member.run)
            await eventually(lambda: len(coordinator.asked) == 2)
            await member.leave()
    assert coordinator.closings == ["the member has given up its JoinGroupRequest"]
    assert coordinator.farewells_asked == 1


async def members(bootstrap: str, topic: str) -> int:
    async with Admin(bootstrap) as admin:
        return len((await admin.group_overview(f"g-{topic}")).members)


@each_protocol
async def test_a_cancelled_consumer_commits_and_leaves(broker_process: BrokerProcess, protocol: str) -> None:
    bootstrap = broker_process.bootstrap
    topic = await filled_topic(bootstrap, partitions=1, count=100)
    settings = {"group_id": f"g-{topic}", "auto_offset_reset": "earliest", **PROTOCOLS[protocol]}
    with trio.fail_after(PATIENCE_S), trio.CancelScope() as scope:
        async with Consumer(bootstrap, **settings) as consumer:
            consumer.subscribe([topic])
            seen = 0
            async for _ in consumer:
                seen += 1
                if seen == 50:
                    assert await members(bootstrap, topic) == 1
                    scope.cancel()
    assert scope.cancelled_caught
    assert await members(bootstrap, topic) == 0
    async with Admin(bootstrap) as admin:
        assert await admin.group_offsets(f"g-{topic}") == {(topic, 0): 50}


@pytest.mark.parametrize("protocol", ["range", "cooperative-sticky"])
async def test_a_consumer_cancelled_during_join_group_leaves_its_group(
    broker_process: BrokerProcess, protocol: str
) -> None:
    """The first member does not poll, so that the JoinGroup of the second is answered only when it leaves."""
    bootstrap = broker_process.bootstrap
    topic = await filled_topic(bootstrap, partitions=1, count=1)
    settings = {"group_id": f"g-{topic}", "auto_offset_reset": "earliest", **PROTOCOLS[protocol]}
    with trio.fail_after(PATIENCE_S):
        async with Consumer(bootstrap, **settings) as first:
            first.subscribe([topic])
            assert await first.poll()
            with trio.CancelScope() as scope:
                async with Consumer(bootstrap, **settings) as second:
                    second.subscribe([topic])
                    while await members(bootstrap, topic) != 2:
                        await second.poll(10)
                    scope.cancel()
                    await second.poll()
            assert await members(bootstrap, topic) == 1


async def test_a_transaction_is_aborted_when_its_task_is_cancelled(broker_process: BrokerProcess) -> None:
    topic = await new_topic(broker_process.bootstrap)
    with trio.fail_after(PATIENCE_S), trio.CancelScope() as scope:
        async with Producer(broker_process.bootstrap, transactional_id=topic) as producer, producer.transaction():
            await (await producer.send(topic, b"v"))
            scope.cancel()
            await trio.lowlevel.checkpoint()
    async with Admin(broker_process.bootstrap) as admin:
        state = await admin.describe_transaction(topic)
    assert state.transaction_state in ("PrepareAbort", "CompleteAbort")
