"""Committed offsets of a consumer: no path commits an older offset later."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from gregor.client import Admin, Consumer
from gregor.protocol.errors import BrokerError, ErrorCode
from gregor.protocol.topic_partition import AnyTopicPartition
from tests.broker_process import BrokerProcess, running_broker
from tests.client.topics import filled_topic
from tests.waiting import PATIENCE_S

COUNT = 10
NEVER_MS = 3_600_000


def settings(topic: str, **more: Any) -> dict[str, Any]:
    return {"group_id": f"g-{topic}", "auto_offset_reset": "earliest", "heartbeat_interval_ms": 50, **more}


async def members_of(admin: Admin, group_id: str) -> list[str]:
    return [member.member_id for member in (await admin.group_overview(group_id)).members]


class FailedError(Exception):
    """An error of the user's code between records, after which the present record is not committed."""


async def committed_on_failure(
    bootstrap: str, topic: str, work: Callable[[Consumer], Awaitable[None]]
) -> dict[AnyTopicPartition, int]:
    """Return the offsets committed by a consumer that reads `topic`, runs this function and fails."""
    config = settings(topic, auto_commit_interval_ms=NEVER_MS)

    async def work_and_fail() -> None:
        async with Consumer(bootstrap, **config) as consumer:
            consumer.subscribe([topic])
            await work(consumer)
            raise FailedError

    with trio.fail_after(PATIENCE_S), pytest.raises(FailedError):
        await work_and_fail()
    async with Admin(bootstrap) as admin:
        return await admin.group_offsets(config["group_id"])


async def test_the_record_being_processed_is_not_committed_on_failure(broker_process: BrokerProcess) -> None:
    topic = await filled_topic(broker_process.bootstrap, count=COUNT)

    async def read(consumer: Consumer) -> None:
        async for record in consumer:
            if record.offset == 5:
                return

    assert await committed_on_failure(broker_process.bootstrap, topic, read) == {(topic, 0): 5}


@pytest.mark.parametrize("is_named", [False, True])
@pytest.mark.parametrize("is_iterating", [False, True])
async def test_a_commit_covers_all_records_that_were_handed_out(
    broker_process: BrokerProcess, is_named: bool, is_iterating: bool
) -> None:
    topic = await filled_topic(broker_process.bootstrap, count=COUNT)

    async def read_and_commit(consumer: Consumer) -> None:
        if is_iterating:
            async for record in consumer:
                if record.offset == 5:
                    break
        else:
            count = 0
            while count < 6:
                count += len(await consumer.poll(max_records=6 - count))
        await consumer.commit({(topic, 0): 6} if is_named else None)

    assert await committed_on_failure(broker_process.bootstrap, topic, read_and_commit) == {(topic, 0): 6}


async def test_records_polled_after_a_commit_are_not_committed_on_failure(broker_process: BrokerProcess) -> None:
    topic = await filled_topic(broker_process.bootstrap, count=COUNT)

    async def commit_and_read(consumer: Consumer) -> None:
        assert await consumer.poll(max_records=1)
        await consumer.commit()
        while consumer.position(topic, 0) != COUNT:
            assert len(await consumer.poll()) == COUNT - 1
        await consumer.commit({(topic, 0): 4})

    assert await committed_on_failure(broker_process.bootstrap, topic, commit_and_read) == {(topic, 0): 4}


async def test_a_commit_that_is_repeated_does_not_come_after_a_later_one(tmp_path: Path) -> None:
    rule = "gregor.fault.rule.loading=api=OffsetCommit error=COORDINATOR_LOAD_IN_PROGRESS first=1"
    with running_broker(tmp_path, "gregor.fault.injection.enable=true", rule) as broker:
        topic = await filled_topic(broker.bootstrap, count=COUNT)
        config = settings(topic, enable_auto_commit=False)
        with trio.fail_after(PATIENCE_S):
            async with Consumer(broker.bootstrap, **config) as consumer, trio.open_nursery() as nursery:
                consumer.assign([(topic, 0)])
                for end in (1, 2):
                    nursery.start_soon(consumer.commit, {(topic, 0): end})
                    await trio.testing.wait_all_tasks_blocked()
            async with Admin(broker.bootstrap) as admin:
                assert await admin.group_offsets(config["group_id"]) == {(topic, 0): 2}


async def test_a_member_that_was_removed_from_its_group_commits_nothing(broker_process: BrokerProcess) -> None:
    """Kafka's coordinators accept offsets without a generation from any client once a group has no members."""
    topic = await filled_topic(broker_process.bootstrap, count=COUNT)
    config = settings(topic, auto_commit_interval_ms=NEVER_MS)
    refusals: list[ErrorCode] = []
    assigned = 0

    async def count(_: object) -> None:
        nonlocal assigned
        assigned += 1

    async def commit(_: object) -> None:
        try:
            await consumer.commit()
        except BrokerError as error:
            refusals.append(error.code)

    with trio.fail_after(PATIENCE_S):
        async with Consumer(broker_process.bootstrap, **config) as consumer, Admin(broker_process.bootstrap) as admin:
            consumer.subscribe([topic], on_assigned=count, on_revoked=commit)
            while assigned < 1 or consumer.position(topic, 0) != COUNT:
                await consumer.poll()
            member_ids = await members_of(admin, config["group_id"])
            await admin.remove_members(config["group_id"], member_ids=member_ids)
            while assigned < 2:
                # Listeners run while the user polls.
                await consumer.poll(20)
            assert refusals == [ErrorCode.UNKNOWN_MEMBER_ID]
            assert await admin.group_offsets(config["group_id"]) == {}


async def test_a_member_that_exceeded_max_poll_interval_ms_commits_nothing(broker_process: BrokerProcess) -> None:
    topic = await filled_topic(broker_process.bootstrap, count=COUNT)
    config = settings(topic, enable_auto_commit=False, group_protocol="consumer", max_poll_interval_ms=300)
    with trio.fail_after(PATIENCE_S):
        async with Consumer(broker_process.bootstrap, **config) as consumer, Admin(broker_process.bootstrap) as admin:
            consumer.subscribe([topic])
            while not consumer.assignment():
                await consumer.poll(20)
            while await members_of(admin, config["group_id"]):
                await trio.lowlevel.checkpoint()
            with pytest.raises(BrokerError) as refused:
                await consumer.commit({(topic, 0): 3})
            assert refused.value.code is ErrorCode.UNKNOWN_MEMBER_ID
            assert await admin.group_offsets(config["group_id"]) == {}
