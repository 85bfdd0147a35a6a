"""Cancelled sends: they end at once, and the log has each sent record exactly once and no others."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing

from gregor.client import Consumer, Delivery, Producer
from gregor.client.errors import AbandonedError, ClosedError, DeadlineExceededError
from gregor.protocol.records import v2
from gregor.protocol.records.record import Record
from tests.broker_process import BrokerProcess
from tests.client.topics import new_topic
from tests.free_ports import free_address
from tests.waiting import PATIENCE_S, eventually

SETTINGS: list[dict[str, Any]] = [
    {},
    {"enable_idempotence": False},
    {"acks": "1"},
    {"acks": "0"},
    {"compression_type": "lz4", "linger_ms": 5},
    {"transactional_id": "cancelled"},
]


def transaction_of(producer: Producer) -> AbstractAsyncContextManager[Any]:
    return producer.transaction() if producer.config.transactional_id else nullcontext()


async def read(bootstrap: str, topic: str, count: int) -> list[bytes | None]:
    """Read at least `count` records, and all further records up to the present end."""
    seen: list[bytes | None] = []
    async with Consumer(bootstrap, auto_offset_reset="earliest", isolation_level="read_committed") as consumer:
        consumer.assign([(topic, 0)])
        with trio.fail_after(PATIENCE_S):
            while len(seen) < count:
                seen += [record.value for record in await consumer.poll()]
            while found := await consumer.poll(200):
                seen += [record.value for record in found]
    return seen


class CancelAtStep(trio.abc.Instrument):
    """An instrument that cancels a scope before the n-th step of the task that created the instrument."""

    def __init__(self, scope: trio.CancelScope, steps: int) -> None:
        self._task = trio.lowlevel.current_task()
        self._scope = scope
        self._steps_left = steps

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        if task is self._task:
            self._steps_left -= 1
            if self._steps_left == 0:
                self._scope.cancel()


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
async def test_a_cancelled_loop_of_sends_loses_and_duplicates_no_records(
    broker_process: BrokerProcess, settings: dict[str, Any]
) -> None:
    topic = await new_topic(broker_process.bootstrap)
    sent: list[bytes] = []
    limit = 3_000_000
    async with Producer(broker_process.bootstrap, **settings) as producer, transaction_of(producer):
        await producer.partitions_for(topic)
        with trio.move_on_after(0.2) as scope:
            while len(sent) < limit:
                await producer.send(topic, b"%d" % len(sent))
                sent.append(b"%d" % len(sent))
    assert scope.cancelled_caught
    assert await read(broker_process.bootstrap, topic, len(sent)) == sent


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
async def test_a_send_cancelled_at_any_step_sends_its_record_once_or_not_at_all(
    broker_process: BrokerProcess, settings: dict[str, Any]
) -> None:
    """With steps in each wait: for metadata (a new topic each time), for memory, and between sends."""
    for step in range(1, 30):
        topic = await new_topic(broker_process.bootstrap)
        sent: list[bytes] = []
        async with Producer(broker_process.bootstrap, buffer_memory=600, batch_size=200, **settings) as producer:
            async with transaction_of(producer):
                with trio.CancelScope() as scope:
                    instrument = CancelAtStep(scope, step)
                    trio.lowlevel.add_instrument(instrument)
                    try:
                        for n in range(12):
                            await producer.send(topic, b"%03d" % n * 30)
                            sent.append(b"%03d" % n * 30)
                    finally:
                        trio.lowlevel.remove_instrument(instrument)
            await producer.flush()
            assert producer._memory.used_bytes == 0
        assert await read(broker_process.bootstrap, topic, len(sent)) == sent
        if not scope.cancelled_caught:
            break
    assert step > 3


async def test_producer_calls_in_a_cancelled_scope_send_nothing(broker_process: BrokerProcess) -> None:
    topic = await new_topic(broker_process.bootstrap)
    raw = v2.build_batch([Record(0, 5, None, b"raw")])
    async with Producer(broker_process.bootstrap) as producer:
        await (await producer.send(topic, b"first"))
        delivery = await producer.send(topic, b"second")
        await delivery
        calls: list[Callable[[], Awaitable[object]]] = [
            lambda: producer.send(topic, b"v"),
            lambda: producer.send_batch(topic, 0, raw),
            lambda: producer.partitions_for(topic),
            lambda: producer.flush(),
            lambda: delivery.wait(),
        ]
        for call in calls:
            with trio.CancelScope() as scope:
                scope.cancel()
                await call()
            assert scope.cancelled_caught
        assert not producer._accumulator.incomplete
    assert await read(broker_process.bootstrap, topic, 2) == [b"first", b"second"]


async def test_loops_of_send_batch_partitions_for_and_flush_can_be_cancelled(broker_process: BrokerProcess) -> None:
    topic = await new_topic(broker_process.bootstrap)
    raw = v2.build_batch([Record(0, 5, None, b"raw")])
    async with Producer(broker_process.bootstrap, acks="1") as producer:
        calls: list[Callable[[], Awaitable[object]]] = [
            lambda: producer.send_batch(topic, 0, raw),
            lambda: producer.partitions_for(topic),
            lambda: producer.flush(),
        ]
        for call in calls:
            with trio.move_on_after(0.1) as scope:
                for _ in range(1_000_000):
                    await call()
            assert scope.cancelled_caught


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
async def test_sends_cancelled_while_the_broker_is_down_lose_no_acknowledged_records(
    broker_process: BrokerProcess, settings: dict[str, Any]
) -> None:
    """Killed in the middle of a loop of sends that is cancelled while it waits for memory, and back before the end."""
    topic = await new_topic(broker_process.bootstrap)
    is_idempotent = not {"acks", "enable_idempotence"} & set(settings)
    sent: list[bytes] = []
    deliveries: list[Delivery] = []
    quick: dict[str, Any] = {"retry_backoff_ms": 20, "reconnect_backoff_ms": 20, "reconnect_backoff_max_ms": 100}

    async def send_until_cancelled(producer: Producer, scope: trio.CancelScope) -> None:
        with scope:
            while True:
                body = b"%06d" % len(sent) * 100
                deliveries.append(await producer.send(topic, body))
                sent.append(body)

    async with (
        Producer(broker_process.bootstrap, buffer_memory=200_000, **quick, **settings) as producer,
        transaction_of(producer),
    ):
        for _ in range(2):
            sent_before = len(sent)
            scope = trio.CancelScope()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(send_until_cancelled, producer, scope)
                await eventually(partial(has_sent, sent, sent_before + 200))
                broker_process.kill()
                scope.deadline = trio.current_time() + 0.2
            assert scope.cancelled_caught
            await trio.to_thread.run_sync(broker_process.start_again)
        with trio.fail_after(PATIENCE_S):
            await producer.flush()
        assert producer._memory.used_bytes == 0
    assert len(deliveries) == len(sent)
    arrived = await read(broker_process.bootstrap, topic, 0 if settings.get("acks") == "0" else len(sent))
    if is_idempotent:
        assert arrived == sent
    else:
        assert set(arrived) <= set(sent)
    if settings.get("acks") != "0":
        assert all(delivery.error is None for delivery in deliveries)
        assert set(arrived) == set(sent)


def has_sent(sent: list[bytes], count: int) -> bool:
    return len(sent) >= count


# --- waits, and what happens meanwhile: no broker answers, so they are as long as is wanted ---


class Waiting:
    """A producer without a broker, whose topic `t` is known, and a send that waits."""

    def __init__(self, **config: Any) -> None:
        host, port = free_address()
        self.producer = Producer(f"{host}:{port}", buffer_memory=1_000, **config)
        self.producer._accumulator.update_topic("t", [None])
        self.outcome: object = None

    async def send(self, topic: str, size: int) -> None:
        try:
            self.outcome = await self.producer.send(topic, bytes(size))
        except Exception as error:
            self.outcome = error


@pytest.mark.parametrize(("topic", "what"), [("t", "memory"), ("unknown", "metadata")])
async def test_a_send_waiting_when_the_producer_closes_raises_closed_error(topic: str, what: str) -> None:
    waiting = Waiting()

    async def leave(nursery: trio.Nursery) -> None:
        async with waiting.producer as producer:
            lost = await producer.send("t", bytes(800))
            nursery.start_soon(waiting.send, topic, 800)
            await trio.testing.wait_all_tasks_blocked()
            raise ZeroDivisionError(lost)

    with trio.fail_after(PATIENCE_S):
        async with trio.open_nursery() as nursery:
            with pytest.raises(ZeroDivisionError) as caught:
                await leave(nursery)
    assert isinstance(caught.value.args[0].error, AbandonedError)
    assert isinstance(waiting.outcome, ClosedError)
    assert what in str(waiting.outcome)
    assert waiting.producer._memory.used_bytes == 0
    assert not waiting.producer._accumulator.incomplete


async def test_a_send_granted_memory_as_the_producer_closes_raises_closed_error() -> None:
    waiting = Waiting()
    with trio.fail_after(PATIENCE_S):
        async with trio.open_nursery() as nursery, waiting.producer as producer:
            await producer.send("t", bytes(800))
            nursery.start_soon(waiting.send, "t", 800)
            await trio.testing.wait_all_tasks_blocked()
            producer._sender.abandon(AbandonedError("this frees the memory"))
            # The memory is granted, and the producer closed before the task that waited runs.
            await producer.__aexit__(ZeroDivisionError, ZeroDivisionError(), None)
    assert isinstance(waiting.outcome, ClosedError)
    assert waiting.producer._memory.used_bytes == 0


async def test_a_record_of_a_topic_evicted_during_its_send_goes_to_the_new_queue() -> None:
    """Otherwise the record would go to queues that are no longer used, and the producer would fail when it ends."""
    waiting = Waiting()
    async with trio.open_nursery() as nursery, waiting.producer as producer:
        accumulator = producer._accumulator
        accumulator.update_topic("other", [None])
        await producer.send("other", bytes(800))
        nursery.start_soon(waiting.send, "t", 800)
        await trio.testing.wait_all_tasks_blocked()
        assert accumulator.forget_topic("t")
        known_again = accumulator.update_topic("t", [None])
        producer._sender.abandon(AbandonedError("this frees the memory"))
        await trio.testing.wait_all_tasks_blocked()
        (batch,) = accumulator.incomplete
        assert accumulator.queue_of(batch) is known_again.queues[0]
        assert list(known_again.queues[0].batches) == [batch]
        producer._sender.abandon(AbandonedError("the test is over"))


async def test_waits_for_metadata_and_memory_share_one_max_block_ms(autojump_clock: trio.testing.MockClock) -> None:
    waiting = Waiting(max_block_ms=10_000)
    async with trio.open_nursery() as nursery, waiting.producer as producer:
        await producer.send("t", bytes(800))
        nursery.start_soon(waiting.send, "new", 800)
        await trio.sleep(9)
        producer._accumulator.update_topic("new", [None])
        producer._metadata._arrived.set()
        await trio.sleep(2)
        assert isinstance(waiting.outcome, DeadlineExceededError)
        assert "buffer.memory" in str(waiting.outcome)
        producer._sender.abandon(AbandonedError("the test is over"))
