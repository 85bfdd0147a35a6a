"""Committed offsets: commit, fetch, expiry, and restarts."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from gregor.broker.coordinators.groups.classic_protocol import Committer
from gregor.broker.coordinators.groups.group_map import GroupMap
from gregor.broker.coordinators.groups.loader import PartitionLoader
from gregor.broker.coordinators.groups.offset_service import FetchedOffset, OffsetToCommit
from gregor.broker.coordinators.internal_log.coordinator_log import ReplayedMarker, TransactionalProducer
from gregor.protocol.codec import encode
from gregor.protocol.errors import BrokerError, ErrorCode
from gregor.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from gregor.protocol.messages.group_metadata_records import OffsetCommitKey
from gregor.protocol.messages.leave_group import MemberIdentity
from gregor.protocol.topic_partition import TopicPartition

NONE = ErrorCode.NONE
T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
NOBODY = Committer("g")
PRODUCER = TransactionalProducer(7, 0)
HOUR_MS = 3_600_000


def commit(
    bench: Any, who: Committer = NOBODY, producer: TransactionalProducer | None = None, **more: Any
) -> ErrorCode:
    position = OffsetToCommit(5, 2, "meta")._replace(**more)
    try:
        errors: dict[TopicPartition, ErrorCode] = bench.groups.commit(who, {T0: position}, producer)
    except BrokerError as refusal:
        return refusal.code
    return errors[T0]


def fetch(bench: Any, *, stable: bool = False) -> FetchedOffset:
    fetched: dict[TopicPartition, FetchedOffset] = bench.groups.fetch_offsets("g", [T0], require_stable=stable)
    return fetched[T0]


def subscription(*topics: str) -> bytes:
    return b"\0\0" + encode(ConsumerProtocolSubscription(topics=list(topics)), 0)


async def test_committed_offsets_are_fetched_before_and_after_a_restart(bench: Any, autojump_clock: MockClock) -> None:
    await bench.start()
    assert fetch(bench) == FetchedOffset(-1, -1, "")
    assert commit(bench) is NONE
    assert fetch(bench) == FetchedOffset(5, 2, "meta")
    assert (bench.state(), bench.groups.describe("g").protocol_type) == ("Empty", "")
    await bench.start()
    assert fetch(bench) == FetchedOffset(5, 2, "meta")
    assert bench.state() == "Empty"


async def test_only_members_of_the_right_generation_commit_into_a_living_group(
    bench: Any, autojump_clock: MockClock
) -> None:
    await bench.start()
    assert commit(bench, Committer("g", "m", 3)) is ErrorCode.ILLEGAL_GENERATION
    joined = await bench.stable_member()
    member, generation = joined.member_id, joined.generation_id
    assert commit(bench, Committer("g", member, generation)) is NONE
    assert commit(bench, Committer("g", member, generation + 1)) is ErrorCode.ILLEGAL_GENERATION
    assert commit(bench, Committer("g", "nobody", generation)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(bench) is ErrorCode.UNKNOWN_MEMBER_ID
    bench.join()
    assert commit(bench, Committer("g", member, generation)) is NONE, "while the group prepares a rebalance"
    await bench.join(member).wait()
    assert commit(bench, Committer("g", member, generation + 1)) is ErrorCode.REBALANCE_IN_PROGRESS


async def test_metadata_has_a_limit(bench: Any, autojump_clock: MockClock) -> None:
    await bench.start()
    assert commit(bench, metadata="m" * 4096) is NONE
    assert commit(bench, metadata="m" * 4097, offset=6) is ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert fetch(bench).offset == 5


async def test_transactional_offsets_are_visible_after_the_commit_of_the_transaction(
    bench: Any, autojump_clock: MockClock
) -> None:
    await bench.start()
    index = bench.groups.partition_of("g")
    assert commit(bench, producer=PRODUCER) is NONE
    assert fetch(bench) == FetchedOffset()
    assert fetch(bench, stable=True).error is ErrorCode.UNSTABLE_OFFSET_COMMIT
    bench.groups.transaction_ended((index + 1) % 4, 7, is_commit=True)
    assert fetch(bench) == FetchedOffset(), "a marker in another partition says nothing about this one"
    bench.groups.transaction_ended(index, 7, is_commit=True)
    assert fetch(bench, stable=True).offset == 5
    commit(bench, producer=PRODUCER, offset=9)
    bench.groups.transaction_ended(index, 7, is_commit=False)
    assert fetch(bench, stable=True).offset == 5


async def test_the_later_of_two_commits_counts_even_if_the_earlier_was_transactional(
    bench: Any, autojump_clock: MockClock
) -> None:
    await bench.start()
    commit(bench, producer=PRODUCER, offset=1)
    commit(bench, offset=2)
    bench.groups.transaction_ended(bench.groups.partition_of("g"), 7, is_commit=True)
    assert fetch(bench).offset == 2


async def test_an_open_transaction_is_still_open_after_a_restart(bench: Any, autojump_clock: MockClock) -> None:
    await bench.start()
    commit(bench, producer=PRODUCER)
    await bench.start()
    assert fetch(bench, stable=True).error is ErrorCode.UNSTABLE_OFFSET_COMMIT


@pytest.mark.parametrize(("is_commit", "offset"), [(True, 5), (False, -1)])
async def test_a_replayed_marker_ends_the_transaction(
    bench: Any, autojump_clock: MockClock, is_commit: bool, offset: int
) -> None:
    await bench.start()
    commit(bench, producer=PRODUCER)
    groups = bench.groups
    index = groups.partition_of("g")
    loader = PartitionLoader(GroupMap(), groups._offsets.offsets)
    for entries in groups._topic.replay(index):
        loader.replay(entries)
    loader.replay([ReplayedMarker(9, 7, is_commit)])
    assert fetch(bench, stable=True).offset == offset


async def test_members_survive_a_restart_until_their_session_timeout(bench: Any, autojump_clock: MockClock) -> None:
    await bench.start()
    joined = await bench.stable_member(session_ms=6_000)
    await bench.start()
    described = bench.groups.describe("g")
    assert (described.group_state, described.protocol_data) == ("Stable", "range")
    assert [(m.member_id, m.member_assignment) for m in described.members] == [(joined.member_id, b"all")]
    await trio.sleep(6.1)
    assert bench.state() == "Empty"


async def test_deleted_groups_stay_deleted(bench: Any, autojump_clock: MockClock) -> None:
    await bench.start()
    joined = await bench.stable_member()
    commit(bench, Committer("g", joined.member_id, joined.generation_id))
    assert bench.outcome(lambda: bench.groups.delete("g")) is ErrorCode.NON_EMPTY_GROUP
    bench.groups.leave("g", [MemberIdentity(member_id=joined.member_id)])
    assert bench.outcome(lambda: bench.groups.delete("g")) is NONE
    assert bench.outcome(lambda: bench.groups.delete("g")) is ErrorCode.GROUP_ID_NOT_FOUND
    await bench.start()
    assert (bench.state(), fetch(bench)) == ("Dead", FetchedOffset())
    assert bench.groups.list([], []) == (NONE, [])


async def test_offset_delete_refuses_topics_that_members_are_subscribed_to(
    bench: Any, autojump_clock: MockClock
) -> None:
    await bench.start()
    with pytest.raises(BrokerError) as unknown:
        bench.groups.delete_offsets("g", [T0])
    assert unknown.value.code is ErrorCode.GROUP_ID_NOT_FOUND
    joined = await bench.stable_member(protocols=(("range", subscription("t")),))
    member = Committer("g", joined.member_id, joined.generation_id)
    bench.groups.commit(member, {T0: OffsetToCommit(1), U0: OffsetToCommit(2)})
    assert bench.groups.delete_offsets("g", [T0, U0]) == {T0: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, U0: NONE}
    assert list(bench.groups.fetch_offsets("g", None, require_stable=False)) == [T0]


async def test_deletion_of_a_topic_deletes_its_committed_offsets(bench: Any, autojump_clock: MockClock) -> None:
    await bench.start()
    bench.groups.commit(NOBODY, {T0: OffsetToCommit(1), T1: OffsetToCommit(2), U0: OffsetToCommit(3)})
    bench.groups.topic_deleted("t")
    assert list(bench.groups.fetch_offsets("g", None, require_stable=False)) == [U0]
    bench.groups.topic_deleted("u")
    assert bench.state() == "Dead"


async def test_offsets_expire(bench: Any, autojump_clock: MockClock) -> None:
    await bench.start(offsets_retention_minutes=60, offsets_retention_check_interval_ms=1_000)
    commit(bench)
    bench.clock.advance(HOUR_MS - 1)
    await trio.sleep(1.1)
    assert fetch(bench).offset == 5
    bench.clock.advance(1)
    await trio.sleep(1.1)
    assert (fetch(bench), bench.state()) == (FetchedOffset(), "Dead")


async def test_a_clients_own_retention_time_counts(bench: Any, autojump_clock: MockClock) -> None:
    await bench.start(offsets_retention_check_interval_ms=1_000)
    commit(bench, retention_ms=500)
    await bench.start()
    bench.clock.advance(500)
    await trio.sleep(1.1)
    assert fetch(bench) == FetchedOffset()


async def test_offset_retention_starts_when_the_last_member_leaves(bench: Any, autojump_clock: MockClock) -> None:
    await bench.start(offsets_retention_minutes=60, offsets_retention_check_interval_ms=1_000)
    joined = await bench.stable_member(protocols=(("range", subscription("t")),), session_ms=60_000)
    commit(bench, Committer("g", joined.member_id, joined.generation_id))
    bench.clock.advance(2 * HOUR_MS)
    await trio.sleep(1.1)
    assert fetch(bench).offset == 5, "a member reads the topic"
    bench.groups.leave("g", [MemberIdentity(member_id=joined.member_id)])
    await trio.sleep(1.1)
    assert fetch(bench).offset == 5
    bench.clock.advance(HOUR_MS)
    await trio.sleep(1.1)
    assert fetch(bench) == FetchedOffset()


async def test_list_groups_filters_by_state_and_type(bench: Any, autojump_clock: MockClock) -> None:
    await bench.start()
    await bench.stable_member()
    commit(bench, Committer("simple"))

    def listed(states: list[str], types: list[str]) -> list[str]:
        return [group.group_id for group in bench.groups.list(states, types)[1]]

    assert listed([], []) == ["g", "simple"]
    assert listed(["stable"], ["Classic"]) == ["g"]
    assert listed(["Empty"], []) == ["simple"]
    assert listed([], ["consumer"]) == []


async def test_unknown_record_versions_in_consumer_offsets_are_skipped(
    bench: Any, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    await bench.start()
    commit(bench)
    index = bench.groups.partition_of("g")
    log = bench.groups._topic
    key = b"\0\1" + encode(OffsetCommitKey(group="g", topic="t", partition=0), 1)
    log.append(index, [(key, b"\0\x63" + b"\0" * 20), (b"\0\x63unknown", b"?"), (b"\0\1", b"cut short"), (b"", b"")])
    await bench.start()
    assert fetch(bench).offset == 5
    assert caplog.text.count("__consumer_offsets") == 4


async def test_a_group_deleted_in_the_middle_of_a_transaction_leaves_nothing(
    bench: Any, autojump_clock: MockClock
) -> None:
    await bench.start()
    commit(bench, producer=PRODUCER)
    assert bench.outcome(lambda: bench.groups.delete("g")) is NONE
    bench.groups.transaction_ended(bench.groups.partition_of("g"), 7, is_commit=True)
    assert (bench.state(), fetch(bench)) == ("Dead", FetchedOffset())
    await bench.start()
    bench.groups.transaction_ended(bench.groups.partition_of("g"), 7, is_commit=True)
    assert (bench.state(), fetch(bench)) == ("Dead", FetchedOffset())
