"""Exactly once from topic to topic: a consumer's offsets and the produced records are committed together."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count as counting
from pathlib import Path
from typing import Any

import pytest
import trio

from gregor.client import Admin, Consumer, Producer
from gregor.client.errors import AbandonedError, ConfigError
from gregor.protocol.errors import BrokerError, ErrorCode
from tests.broker_process import BrokerProcess, running_broker
from tests.client.topics import filled_topic, new_topic
from tests.waiting import PATIENCE_S

SESSION_TIMEOUT_MS = 1_000
QUICK_GROUPS = (
    "offsets.topic.num.partitions=1",
    "transaction.state.log.num.partitions=1",
    "group.initial.rebalance.delay.ms=0",
    "group.min.session.timeout.ms=100",
    "group.consumer.heartbeat.interval.ms=100",
    "group.consumer.min.heartbeat.interval.ms=100",
    "group.consumer.min.session.timeout.ms=100",
    f"group.consumer.session.timeout.ms={SESSION_TIMEOUT_MS}",
)
PROTOCOLS = {
    "range": "partition.assignment.strategy=range",
    "cooperative-sticky": "partition.assignment.strategy=cooperative-sticky",
    "consumer": "group.protocol=consumer",
}


@pytest.fixture(scope="module")
def quick_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with running_broker(tmp_path_factory.mktemp("quick"), *QUICK_GROUPS) as broker:
        yield broker


def settings(topic: str, **more: Any) -> dict[str, Any]:
    return {
        "group_id": f"g-{topic}",
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "heartbeat_interval_ms": 50,
        **more,
    }


async def committed_values(bootstrap: str, topic: str, partitions: int = 1) -> list[bytes | None]:
    """Return the values that a reader of committed records finds, once all transactions have met their end."""
    places = [(topic, partition) for partition in range(partitions)]
    values: list[bytes | None] = []
    async with (
        Consumer(bootstrap) as of_all,
        Consumer(bootstrap, auto_offset_reset="earliest", isolation_level="read_committed") as consumer,
    ):
        ends = await of_all.end_offsets(places)
        consumer.assign(places)
        with trio.fail_after(PATIENCE_S):
            while any((consumer.position(*place) or 0) < end for place, end in ends.items()):
                values += [record.value for record in await consumer.poll(200)]
    return values


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_kills_of_transactional_members_lose_and_duplicate_no_records(
    quick_broker: BrokerProcess, protocol: str
) -> None:
    """Three members are replaced one after the other, some by kill -9, so that the group rebalances all the time."""
    total = 3_000
    source = await filled_topic(quick_broker.bootstrap, partitions=4, count=total)
    target = await new_topic(quick_broker.bootstrap, 4)
    numbers = counting()

    def start() -> subprocess.Popen[bytes]:
        script = str(Path(__file__).with_name("transformer.py"))
        names = (quick_broker.bootstrap, source, target, f"{source}-{next(numbers)}")
        group = (f"group.id=g-{source}", PROTOCOLS[protocol], "heartbeat.interval.ms=100")
        session = () if protocol == "consumer" else (f"session.timeout.ms={SESSION_TIMEOUT_MS}",)
        return subprocess.Popen([sys.executable, script, *names, *group, *session])

    async def until_committed(admin: Admin, records: int) -> None:
        while sum((await admin.group_offsets(f"g-{source}")).values()) < records:  # noqa: ASYNC110 (as in waiting.py)
            await trio.sleep(0.05)

    with ExitStack() as stack, trio.fail_after(PATIENCE_S):
        members = [stack.enter_context(_killed_at_last(start())) for _ in range(2)]
        async with Admin(quick_broker.bootstrap) as admin:
            for step in range(1, 5):
                await until_committed(admin, total * step // 6)
                if step % 2:
                    members.pop(0).kill()
                members.append(stack.enter_context(_killed_at_last(start())))
            await until_committed(admin, total)
    assert Counter(await committed_values(quick_broker.bootstrap, target, 4)) == {b"%d" % n: 1 for n in range(total)}


class _killed_at_last:  # noqa: N801 (a context manager that reads like a word)
    """A context that kills a process at its end if the process is still running."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def __enter__(self) -> subprocess.Popen[bytes]:
        return self._process

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()


async def test_records_read_by_an_aborted_transaction_are_read_again(quick_broker: BrokerProcess) -> None:
    source, target = await filled_topic(quick_broker.bootstrap, count=10), await new_topic(quick_broker.bootstrap)

    async def fail(consumer: Consumer, producer: Producer) -> None:
        async with consumer.transaction(producer, max_records=4) as records:
            await producer.send(target, records[0].value)
            raise ZeroDivisionError

    with trio.fail_after(PATIENCE_S):
        async with (
            Producer(quick_broker.bootstrap, transactional_id=source) as producer,
            Consumer(quick_broker.bootstrap, **settings(source)) as consumer,
        ):
            consumer.subscribe([source])
            for _ in range(2):
                with pytest.raises(ZeroDivisionError):
                    await fail(consumer, producer)
            seen: list[int] = []
            while len(seen) < 10:
                async with consumer.transaction(producer, max_records=4) as records:
                    for record in records:
                        seen.append(record.offset)
                        await producer.send(target, record.value)
            async with consumer.transaction(producer, timeout_ms=10) as records:
                assert records == []
        async with Admin(quick_broker.bootstrap) as admin:
            assert await admin.group_offsets(f"g-{source}") == {(source, 0): 10}
    assert seen == list(range(10))
    assert await committed_values(quick_broker.bootstrap, target) == [b"%d" % n for n in range(10)]


@pytest.mark.parametrize("is_written_out", [False, True])
async def test_a_member_that_was_removed_from_its_group_commits_no_transaction(
    quick_broker: BrokerProcess, is_written_out: bool
) -> None:
    source, target = await filled_topic(quick_broker.bootstrap, count=10), await new_topic(quick_broker.bootstrap)
    config = settings(source, heartbeat_interval_ms=60_000, session_timeout_ms=100_000)

    async def put_out(admin: Admin) -> None:
        (member,) = (await admin.group_overview(f"g-{source}")).members
        await admin.remove_members(f"g-{source}", member_ids=[member.member_id])

    async def transform_by_hand(consumer: Consumer, producer: Producer, admin: Admin) -> None:
        records = await consumer.poll()
        async with producer.transaction():
            await producer.send(target, records[0].value)
            await put_out(admin)
            await producer.send_offsets_to_transaction(consumer.group_metadata(), {(source, 0): 10})

    with trio.fail_after(PATIENCE_S):
        async with (
            Producer(quick_broker.bootstrap, transactional_id=source) as producer,
            Consumer(quick_broker.bootstrap, **config) as consumer,
            Admin(quick_broker.bootstrap) as admin,
        ):
            consumer.subscribe([source])
            if is_written_out:
                with pytest.raises(BrokerError) as refused:
                    await transform_by_hand(consumer, producer, admin)
                assert refused.value.code is ErrorCode.UNKNOWN_MEMBER_ID
            else:
                async with consumer.transaction(producer) as records:
                    delivery = await producer.send(target, records[0].value)
                    await put_out(admin)
                assert delivery.error is None or isinstance(delivery.error, AbandonedError)
            assert await admin.group_offsets(f"g-{source}") == {}
    assert await committed_values(quick_broker.bootstrap, target) == []


async def test_a_consumer_transaction_requires_group_id_and_no_auto_commit(quick_broker: BrokerProcess) -> None:
    async with (
        Producer(quick_broker.bootstrap, transactional_id="beside") as producer,
        Consumer(quick_broker.bootstrap, group_id="beside") as consumer,
        Consumer(quick_broker.bootstrap, enable_auto_commit=False) as without_group,
    ):
        for each in (consumer, without_group):
            with pytest.raises(ConfigError, match="enable_auto_commit=False"):
                async with each.transaction(producer):
                    raise AssertionError("never begun")
        with pytest.raises(ConfigError, match="group_id"):
            without_group.group_metadata()
