"""A classic group from its first member to its last, with time that jumps."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages.heartbeat import HeartbeatRequest
from gregor.protocol.messages.join_group import JoinGroupResponse
from gregor.protocol.messages.leave_group import MemberIdentity

NONE = ErrorCode.NONE


def beat(bench: Any, joined: JoinGroupResponse, instance: str | None = None) -> ErrorCode:
    request = HeartbeatRequest(
        group_id="g", generation_id=joined.generation_id, member_id=joined.member_id, group_instance_id=instance
    )
    code: ErrorCode = bench.outcome(lambda: bench.groups.heartbeat(request))
    return code


def leave(bench: Any, member_id: str, instance: str | None = None) -> ErrorCode:
    (result,) = bench.groups.leave("g", [MemberIdentity(member_id=member_id, group_instance_id=instance)])
    return ErrorCode(result.error_code)


async def test_one_member_joins_syncs_and_leaves(bench: Any, autojump_clock: MockClock) -> None:
    await bench.start()
    joined = await bench.join().wait()
    assert (joined.generation_id, joined.leader, joined.protocol_name) == (1, joined.member_id, "range")
    assert [member.metadata for member in joined.members] == [b"meta"]
    assert bench.state() == "CompletingRebalance"
    synced = await bench.sync(joined, {joined.member_id: b"mine"}).wait()
    assert (synced.assignment, bench.state(), beat(bench, joined)) == (b"mine", "Stable", NONE)
    assert leave(bench, joined.member_id) is NONE
    assert bench.state() == "Empty"
    assert beat(bench, joined) is ErrorCode.UNKNOWN_MEMBER_ID


async def test_join_group_from_v4_on_requires_a_member_id(bench: Any, autojump_clock: MockClock) -> None:
    await bench.start()
    given = await bench.join(version=4).wait()
    assert given.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert given.member_id.startswith("client-")
    joined = await bench.join(given.member_id, version=4).wait()
    assert (joined.error_code, joined.member_id) == (NONE, given.member_id)


async def test_an_unused_member_id_expires_after_the_session_timeout(bench: Any, autojump_clock: MockClock) -> None:
    await bench.start()
    given = await bench.join(version=4, session_ms=6_000).wait()
    await trio.sleep(6.1)
    assert (await bench.join(given.member_id, version=4).wait()).error_code == ErrorCode.UNKNOWN_MEMBER_ID


async def test_the_initial_rebalance_delay_is_extended_while_members_join(
    bench: Any, autojump_clock: MockClock
) -> None:
    await bench.start(group_initial_rebalance_delay_ms=3_000)
    began = trio.current_time()
    first = bench.join()
    await trio.sleep(2)
    second = bench.join()
    joined = await first.wait()
    assert trio.current_time() - began == pytest.approx(6, abs=0.1)
    assert second.is_complete
    assert len(joined.members) == 2


async def test_a_second_member_makes_the_first_rejoin(bench: Any, autojump_clock: MockClock) -> None:
    await bench.start()
    first = await bench.stable_member()
    newcomer = bench.join()
    assert beat(bench, first) is ErrorCode.REBALANCE_IN_PROGRESS
    again = await bench.join(first.member_id).wait()
    second = await newcomer.wait()
    assert (again.generation_id, second.generation_id, second.leader) == (2, 2, first.member_id)
    assert (len(again.members), second.members) == (2, [])
    parked = bench.sync(second)
    assert not parked.is_complete
    leaders = await bench.sync(again, {first.member_id: b"1", second.member_id: b"2"}).wait()
    assert (leaders.assignment, (await parked.wait()).assignment) == (b"1", b"2")


async def test_a_member_that_does_not_rejoin_within_the_rebalance_timeout_is_removed(
    bench: Any, autojump_clock: MockClock
) -> None:
    await bench.start()
    first = await bench.stable_member(rebalance_ms=1_000, session_ms=30_000)
    began = trio.current_time()
    second = await bench.join(rebalance_ms=1_000).wait()
    assert trio.current_time() - began == pytest.approx(1, abs=0.1)
    assert (second.leader, len(second.members)) == (second.member_id, 1)
    assert beat(bench, first) is ErrorCode.UNKNOWN_MEMBER_ID


async def test_a_member_that_does_not_sync_within_the_rebalance_timeout_is_removed(
    bench: Any, autojump_clock: MockClock
) -> None:
    await bench.start()
    first, second = bench.join(), bench.join()
    leader, follower = await first.wait(), await second.wait()
    waiting = bench.sync(follower)
    await trio.sleep(9)
    assert beat(bench, leader) is NONE
    await trio.sleep(9)
    assert beat(bench, leader) is NONE
    await trio.sleep(9)
    assert beat(bench, leader) is NONE
    assert (await waiting.wait()).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert beat(bench, leader) is ErrorCode.UNKNOWN_MEMBER_ID


async def test_a_session_without_heartbeats_ends(bench: Any, autojump_clock: MockClock) -> None:
    await bench.start()
    joined = await bench.stable_member(session_ms=6_000)
    await trio.sleep(5.9)
    assert beat(bench, joined) is NONE
    await trio.sleep(5.9)
    assert bench.state() == "Stable"
    await trio.sleep(0.2)
    assert bench.state() == "Empty"


async def test_the_strategy_with_most_votes_wins(bench: Any, autojump_clock: MockClock) -> None:
    await bench.start()
    first = bench.join(protocols=(("range", b"a"), ("rr", b"a2")))
    bench.join(protocols=(("rr", b"b"), ("range", b"b2")))
    bench.join(protocols=(("rr", b"c"), ("range", b"c2"), ("sticky", b"c3")))
    joined = await first.wait()
    assert joined.protocol_name == "rr"
    assert {member.metadata for member in joined.members} == {b"a2", b"b", b"c"}


async def test_join_group_with_invalid_protocols_session_timeout_or_group_id_is_refused(
    bench: Any, autojump_clock: MockClock
) -> None:
    await bench.start()
    await bench.stable_member()
    for misfit in ({"protocols": (("sticky", b""),)}, {"kind": "connect"}, {"protocols": ()}):
        assert (await bench.join(**misfit).wait()).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert (await bench.join(group="new", kind="").wait()).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert (await bench.join(session_ms=5_999).wait()).error_code == ErrorCode.INVALID_SESSION_TIMEOUT
    assert (await bench.join(group="").wait()).error_code == ErrorCode.INVALID_GROUP_ID


async def test_a_group_at_group_max_size_refuses_new_members(bench: Any, autojump_clock: MockClock) -> None:
    await bench.start(group_max_size=1)
    member = await bench.stable_member()
    assert (await bench.join().wait()).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert (await bench.join(member.member_id).wait()).error_code == NONE


async def test_a_follower_that_rejoins_unchanged_does_not_start_a_rebalance(
    bench: Any, autojump_clock: MockClock
) -> None:
    await bench.start()
    first, second = bench.join(), bench.join()
    leader, follower = await first.wait(), await second.wait()
    bench.sync(follower)
    await bench.sync(leader).wait()
    again = await bench.join(follower.member_id).wait()
    assert (again.generation_id, bench.state()) == (leader.generation_id, "Stable")
    bench.join(follower.member_id, protocols=(("range", b"changed"),))
    assert bench.state() == "PreparingRebalance"


async def test_a_restarted_static_member_takes_its_place_without_a_rebalance(
    bench: Any, autojump_clock: MockClock
) -> None:
    await bench.start()
    old = await bench.stable_member(instance="i1")
    new = await bench.join(instance="i1", version=9).wait()
    assert new.member_id.startswith("i1-")
    assert (new.generation_id, new.leader, new.skip_assignment) == (old.generation_id, new.member_id, True)
    assert (await bench.sync(new, instance="i1").wait()).assignment == b"all"
    assert beat(bench, old, "i1") is ErrorCode.FENCED_INSTANCE_ID
    older_client = await bench.join(instance="i1", version=5).wait()
    assert (older_client.leader, older_client.members) == (new.member_id, [])
    assert leave(bench, "", "i1") is NONE
    assert leave(bench, "", "i1") is ErrorCode.UNKNOWN_MEMBER_ID


async def test_a_static_member_that_misses_the_rebalance_timeout_stays_in_the_group(
    bench: Any, autojump_clock: MockClock
) -> None:
    await bench.start()
    await bench.stable_member(instance="i1", session_ms=60_000, rebalance_ms=1_000)
    joined = await bench.join(rebalance_ms=1_000).wait()
    assert {member.group_instance_id for member in joined.members} == {"i1", None}


async def test_a_rebalance_completes_when_the_member_that_it_waits_for_leaves(
    bench: Any, autojump_clock: MockClock
) -> None:
    await bench.start()
    first = await bench.stable_member(session_ms=60_000)
    newcomer = bench.join()
    assert leave(bench, first.member_id) is NONE
    joined = await newcomer.wait()
    assert (joined.error_code, len(joined.members)) == (NONE, 1)
