"""Rebalances happen only within `poll`, and processed records are not returned again."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

from gregor.client import Admin, Consumer
from gregor.client.wire.connection import Connection
from gregor.protocol.errors import BrokerError, ErrorCode
from gregor.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from gregor.protocol.messages.heartbeat import HeartbeatRequest
from gregor.protocol.topic_partition import AnyTopicPartition
from tests.broker_process import BrokerProcess, running_broker
from tests.client.topics import filled_topic, new_topic
from tests.waiting import PATIENCE_S, eventually

NEVER_MS = 3_600_000
HEARTBEATS = 5
PROTOCOLS: dict[str, dict[str, Any]] = {
    "range": {"partition_assignment_strategy": "range"},
    "cooperative-sticky": {"partition_assignment_strategy": "cooperative-sticky"},
    "consumer": {"group_protocol": "consumer"},
}
QUICK_GROUPS = (
    "offsets.topic.num.partitions=1",
    "group.initial.rebalance.delay.ms=0",
    "group.consumer.heartbeat.interval.ms=50",
    "group.consumer.min.heartbeat.interval.ms=50",
)
each_protocol = pytest.mark.parametrize("protocol", PROTOCOLS)


@pytest.fixture(scope="module")
def quick_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with running_broker(tmp_path_factory.mktemp("quick"), *QUICK_GROUPS) as broker:
        yield broker


def settings(topic: str, protocol: str, **more: Any) -> dict[str, Any]:
    common = {"group_id": f"g-{topic}", "auto_offset_reset": "earliest", "heartbeat_interval_ms": 50}
    return {**common, **PROTOCOLS[protocol], **more}


async def until_assigned(consumer: Consumer, count: int) -> None:
    while len(consumer.assignment()) != count:
        await consumer.poll(20)


@each_protocol
@pytest.mark.parametrize("is_iterating", [False, True])
async def test_committed_records_are_not_read_again_after_rebalances(
    quick_broker: BrokerProcess, protocol: str, is_iterating: bool
) -> None:
    """Members join and leave while they read; offsets are committed only by rebalances and at the close."""
    count = 6_000
    topic = await filled_topic(quick_broker.bootstrap, partitions=4, count=count)
    config = settings(topic, protocol, auto_commit_interval_ms=NEVER_MS, max_poll_records=100)
    seen: Counter[bytes | None] = Counter()

    async def read(limit: int) -> None:
        """Read at most the given number of records, then leave the group."""
        own = 0
        async with Consumer(quick_broker.bootstrap, **config) as consumer:
            consumer.subscribe([topic])
            while own < limit and len(seen) < count:
                if is_iterating:
                    with trio.move_on_after(0.02):
                        async for record in consumer:
                            seen[record.value] += 1
                            own += 1
                            if own % 100 == 0:
                                break
                else:
                    records = await consumer.poll(20)
                    seen.update(record.value for record in records)
                    own += len(records)
                # Other tasks run, and rebalances find members that are busy with records.
                await trio.sleep(0.01)

    with trio.fail_after(PATIENCE_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(read, count)
            for step, limit in ((600, 500), (1_200, 500), (1_800, count)):
                await eventually(lambda step=step: len(seen) >= step)  # type: ignore[misc]
                nursery.start_soon(read, limit)
    assert seen == Counter({b"%d" % n: 1 for n in range(count)})


@each_protocol
async def test_listeners_run_in_the_users_task(quick_broker: BrokerProcess, protocol: str) -> None:
    topic = await new_topic(quick_broker.bootstrap, 2)
    calls: list[str] = []
    user = trio.lowlevel.current_task()

    async def on_assigned(places: list[AnyTopicPartition]) -> None:
        assert trio.lowlevel.current_task() is user
        calls.append(f"assigned {len(places)}")

    async def on_revoked(places: list[AnyTopicPartition]) -> None:
        assert trio.lowlevel.current_task() is user
        assert set(places) <= set(first.assignment()), "partitions that are still assigned are revoked"
        calls.append(f"revoked {len(places)}")

    with trio.fail_after(PATIENCE_S):
        async with Consumer(quick_broker.bootstrap, **settings(topic, protocol)) as first:
            first.subscribe([topic], on_assigned=on_assigned, on_revoked=on_revoked)
            await until_assigned(first, 2)
            async with Consumer(quick_broker.bootstrap, **settings(topic, protocol)) as second:
                second.subscribe([topic])
                before = list(calls)
                with trio.move_on_after(0.5):
                    await second.poll()
                assert calls == before, "nothing happens while the user does not poll"
                while len(first.assignment()) != 1 or len(second.assignment()) != 1:
                    await first.poll(20)
                    await second.poll(20)
    assert calls[0] == "assigned 2"
    assert calls[1] == ("revoked 2" if protocol == "range" else "revoked 1")
    assert calls[-1] == "revoked 1", "closing revokes too"


async def wait_for_heartbeats(monkeypatch: pytest.MonkeyPatch, member_id: str) -> None:
    """Return once a member of this process has had the answers to `HEARTBEATS` further heartbeats."""
    request = Connection.request
    answered = 0

    async def counted(connection: Connection, message: Any, *others: Any, **settings: Any) -> Any:
        nonlocal answered
        answer = await request(connection, message, *others, **settings)
        is_heartbeat = isinstance(message, HeartbeatRequest | ConsumerGroupHeartbeatRequest)
        answered += is_heartbeat and message.member_id == member_id
        return answer

    with monkeypatch.context() as patch:
        patch.setattr(Connection, "request", counted)
        await eventually(lambda: answered >= HEARTBEATS)


@each_protocol
async def test_a_member_sends_heartbeats_while_its_listener_runs_and_stays_in_the_group(
    quick_broker: BrokerProcess, protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So a listener may take longer than the session timeout; short sessions would end on a busy machine."""
    topic = await filled_topic(quick_broker.bootstrap, partitions=2, count=10)
    config = settings(topic, protocol, enable_auto_commit=False)
    outcomes: list[object] = []

    async def on_revoked(places: list[AnyTopicPartition]) -> None:
        if not outcomes:
            await wait_for_heartbeats(monkeypatch, first.group_metadata().member_id)
            try:
                outcomes.append(await first.commit())
            except BrokerError as error:
                outcomes.append(error)

    async def on_lost(places: list[AnyTopicPartition]) -> None:
        outcomes.append("lost")

    with trio.fail_after(PATIENCE_S):
        async with Consumer(quick_broker.bootstrap, **config) as first:
            first.subscribe([topic], on_revoked=on_revoked, on_lost=on_lost)
            seen = 0
            while seen < 10:
                seen += len(await first.poll())
            async with Consumer(quick_broker.bootstrap, **config) as second:
                second.subscribe([topic])
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(until_assigned, first, 1)
                    nursery.start_soon(until_assigned, second, 1)
            async with Admin(quick_broker.bootstrap) as admin:
                assert await admin.group_offsets(config["group_id"]) == {(topic, 0): 5, (topic, 1): 5}
    assert outcomes == [None]


@pytest.mark.parametrize("protocol", ["range", "cooperative-sticky"])
async def test_a_removed_member_loses_its_partitions_at_the_next_poll(
    quick_broker: BrokerProcess, protocol: str
) -> None:
    topic = await filled_topic(quick_broker.bootstrap)
    config = settings(topic, protocol)
    calls: list[str] = []

    async def note(name: str, places: list[AnyTopicPartition]) -> None:
        calls.append(f"{name} {len(places)}")

    async with Consumer(quick_broker.bootstrap, **config) as consumer, Admin(quick_broker.bootstrap) as admin:
        consumer.subscribe(
            [topic],
            on_assigned=lambda places: note("assigned", places),
            on_revoked=lambda places: note("revoked", places),
            on_lost=lambda places: note("lost", places),
        )
        with trio.fail_after(PATIENCE_S):
            assert (await consumer.poll(max_records=10))[-1].offset == 9
            (member,) = (await admin.group_overview(config["group_id"])).members
            await admin.remove_members(config["group_id"], member_ids=[member.member_id])
            await eventually(lambda: consumer.assignment() == [])
            assert calls == ["assigned 1"]
            with pytest.raises(BrokerError) as refused:
                await consumer.commit()
            assert refused.value.code is ErrorCode.UNKNOWN_MEMBER_ID
            with pytest.raises(BrokerError):
                consumer.group_metadata()
            assert (await consumer.poll())[0].offset == 0, "nothing was committed"
    assert calls == ["assigned 1", "lost 1", "assigned 1", "revoked 1"]


async def test_exceptions_of_rebalance_listeners_are_raised_by_poll(quick_broker: BrokerProcess) -> None:
    topic = await filled_topic(quick_broker.bootstrap)

    async def on_assigned(_: object) -> None:
        raise ZeroDivisionError

    async with Consumer(quick_broker.bootstrap, **settings(topic, "range")) as consumer:
        consumer.subscribe([topic], on_assigned=on_assigned)
        with trio.fail_after(PATIENCE_S):
            with pytest.raises(ZeroDivisionError):
                await consumer.poll()
            assert (await consumer.poll())[0].offset == 0


async def test_a_permanent_group_error_is_raised_by_each_poll(quick_broker: BrokerProcess) -> None:
    topic = await new_topic(quick_broker.bootstrap)
    config = settings(topic, "consumer", group_remote_assignor="mine")
    async with Consumer(quick_broker.bootstrap, **config) as consumer:
        consumer.subscribe([topic])
        with trio.fail_after(PATIENCE_S):
            for _ in range(2):
                with pytest.raises(BrokerError, match="UNSUPPORTED_ASSIGNOR"):
                    await consumer.poll()


async def test_a_pattern_is_matched_once_the_broker_is_there(tmp_path: Path) -> None:
    with running_broker(tmp_path, *QUICK_GROUPS) as broker:
        topic = await filled_topic(broker.bootstrap)
        await trio.to_thread.run_sync(broker.kill)
        config = settings(topic, "range", retry_backoff_ms=10, reconnect_backoff_max_ms=50)
        async with Consumer(broker.bootstrap, **config) as consumer:
            consumer.subscribe(re.compile("topic-.*"))
            assert await consumer.poll(200) == []
            await trio.to_thread.run_sync(broker.start_again)
            with trio.fail_after(PATIENCE_S):
                assert (await consumer.poll())[0].offset == 0


async def test_another_pattern_is_matched_at_once(quick_broker: BrokerProcess) -> None:
    one, other = await filled_topic(quick_broker.bootstrap), await filled_topic(quick_broker.bootstrap)
    async with Consumer(quick_broker.bootstrap, **settings(one, "range")) as consumer:
        with trio.fail_after(PATIENCE_S):
            for topic in (one, other):
                consumer.subscribe(re.compile(topic))
                while consumer.assignment() != [(topic, 0)]:
                    await consumer.poll(20)


async def test_a_commit_refused_with_stale_member_epoch_is_retried(tmp_path: Path) -> None:
    rule = "gregor.fault.rule.overtaken=api=OffsetCommit error=STALE_MEMBER_EPOCH first=2"
    with running_broker(tmp_path, *QUICK_GROUPS, "gregor.fault.injection.enable=true", rule) as broker:
        topic = await filled_topic(broker.bootstrap)
        config = settings(topic, "consumer", enable_auto_commit=False, retry_backoff_ms=10)
        with trio.fail_after(PATIENCE_S):
            async with Consumer(broker.bootstrap, **config) as consumer:
                consumer.subscribe([topic])
                end = (await consumer.poll())[-1].offset + 1
                await consumer.commit()
            async with Admin(broker.bootstrap) as admin:
                assert await admin.group_offsets(config["group_id"]) == {(topic, 0): end}
