"""Expiry, deleted topics and ends of transactions while groups change or are being loaded."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from gregor.broker.coordinators.groups.classic_protocol import Committer
from gregor.broker.coordinators.groups.consumer_protocol import HeartbeatingClient
from gregor.broker.coordinators.groups.offset_service import OffsetToCommit
from gregor.protocol.errors import BrokerError, ErrorCode
from gregor.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from gregor.protocol.messages.leave_group import MemberIdentity
from tests.broker.coordinators.groups.conftest import MemorySlice
from tests.broker.coordinators.groups.test_committed_offsets import (
    HOUR_MS,
    NOBODY,
    PRODUCER,
    T0,
    U0,
    commit,
    fetch,
    subscription,
)


async def test_a_member_that_joins_while_groups_are_checked_keeps_its_group(
    bench: Any, autojump_clock: MockClock
) -> None:
    """The check pauses between groups: what it does to a group must follow from the group's state at that time."""
    bench.known_topics.add("t", 1)
    await bench.start(offsets_retention_minutes=60, offsets_retention_check_interval_ms=1_000)
    client = HeartbeatingClient("client", "/host")
    first = ConsumerGroupHeartbeatRequest(
        group_id="b", rebalance_timeout_ms=1_000, subscribed_topic_names=["t"], topic_partitions=[]
    )
    bench.groups.commit(Committer("a"), {T0: OffsetToCommit(1)})
    joined = bench.groups.consumer_heartbeat(first, client)
    leave = ConsumerGroupHeartbeatRequest(group_id="b", member_id=joined.member_id, member_epoch=-1)
    bench.groups.consumer_heartbeat(leave, client)
    append = bench.log("a").append
    members: list[str] = []

    def append_and_join(*arguments: Any, **details: Any) -> Any:
        bench.log("a").append = append
        members.append(bench.groups.consumer_heartbeat(first, client).member_id)
        return append(*arguments, **details)

    bench.log("a").append = append_and_join
    bench.clock.advance(HOUR_MS)
    await trio.sleep(1.1)
    described = bench.groups.describe_consumer_group("b")
    assert [member.member_id for member in described.members] == members


async def test_offsets_do_not_expire_while_their_partition_is_being_loaded(
    bench: Any, autojump_clock: MockClock
) -> None:
    """The last records of the partition renew the offset that the first records let expire."""
    settings = {"offsets_retention_minutes": 60, "offsets_retention_check_interval_ms": 1_000}
    await bench.start(**settings)
    joined = await bench.stable_member(protocols=(("range", subscription("t")),), session_ms=60_000)
    commit(bench, Committer("g", joined.member_id, joined.generation_id))
    bench.groups.leave("g", [MemberIdentity(member_id=joined.member_id)])
    for _ in range(10):
        commit(bench)
    bench.clock.advance(2 * HOUR_MS)
    again = await bench.stable_member(protocols=(("range", subscription("t")),), session_ms=60_000)
    bench.groups.commit(Committer("g", again.member_id, again.generation_id), {T0: OffsetToCommit(6)})
    log = bench.log()
    written = len(log.batches)

    def read_a_batch(offset: int, max_bytes: int) -> Any:
        base, data = next((base, data) for base, data in log.batches if base >= offset)
        if base == log.batches[5][0]:
            autojump_clock.jump(1.1)
        return MemorySlice(data)

    log.read = read_a_batch
    await bench.start(**settings)
    assert fetch(bench).offset == 6
    assert len(log.batches) == written


@pytest.mark.parametrize("is_loading", [False, True])
async def test_a_topic_is_deleted_though_the_offsets_topic_takes_no_records(
    bench: Any, autojump_clock: MockClock, is_loading: bool
) -> None:
    """The deletion is decided already: all brokers must hear of it, and what follows in the metadata log."""
    await bench.start()
    bench.groups.commit(NOBODY, {T0: OffsetToCommit(1), U0: OffsetToCommit(3)})

    def refuse(*_: object, **__: object) -> Any:
        raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR)

    bench.log().append = refuse
    if is_loading:
        bench.groups.partitions._unread[bench.groups.partition_of("g")] = object()
    bench.groups.topic_deleted("t")
    bench.groups.topic_deleted("u")
    assert not bench.groups._offsets.offsets.of("g")


async def test_a_marker_that_is_written_while_offsets_are_loaded_is_left_to_the_replay(
    bench: Any, autojump_clock: MockClock
) -> None:
    """The pending offsets may be those of an earlier transaction of the producer, which ended differently."""
    await bench.start()
    commit(bench, producer=PRODUCER)
    index = bench.groups.partition_of("g")
    bench.groups.partitions._unread[index] = object()
    bench.groups.transaction_ended(index, PRODUCER.producer_id, is_commit=False)
    del bench.groups.partitions._unread[index]
    assert bench.groups._offsets.offsets.of("g").pending
    bench.groups.transaction_ended(index, PRODUCER.producer_id, is_commit=True)
    assert fetch(bench).offset == 5
