"""Groups between the classic and the consumer protocol: empty ones always, living ones as the policy allows."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
import trio
from trio.testing import MockClock

from gregor.broker.coordinators.groups.consumer_protocol import HeartbeatingClient
from gregor.protocol.codec import decode, encode
from gregor.protocol.errors import BrokerError, ErrorCode
from gregor.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from gregor.protocol.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from gregor.protocol.messages.consumer_protocol_assignment import TopicPartition as AssignedPartitions
from gregor.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from gregor.protocol.messages.consumer_protocol_subscription import TopicPartition as OwnedPartitions
from gregor.protocol.messages.heartbeat import HeartbeatRequest
from gregor.protocol.messages.join_group import JoinGroupResponse
from gregor.protocol.messages.leave_group import MemberIdentity

REBALANCE = ErrorCode.REBALANCE_IN_PROGRESS


def subscription(*owned: int) -> bytes:
    """Return the metadata of a classic consumer of topic `t` in JoinGroup, with its owned partitions."""
    partitions = [OwnedPartitions(topic="t", partitions=list(owned))] if owned else []
    return b"\0\1" + encode(ConsumerProtocolSubscription(topics=["t"], owned_partitions=partitions), 1)


def assignment(*partitions: int) -> bytes:
    message = ConsumerProtocolAssignment(
        assigned_partitions=[AssignedPartitions(topic="t", partitions=list(partitions))]
    )
    return b"\0\1" + encode(message, 1)


def partitions_of(assigned: bytes) -> set[int]:
    message = decode(ConsumerProtocolAssignment, memoryview(assigned)[2:], 1)
    return {index for topic in message.assigned_partitions for index in topic.partitions}


class Clients:
    """A set of classic and new members of group `g`."""

    def __init__(self, bench: Any, topic: UUID) -> None:
        self.bench, self.topic = bench, topic

    async def join(self, member_id: str = "", *owned: int) -> JoinGroupResponse:
        joined: JoinGroupResponse = await self.bench.join(member_id, protocols=[("range", subscription(*owned))]).wait()
        return joined

    async def sync(self, joined: JoinGroupResponse, *own: int) -> set[int]:
        """Send SyncGroup, as leader with the assignment `own` for itself; return the response."""
        synced = await self.bench.sync(joined, {joined.member_id: assignment(*own)} if own else {}).wait()
        assert synced.error_code == ErrorCode.NONE
        return partitions_of(synced.assignment)

    def beat(self, joined: JoinGroupResponse) -> ErrorCode:
        request = HeartbeatRequest(group_id="g", member_id=joined.member_id, generation_id=joined.generation_id)
        code: ErrorCode = self.bench.outcome(lambda: self.bench.groups.heartbeat(request))
        return code

    def new(self, member_id: str = "", epoch: int = 0, *owned: int) -> ConsumerGroupHeartbeatResponse:
        """Send a heartbeat of the consumer protocol with the member's partitions; return the response."""
        lists = [TopicPartitions(topic_id=self.topic, partitions=list(owned))] if owned else []
        request = ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id=member_id,
            member_epoch=epoch,
            rebalance_timeout_ms=30_000,
            subscribed_topic_names=["t"],
            topic_partitions=lists,
        )
        answer: ConsumerGroupHeartbeatResponse = self.bench.groups.consumer_heartbeat(
            request, HeartbeatingClient("client", "/host")
        )
        return answer


def assigned(answer: ConsumerGroupHeartbeatResponse) -> set[int]:
    assert answer.assignment is not None
    return {index for topic in answer.assignment.topic_partitions for index in topic.partitions}


@pytest.fixture
async def clients(bench: Any) -> Clients:
    topic = bench.known_topics.add("t", 4)
    await bench.start(group_consumer_migration_policy="bidirectional")
    return Clients(bench, topic)


async def test_an_empty_group_takes_the_protocol_of_whoever_joins(
    bench: Any, clients: Clients, autojump_clock: MockClock
) -> None:
    await bench.start(group_consumer_migration_policy="disabled")
    joined = await clients.join()
    bench.groups.leave("g", [MemberIdentity(member_id=joined.member_id)])
    new = clients.new()
    assert (new.member_epoch, assigned(new)) == (1, {0, 1, 2, 3})
    assert [group.group_type for group in bench.groups.list([], [])[1]] == ["consumer"]
    clients.new(new.member_id or "", -1)
    again = await clients.join()
    assert again.generation_id == 1
    assert [group.group_type for group in bench.groups.list([], [])[1]] == ["classic"]
    await clients.sync(again, 0, 1, 2, 3)
    await bench.start()
    assert [group.group_type for group in bench.groups.list([], [])[1]] == ["classic"]


@pytest.mark.parametrize("policy", ["disabled", "downgrade"])
async def test_a_classic_group_with_members_stays_classic_without_an_upgrade_policy(
    bench: Any, clients: Clients, autojump_clock: MockClock, policy: str
) -> None:
    await bench.start(group_consumer_migration_policy=policy)
    joined = await clients.join()
    await clients.sync(joined, 0, 1, 2, 3)
    with pytest.raises(BrokerError) as refusal:
        clients.new()
    assert refusal.value.code is ErrorCode.GROUP_ID_NOT_FOUND
    assert clients.beat(joined) is ErrorCode.NONE


async def test_a_classic_group_moves_over_member_by_member(
    bench: Any, clients: Clients, autojump_clock: MockClock
) -> None:
    old = await clients.join()
    await clients.sync(old, 0, 1, 2, 3)
    new = clients.new()
    assert (new.member_epoch, assigned(new)) == (2, set())
    assert clients.beat(old) is REBALANCE
    rejoined = await clients.join(old.member_id, 0, 1, 2, 3)
    assert (rejoined.generation_id, rejoined.protocol_name, rejoined.members) == (1, "range", [])
    kept = await clients.sync(rejoined)
    assert len(kept) == 2
    assert clients.beat(rejoined) is REBALANCE, "the member must report that it has revoked two partitions"
    done = await clients.join(old.member_id, *kept)
    assert done.generation_id == 2
    assert await clients.sync(done) == kept
    assert clients.beat(done) is ErrorCode.NONE
    assert assigned(clients.new(new.member_id or "", 2)) == {0, 1, 2, 3} - kept
    assert bench.groups.describe_consumer_group("g").group_state == "Stable"
    await bench.start()
    assert clients.beat(done) is ErrorCode.NONE
    assert bench.groups.leave("g", [MemberIdentity(member_id=old.member_id)])[0].error_code == ErrorCode.NONE
    assert assigned(clients.new(new.member_id or "", 2, *({0, 1, 2, 3} - kept))) == {0, 1, 2, 3}


async def test_a_consumer_group_with_only_classic_members_is_downgraded(
    bench: Any, clients: Clients, autojump_clock: MockClock
) -> None:
    new = clients.new()
    old = await clients.join()
    assert (await clients.sync(old), old.generation_id) == (set(), 2)
    clients.new(new.member_id or "", -1)
    assert [group.group_type for group in bench.groups.list([], [])[1]] == ["classic"]
    assert bench.state() == "PreparingRebalance"
    assert clients.beat(old) is REBALANCE
    leader = await clients.join(old.member_id)
    assert (leader.leader, leader.generation_id) == (old.member_id, 3)
    assert await clients.sync(leader, 0, 1, 2, 3) == {0, 1, 2, 3}
    await bench.start()
    assert clients.beat(leader) is ErrorCode.NONE


async def test_a_group_stays_a_consumer_group_if_the_policy_forbids_a_downgrade(
    bench: Any, clients: Clients, autojump_clock: MockClock
) -> None:
    await bench.start(group_consumer_migration_policy="upgrade")
    new = clients.new()
    old = await clients.join()
    clients.new(new.member_id or "", -1)
    assert [group.group_type for group in bench.groups.list([], [])[1]] == ["consumer"]
    rejoined = await clients.join(old.member_id)
    assert await clients.sync(rejoined) == {0, 1, 2, 3}


async def test_an_upgrade_answers_pending_join_requests_with_rebalance_in_progress(
    bench: Any, clients: Clients, autojump_clock: MockClock
) -> None:
    first = await clients.join()
    await clients.sync(first, 0, 1, 2, 3)
    parked = bench.join(protocols=[("range", subscription())])
    assert not parked.is_complete
    clients.new()
    assert (await parked.wait()).error_code == REBALANCE


async def test_classic_members_of_a_consumer_group_keep_their_session_and_rebalance_timeouts(
    bench: Any, clients: Clients, autojump_clock: MockClock
) -> None:
    new = clients.new()
    old = await clients.join()
    await clients.sync(old)
    await trio.sleep(11)
    assert clients.beat(old) is ErrorCode.UNKNOWN_MEMBER_ID, "its session was ten seconds"
    lazy = await clients.join()
    epoch = 1
    for _ in range(5):
        await trio.sleep(7)
        clients.beat(lazy)
        epoch = clients.new(new.member_id or "", epoch, 0, 1).member_epoch
    assert clients.beat(lazy) is ErrorCode.UNKNOWN_MEMBER_ID, "it did not sync within its rebalance timeout"
    assert assigned(clients.new(new.member_id or "", epoch, 0, 1)) == {0, 1, 2, 3}


async def test_a_consumer_group_refuses_incompatible_or_unknown_classic_members(
    bench: Any, clients: Clients, autojump_clock: MockClock
) -> None:
    new = clients.new()
    old = await clients.join()
    assert (await bench.join(protocols=[("other", subscription())]).wait()).error_code == (
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    )
    assert (await bench.join(kind="connect").wait()).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert (await bench.join(protocols=[("range", b"")]).wait()).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    impostor = JoinGroupResponse(member_id=new.member_id or "", generation_id=1)
    assert clients.beat(impostor) is ErrorCode.UNKNOWN_MEMBER_ID
    assert clients.beat(JoinGroupResponse(member_id=old.member_id, generation_id=9)) is ErrorCode.ILLEGAL_GENERATION
    wrong = await bench.sync(JoinGroupResponse(member_id=old.member_id, generation_id=9)).wait()
    assert wrong.error_code == ErrorCode.ILLEGAL_GENERATION
    left = bench.groups.leave("g", [MemberIdentity(member_id="x"), MemberIdentity(group_instance_id="y")])
    assert [member.error_code for member in left] == [ErrorCode.UNKNOWN_MEMBER_ID] * 2


async def test_a_classic_member_of_a_consumer_group_needs_a_member_id_first(
    bench: Any, clients: Clients, autojump_clock: MockClock
) -> None:
    clients.new()
    given = await bench.join(version=4, protocols=[("range", subscription())]).wait()
    assert given.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert len(bench.groups.describe_consumer_group("g").members) == 1
