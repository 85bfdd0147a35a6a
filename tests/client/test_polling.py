"""`poll` and iteration during waits, after cancellation, and while records must not be returned."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from gregor.client import Consumer, Producer
from gregor.client.errors import ClosedError
from gregor.protocol.errors import BrokerError, ErrorCode
from gregor.protocol.topic_partition import AnyTopicPartition
from tests.broker_process import BrokerProcess, running_broker
from tests.client.topics import filled_topic, new_topic
from tests.waiting import PATIENCE_S

BACKLOG = 20_000
MAX_POLL_INTERVAL_MS = 250


async def _iterate(consumer: Consumer) -> int:
    return (await anext(aiter(consumer))).offset


async def _poll(consumer: Consumer) -> int:
    return (await consumer.poll(max_records=1))[0].offset


async def _poll_batches(consumer: Consumer) -> int:
    return (await consumer.poll_batches())[0].first_offset


WAYS: list[Callable[[Consumer], Awaitable[int]]] = [_iterate, _poll, _poll_batches]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("wait_for_offset", WAYS)
async def test_waiting_for_records_counts_as_polling(
    broker_process: BrokerProcess, wait_for_offset: Callable[[Consumer], Awaitable[int]], protocol: str
) -> None:
    topic = await new_topic(broker_process.bootstrap)
    lost: list[AnyTopicPartition] = []
    is_assigned = trio.Event()
    found: list[int] = []
    lost_before: list[AnyTopicPartition] = []
    config: dict[str, Any] = {
        "group_id": f"g-{topic}",
        "group_protocol": protocol,
        "auto_offset_reset": "earliest",
        "heartbeat_interval_ms": 50,
        "max_poll_interval_ms": MAX_POLL_INTERVAL_MS,
    }

    async def on_assigned(_: object) -> None:
        is_assigned.set()

    async def on_lost(places: list[AnyTopicPartition]) -> None:
        lost.extend(places)

    async with Consumer(broker_process.bootstrap, **config) as consumer, Producer(broker_process.bootstrap) as producer:
        consumer.subscribe([topic], on_assigned=on_assigned, on_lost=on_lost)

        async def wait() -> None:
            found.append(await wait_for_offset(consumer))
            # From now on nobody polls: while the clients are closed the consumer may rightly lose its partitions.
            lost_before.extend(lost)

        with trio.fail_after(PATIENCE_S):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(wait)
                await is_assigned.wait()
                # Only waiting can show that nothing happens afterwards.
                await trio.sleep(4 * MAX_POLL_INTERVAL_MS / 1000)
                assert consumer.assignment() == [(topic, 0)]
                await producer.send(topic, b"late")
    assert (found, lost_before) == ([0], [])


@pytest.mark.parametrize("take", [_iterate, _poll])
async def test_a_read_loop_cancelled_in_a_backlog_loses_no_records(
    broker_process: BrokerProcess, take: Callable[[Consumer], Awaitable[int]]
) -> None:
    topic = await filled_topic(broker_process.bootstrap, count=BACKLOG)
    offsets: list[int] = []
    async with Consumer(broker_process.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, 0)])

        async def read_all() -> None:
            while len(offsets) < BACKLOG:
                offsets.append(await take(consumer))

        async def cancel_soon(scope: trio.CancelScope) -> None:
            while not offsets:
                await trio.lowlevel.checkpoint()
            scope.cancel()

        with trio.fail_after(PATIENCE_S):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(cancel_soon, nursery.cancel_scope)
                nursery.start_soon(read_all)
            assert nursery.cancel_scope.cancelled_caught
            assert len(offsets) < BACKLOG
            await read_all()
    assert offsets == list(range(BACKLOG)), "nothing is lost or skipped"


@pytest.mark.parametrize("take", WAYS)
async def test_a_cancelled_poll_does_not_move_the_position(
    broker_process: BrokerProcess, take: Callable[[Consumer], Awaitable[int]]
) -> None:
    topic = await filled_topic(broker_process.bootstrap)
    async with Consumer(broker_process.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, 0)])
        with trio.fail_after(PATIENCE_S):
            assert await _poll(consumer) == 0
            with trio.CancelScope() as scope:
                scope.cancel()
                await take(consumer)
            assert scope.cancelled_caught
            assert consumer.position(topic, 0) == 1
            assert await take(consumer) == 1


async def test_iteration_returns_no_records_of_paused_partitions(broker_process: BrokerProcess) -> None:
    topic = await filled_topic(broker_process.bootstrap, partitions=2, count=200)
    seen: list[tuple[int, int]] = []
    async with Consumer(broker_process.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, 0), (topic, 1)])
        with trio.fail_after(PATIENCE_S):
            async for record in consumer:
                seen.append((record.partition, record.offset))
                if len(seen) == 1:
                    consumer.pause((topic, record.partition))
                elif len(seen) == 101:
                    consumer.resume(*consumer.assignment())
                elif len(seen) == 200:
                    break
    first, other = seen[0][0], 1 - seen[0][0]
    assert seen[1:101] == [(other, offset) for offset in range(100)]
    assert seen[101:] == [(first, offset) for offset in range(1, 100)]


async def test_good_records_come_before_the_damaged_batch_behind_them(broker_process: BrokerProcess) -> None:
    topic = await new_topic(broker_process.bootstrap)
    async with Producer(broker_process.bootstrap) as producer:
        for value in (b"good", b"damaged"):
            await (await producer.send(topic, value))
    (log,) = (broker_process.directory / "logs" / f"{topic}-0").glob("*.log")
    with log.open("r+b") as file:
        file.seek(log.read_bytes().index(b"damaged"))
        file.write(b"DAMAGED")
    async with Consumer(broker_process.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, 0)])
        with trio.fail_after(PATIENCE_S):
            assert [record.value for record in await consumer.poll()] == [b"good"]
            for _ in range(2):
                with pytest.raises(BrokerError) as caught:
                    await consumer.poll()
                assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
    assert consumer.position(topic, 0) == 1


async def test_a_closed_consumer_returns_no_records(broker_process: BrokerProcess) -> None:
    topic = await filled_topic(broker_process.bootstrap)
    async with Consumer(broker_process.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, 0)])
        with trio.fail_after(PATIENCE_S):
            await _iterate(consumer)
    for take in WAYS:
        with pytest.raises(ClosedError):
            await take(consumer)


async def test_offset_out_of_range_is_raised_by_each_poll_until_a_seek(broker_process: BrokerProcess) -> None:
    topic = await filled_topic(broker_process.bootstrap)
    async with Consumer(broker_process.bootstrap, auto_offset_reset="none") as consumer:
        consumer.assign([(topic, 0)])
        with trio.fail_after(PATIENCE_S):
            for _ in range(2):
                with pytest.raises(BrokerError, match="OFFSET_OUT_OF_RANGE"):
                    await consumer.poll()
            consumer.seek(topic, 0, 7)
            assert (await consumer.poll())[0].offset == 7


async def test_a_missing_topic_does_not_delay_other_partitions(tmp_path: Path) -> None:
    with running_broker(tmp_path, "auto.create.topics.enable=false") as broker:
        topic = await filled_topic(broker.bootstrap)
        async with Consumer(broker.bootstrap, auto_offset_reset="earliest") as consumer:
            consumer.assign([("missing", 0), (topic, 0)])
            # Before `default.api.timeout.ms`, after which the position of `missing` is given up for a moment.
            with trio.fail_after(PATIENCE_S / 4):
                assert (await consumer.poll())[0].topic == topic
