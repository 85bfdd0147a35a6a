"""The group coordinator is created when it is first needed, and then knows what the offsets topic holds."""

from __future__ import annotations

import trio
import trio.testing

from gregor.broker.config import BrokerConfig
from gregor.broker.coordinators.groups.classic_protocol import Committer
from gregor.broker.coordinators.groups.deferred_coordinator import DeferredGroupCoordinator
from gregor.broker.coordinators.groups.offset_service import OffsetToCommit
from gregor.protocol.errors import ErrorCode
from gregor.protocol.topic_partition import TopicPartition

from .conftest import Bench

T0 = TopicPartition("t", 0)


def deferred(bench: Bench, **settings: object) -> DeferredGroupCoordinator:
    """Return a coordinator yet to be created, beside the one of the bench, with the same log."""
    config = BrokerConfig(**settings)  # type: ignore[arg-type]
    return DeferredGroupCoordinator(config, bench.clock, bench.topics, bench.known_topics)


async def test_a_coordinator_created_by_a_request_keeps_its_groups_and_their_timers(
    bench: Bench, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    place = deferred(bench, group_initial_rebalance_delay_ms=0)
    await nursery.start(place.run)
    place.topic_deleted("t")
    place.resigned(0)
    await trio.testing.wait_all_tasks_blocked()
    assert place._created is None
    bench.groups = place.coordinator
    joined = bench.join(session_ms=6_000)
    await trio.testing.wait_all_tasks_blocked()
    assert [group.group_id for group in place.coordinator.list([], [])[1]] == ["g"]
    assert joined.is_complete
    await trio.sleep(60)
    assert place.coordinator.describe("g").group_state == "Empty"


async def test_an_offsets_topic_is_loaded_at_the_start(bench: Bench, nursery: trio.Nursery) -> None:
    assert bench.groups.commit(Committer("g"), {T0: OffsetToCommit(7)}) == {T0: ErrorCode.NONE}
    place = deferred(bench)
    await nursery.start(place.run)
    assert place.coordinator.list([], [])[0] == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    await trio.testing.wait_all_tasks_blocked()
    assert place.coordinator.fetch_offsets("g", [T0], require_stable=True)[T0].offset == 7
    place.topic_deleted("t")
    assert place.coordinator.fetch_offsets("g", None, require_stable=True) == {}


async def test_an_election_loads_a_partition_and_its_end_drops_it(bench: Bench, nursery: trio.Nursery) -> None:
    assert bench.groups.commit(Committer("g"), {T0: OffsetToCommit(7)}) == {T0: ErrorCode.NONE}
    index = bench.groups.partition_of("g")
    place = deferred(bench)
    await nursery.start(place.run)
    place.elected(index)
    await trio.testing.wait_all_tasks_blocked()
    assert [group.group_id for group in place.coordinator.list([], [])[1]] == ["g"]
    place.resigned(index)
    assert place.coordinator.fetch_offsets("g", None, require_stable=True) == {}
