"""Groups of the consumer protocol from heartbeat to heartbeat, with time that jumps and restarts in between."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from uuid import UUID

import pytest
import trio
from trio.testing import MockClock

from gregor.broker.coordinators.groups import current_topics
from gregor.broker.coordinators.groups.classic_protocol import Committer
from gregor.broker.coordinators.groups.consumer_protocol import HeartbeatingClient
from gregor.broker.coordinators.groups.offset_service import OffsetToCommit
from gregor.broker.coordinators.internal_log.coordinator_log import TransactionalProducer
from gregor.protocol.errors import BrokerError, ErrorCode
from gregor.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from gregor.protocol.topic_partition import TopicPartition

JOIN: dict[str, Any] = {"rebalance_timeout_ms": 30_000, "subscribed_topic_names": ["t"], "topic_partitions": []}
POSITION = TopicPartition("t", 0)


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Match the few names of a test in the event loop's thread, however slow the machine is."""
    monkeypatch.setattr(current_topics, "IN_LOOP_S", 60.0)


class Member:
    """A client that adopts its assignment and reports its partitions with the next heartbeat."""

    def __init__(self, bench: Any, name: str = "", *, group: str = "g", version: int = 0, **first: Any) -> None:
        self.bench, self.member_id, self.group, self.version = bench, name, group, version
        self.epoch = 0
        self.owned: dict[UUID, set[int]] = {}
        self.first = JOIN | first
        self.join()

    def send(self, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        values: dict[str, Any] = {
            "group_id": self.group,
            "member_id": self.member_id,
            "member_epoch": self.epoch,
        } | fields
        client = HeartbeatingClient("client", "/host", makes_member_id=self.version > 0)
        answer: ConsumerGroupHeartbeatResponse = self.bench.groups.consumer_heartbeat(
            ConsumerGroupHeartbeatRequest(**values), client
        )
        self.member_id, self.epoch = answer.member_id or "", answer.member_epoch
        if answer.assignment is not None:
            self.owned = {topic.topic_id: set(topic.partitions) for topic in answer.assignment.topic_partitions}
        return answer

    def join(self) -> ConsumerGroupHeartbeatResponse:
        self.epoch = 0
        return self.send(**self.first)

    def beat(self, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        """Send a heartbeat with the partitions that the member reads now."""
        owned = [TopicPartitions(topic_id=topic, partitions=sorted(indexes)) for topic, indexes in self.owned.items()]
        return self.send(topic_partitions=owned, **fields)

    def leave(self, epoch: int = -1) -> None:
        self.send(member_epoch=epoch, instance_id=self.first.get("instance_id"))

    @property
    def partitions(self) -> set[int]:
        return {index for indexes in self.owned.values() for index in indexes}


def settle(members: Iterable[Member]) -> None:
    """Let all members reach their targets."""
    for _ in range(4):
        for member in members:
            member.beat()


def refusal(action: Any, *arguments: Any, **fields: Any) -> BrokerError:
    with pytest.raises(BrokerError) as caught:
        action(*arguments, **fields)
    return caught.value


@pytest.fixture
async def topic(bench: Any) -> UUID:
    topic_id: UUID = bench.known_topics.add("t", 4)
    await bench.start()
    return topic_id


# --- membership


async def test_members_share_the_partitions(bench: Any, topic: UUID, autojump_clock: MockClock) -> None:
    first = Member(bench)
    assert (first.epoch, first.partitions) == (1, {0, 1, 2, 3})
    second = Member(bench)
    assert (second.epoch, second.partitions) == (2, set())
    assert bench.groups.describe_consumer_group("g").group_state == "Reconciling"
    first.beat()
    assert (first.epoch, len(first.partitions)) == (1, 2), (
        "the member must first report that it has revoked two partitions"
    )
    assert not second.beat().assignment
    settle([first, second])
    assert (first.epoch, second.epoch) == (2, 2)
    assert first.partitions | second.partitions == {0, 1, 2, 3}
    assert bench.groups.describe_consumer_group("g").group_state == "Stable"
    second.leave()
    settle([first])
    assert (first.epoch, first.partitions) == (3, {0, 1, 2, 3})
    first.leave()
    assert bench.groups.describe_consumer_group("g").group_state == "Empty"


async def test_a_member_can_repeat_a_heartbeat_with_its_previous_epoch(
    bench: Any, topic: UUID, autojump_clock: MockClock
) -> None:
    """The member sends its previous epoch again, with no more partitions than it was assigned."""
    first, second = Member(bench), Member(bench)
    first.beat()
    assert first.beat().member_epoch == 2
    first.epoch = 1
    assert first.beat().member_epoch == 2
    first.epoch = 1
    first.owned = {topic: {0, 1, 2, 3}}
    assert refusal(first.beat).code is ErrorCode.FENCED_MEMBER_EPOCH
    assert second.beat().error_code == ErrorCode.NONE


async def test_a_member_without_heartbeats_is_removed_after_the_session_timeout(
    bench: Any, topic: UUID, autojump_clock: MockClock
) -> None:
    first, second = Member(bench), Member(bench)
    for _ in range(10):
        await trio.sleep(5)
        first.beat()
    assert first.partitions == {0, 1, 2, 3}
    assert refusal(second.beat).code is ErrorCode.UNKNOWN_MEMBER_ID
    second.join()
    settle([first, second])
    assert len(second.partitions) == 2


async def test_a_member_that_does_not_revoke_partitions_is_removed_after_the_rebalance_timeout(
    bench: Any, topic: UUID, autojump_clock: MockClock
) -> None:
    first = Member(bench, rebalance_timeout_ms=8_000)
    second = Member(bench)
    await trio.sleep(5)
    first.send()
    await trio.sleep(5)
    first.send(topic_partitions=[TopicPartitions(topic_id=topic, partitions=[0, 1, 2, 3])])
    await trio.sleep(5)
    second.beat()
    assert second.partitions == {0, 1, 2, 3}
    assert refusal(first.send).code is ErrorCode.UNKNOWN_MEMBER_ID


async def test_a_static_member_that_rejoins_keeps_its_partitions(
    bench: Any, topic: UUID, autojump_clock: MockClock
) -> None:
    first = Member(bench, instance_id="one")
    second = Member(bench, instance_id="two")
    settle([first, second])
    had, epoch = first.partitions, first.epoch
    taken = refusal(Member, bench, instance_id="one")
    assert taken.code is ErrorCode.UNRELEASED_INSTANCE_ID
    assert f"is owned by {first.member_id} member" in (taken.message or "")
    first.leave(-2)
    again = Member(bench, instance_id="one")
    assert (again.partitions, again.epoch) == (had, epoch)
    assert again.member_id != first.member_id
    assert refusal(first.send, member_epoch=epoch, instance_id="one").code is ErrorCode.FENCED_INSTANCE_ID
    again.leave(-2)
    await trio.sleep(40)
    second.beat()
    assert len(second.partitions) == 2, "its session has not expired yet"
    await trio.sleep(10)
    second.beat()
    assert second.partitions == {0, 1, 2, 3}


async def test_a_consumer_group_at_its_maximum_size_refuses_new_members(
    bench: Any, topic: UUID, autojump_clock: MockClock
) -> None:
    await bench.start(group_consumer_max_size=1)
    first = Member(bench)
    full = refusal(Member, bench)
    assert full.code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert full.message == "The consumer group has reached its maximum capacity of 1 members."
    assert first.beat().error_code == ErrorCode.NONE


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"group_id": " "}, "GroupId can't be empty."),
        ({"instance_id": ""}, "InstanceId can't be empty."),
        ({"rack_id": ""}, "RackId can't be empty."),
        ({"rebalance_timeout_ms": -1}, "RebalanceTimeoutMs must be provided in first request."),
        ({"topic_partitions": None}, "TopicPartitions must be empty when (re-)joining."),
        ({"subscribed_topic_names": []}, "SubscribedTopicNames must be set in first request."),
        ({"member_epoch": -3}, "MemberEpoch is invalid."),
        ({"member_epoch": 5}, "MemberId can't be empty."),
        ({"member_epoch": -1}, "MemberId can't be empty."),
        ({"member_epoch": -2, "member_id": "m"}, "InstanceId can't be null."),
    ],
)
async def test_invalid_fields_of_a_heartbeat_are_refused(
    bench: Any, topic: UUID, autojump_clock: MockClock, fields: dict[str, Any], message: str
) -> None:
    error = refusal(Member, bench, **fields)
    assert (error.code, error.message) == (ErrorCode.INVALID_REQUEST, message)


async def test_unknown_assignors_groups_members_and_member_epochs_are_refused(
    bench: Any, topic: UUID, autojump_clock: MockClock
) -> None:
    error = refusal(Member, bench, server_assignor="mine")
    assert error.code is ErrorCode.UNSUPPORTED_ASSIGNOR
    assert error.message == "ServerAssignor mine is not supported. Supported assignors: uniform, range."
    assert refusal(Member, bench, member_id="m", member_epoch=3).code is ErrorCode.GROUP_ID_NOT_FOUND
    member = Member(bench)
    for epoch, size in ((7, "greater"), (-1, None)):
        member.epoch = epoch
        error = refusal(member.send) if size else refusal(member.send, member_id="nobody")
        assert error.code is (ErrorCode.FENCED_MEMBER_EPOCH if size else ErrorCode.UNKNOWN_MEMBER_ID)
    assert refusal(bench.groups.describe_consumer_group, "none").code is ErrorCode.GROUP_ID_NOT_FOUND


async def test_from_heartbeat_v1_on_clients_generate_their_member_ids(
    bench: Any, topic: UUID, autojump_clock: MockClock
) -> None:
    assert refusal(Member, bench, version=1).message == "MemberId can't be empty."
    member = Member(bench, "mine", version=1)
    assert (member.member_id, member.partitions) == ("mine", {0, 1, 2, 3})


# --- subscriptions


async def test_added_partitions_and_new_or_deleted_topics_change_the_assignment(
    bench: Any, topic: UUID, autojump_clock: MockClock
) -> None:
    member = Member(bench, subscribed_topic_names=["t", "later"])
    bench.known_topics.add("t", 6)
    assert member.beat().member_epoch == 2
    assert member.partitions == set(range(6))
    later = bench.known_topics.add("later", 1)
    assert member.beat().member_epoch == 3
    assert member.owned[later] == {0}
    del bench.known_topics.topics["t"]
    bench.known_topics.changes += 1
    member.beat()
    assert member.owned == {later: {0}}
    assert member.beat().member_epoch == 4
    assert member.beat(subscribed_topic_names=["other"]).member_epoch == 4
    assert member.beat().member_epoch == 5
    assert not member.owned


async def test_a_member_subscribed_by_regex_gets_the_matching_topics(
    bench: Any, topic: UUID, autojump_clock: MockClock
) -> None:
    first: dict[str, Any] = {"subscribed_topic_names": None, "subscribed_topic_regex": "t|logs-.*"}
    member = Member(bench, "m", version=1, **first)
    assert member.owned == {topic: {0, 1, 2, 3}}
    logs = bench.known_topics.add("logs-a", 2)
    bench.known_topics.add("tt", 2)
    member.beat()
    assert member.owned == {topic: {0, 1, 2, 3}, logs: {0, 1}}
    epoch = member.epoch
    await bench.start()
    assert member.beat().member_epoch == epoch, "a restart changes nothing"
    error = refusal(Member, bench, "n", version=1, subscribed_topic_names=None, subscribed_topic_regex="(")
    assert error.code is ErrorCode.INVALID_REGULAR_EXPRESSION
    error = refusal(Member, bench, "n", version=1, subscribed_topic_names=None)
    assert error.message == "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."


async def test_a_pattern_matches_internal_topics_too(bench: Any, topic: UUID, autojump_clock: MockClock) -> None:
    """As in Kafka 4: `exclude.internal.topics` is for patterns that the client matches itself."""
    internal = bench.known_topics.add("__consumer_offsets", 4)
    member = Member(bench, "m", version=1, subscribed_topic_names=None, subscribed_topic_regex="__.*")
    assert member.owned == {internal: {0, 1, 2, 3}}


# --- what is kept


async def test_a_broker_restart_does_not_start_a_rebalance(bench: Any, topic: UUID, autojump_clock: MockClock) -> None:
    members = [Member(bench), Member(bench, instance_id="static", server_assignor="range")]
    settle(members)
    before = bench.groups.describe_consumer_group("g")
    await bench.start()
    assert bench.groups.describe_consumer_group("g") == before
    for member in members:
        assert member.beat().assignment is None
    await trio.sleep(60)
    assert bench.groups.describe_consumer_group("g").group_state == "Empty", "sessions begin again after a restart"


async def test_a_rebalance_continues_after_a_broker_restart(bench: Any, topic: UUID, autojump_clock: MockClock) -> None:
    first, second = Member(bench, rebalance_timeout_ms=10_000), Member(bench)
    first.beat()
    await bench.start()
    second.beat()
    assert not second.partitions
    settle([first, second])
    assert first.partitions | second.partitions == {0, 1, 2, 3}


async def test_a_restart_does_not_stop_the_rebalance_timeout(
    bench: Any, topic: UUID, autojump_clock: MockClock
) -> None:
    first, second = Member(bench, rebalance_timeout_ms=10_000), Member(bench)
    first.send()
    await bench.start()
    await trio.sleep(11)
    assert refusal(first.send).code is ErrorCode.UNKNOWN_MEMBER_ID
    second.beat()
    assert second.partitions == {0, 1, 2, 3}


async def test_a_write_that_fails_changes_nothing(bench: Any, topic: UUID, autojump_clock: MockClock) -> None:
    first = Member(bench)
    before = bench.groups.describe_consumer_group("g")
    partition = bench.topics.internal_partition("__consumer_offsets", bench.groups.partition_of("g"))
    partition.config.max_message_bytes = 10
    assert refusal(Member, bench).code is ErrorCode.MESSAGE_TOO_LARGE
    assert bench.groups.describe_consumer_group("g") == before
    await trio.sleep(46)
    assert bench.groups.describe_consumer_group("g") == before, "a member cannot be removed either"
    partition.config.max_message_bytes = 1 << 20
    await trio.sleep(2)
    assert not bench.groups.describe_consumer_group("g").members
    assert refusal(first.beat).code is ErrorCode.UNKNOWN_MEMBER_ID


async def test_tools_see_groups_of_both_protocols(bench: Any, topic: UUID, autojump_clock: MockClock) -> None:
    await bench.stable_member(group="old")
    Member(bench)
    _, listed = bench.groups.list([], [])
    assert {(group.group_id, group.group_type, group.group_state) for group in listed} == {
        ("old", "classic", "Stable"),
        ("g", "consumer", "Stable"),
    }
    assert [group.group_id for group in bench.groups.list([], ["Consumer"])[1]] == ["g"]
    assert bench.groups.describe("g").group_state == "Dead", "DescribeGroups knows classic groups only"
    assert bench.outcome(lambda: bench.groups.delete("g")) is ErrorCode.NON_EMPTY_GROUP


# --- offsets


def commit(bench: Any, member_id: str = "", epoch: int = -1, *, is_old: bool = False, **more: Any) -> ErrorCode:
    committer = Committer("g", member_id, epoch, knows_member_epochs=not is_old)
    try:
        code: ErrorCode = bench.groups.commit(committer, {POSITION: OffsetToCommit(7)}, **more)[POSITION]
    except BrokerError as refusal:
        return refusal.code
    return code


async def test_members_commit_and_fetch_in_their_epoch(bench: Any, topic: UUID, autojump_clock: MockClock) -> None:
    member = Member(bench)
    assert commit(bench, member.member_id, 1) is ErrorCode.NONE
    assert commit(bench, member.member_id, 0) is ErrorCode.STALE_MEMBER_EPOCH
    assert commit(bench, member.member_id, 1, is_old=True) is ErrorCode.UNSUPPORTED_VERSION
    assert commit(bench, "nobody", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(bench) is ErrorCode.UNKNOWN_MEMBER_ID
    producer = TransactionalProducer(1, 0)
    assert commit(bench, member.member_id, 0, producer=producer) is ErrorCode.ILLEGAL_GENERATION
    assert commit(bench, member.member_id, 1, producer=producer) is ErrorCode.NONE

    def fetch(member_id: str | None, epoch: int) -> int:
        fetched = bench.groups.fetch_offsets(
            "g", [POSITION], require_stable=False, member_id=member_id, member_epoch=epoch
        )
        offset: int = fetched[POSITION].offset
        return offset

    assert fetch(member.member_id, 1) == fetch(None, -1) == 7
    assert refusal(fetch, member.member_id, 9).code is ErrorCode.STALE_MEMBER_EPOCH
    assert refusal(fetch, "nobody", 1).code is ErrorCode.UNKNOWN_MEMBER_ID


async def test_offsets_outlive_members_and_end_with_the_group(
    bench: Any, topic: UUID, autojump_clock: MockClock
) -> None:
    member = Member(bench)
    commit(bench, member.member_id, 1)
    subscribed = bench.groups.delete_offsets("g", [POSITION])
    assert subscribed == {POSITION: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC}
    member.leave()
    assert commit(bench) is ErrorCode.NONE
    await bench.start()
    assert bench.groups.fetch_offsets("g", None, require_stable=False)[POSITION].offset == 7
    assert bench.outcome(lambda: bench.groups.delete("g")) is ErrorCode.NONE
    assert bench.outcome(lambda: bench.groups.delete("g")) is ErrorCode.GROUP_ID_NOT_FOUND
    await bench.start()
    assert not bench.groups.list([], [])[1]


async def test_an_empty_group_goes_with_its_last_offset(bench: Any, topic: UUID, autojump_clock: MockClock) -> None:
    member = Member(bench)
    commit(bench, member.member_id, 1)
    bench.clock.advance(8 * 24 * 3600 * 1000)
    for _ in range(130):
        await trio.sleep(5)
        member.send()
    assert bench.groups.fetch_offsets("g", None, require_stable=False), "offsets of a subscribed topic do not expire"
    member.leave()
    await trio.sleep(700)
    assert not bench.groups.list([], [])[1]
