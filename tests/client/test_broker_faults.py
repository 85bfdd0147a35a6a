"""Brokers that die and restart, leaders that move, clocks that jump: no record is lost or duplicated."""

from __future__ import annotations

import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import trio

from gregor.client import Admin, Consumer, Delivery, Producer
from gregor.client.consumer.consumer_record import ConsumerRecord
from gregor.client.errors import AbandonedError
from gregor.client.producer import producer as producer_module
from gregor.protocol.errors import BrokerError, ErrorCode
from gregor.protocol.records import v2
from gregor.protocol.records.record import Record
from tests.broker_process import BrokerProcess, running_broker
from tests.client.topics import new_topic
from tests.client.two_addresses import two_addresses
from tests.waiting import PATIENCE_S

QUICK: dict[str, Any] = {"retry_backoff_ms": 5, "reconnect_backoff_ms": 5, "reconnect_backoff_max_ms": 50}
MEETING_AGAIN = (ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.REBALANCE_IN_PROGRESS)
ONE_PARTITION = (
    "offsets.topic.num.partitions=1",
    "transaction.state.log.num.partitions=1",
    "group.initial.rebalance.delay.ms=0",
)


def expected(count: int) -> list[bytes]:
    return [b"%d" % n for n in range(count)]


async def read(bootstrap: str, topic: str, count: int, **config: object) -> list[bytes | None]:
    """Read that many records, and all further ones that arrive within a moment."""
    seen: list[bytes | None] = []
    async with Consumer(bootstrap, auto_offset_reset="earliest", **config) as consumer:
        consumer.assign([(topic, 0)])
        with trio.fail_after(PATIENCE_S):
            while len(seen) < count:
                seen += [record.value for record in await consumer.poll()]
            seen += [record.value for record in await consumer.poll(100)]
    return seen


async def kill_and_restart(broker: BrokerProcess) -> None:
    await trio.to_thread.run_sync(broker.kill)
    await trio.to_thread.run_sync(broker.start_again)


async def test_kills_of_the_broker_lose_and_duplicate_no_records(tmp_path: Path) -> None:
    """Producer and consumer run through three kill -9 of their only broker."""
    with running_broker(tmp_path, *ONE_PARTITION) as broker:
        topic = await new_topic(broker.bootstrap)
        deliveries: list[Delivery] = []
        seen: list[bytes | None] = []
        is_over, is_sent = trio.Event(), trio.Event()

        async def keep_sending(producer: Producer) -> None:
            while not is_over.is_set() or len(deliveries) < 3_000:
                deliveries.append(await producer.send(topic, b"%d" % len(deliveries)))
                if len(deliveries) % 100 == 0:
                    await deliveries[-50]

        async def keep_reading() -> None:
            async with Consumer(broker.bootstrap, auto_offset_reset="earliest", **QUICK) as consumer:
                consumer.assign([(topic, 0)])
                while not is_sent.is_set() or len(seen) < len(deliveries):
                    seen.extend(record.value for record in await consumer.poll(100))

        with trio.fail_after(PATIENCE_S):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(keep_reading)
                async with Producer(broker.bootstrap, **QUICK) as producer, trio.open_nursery() as sending:
                    sending.start_soon(keep_sending, producer)
                    for _ in range(3):
                        before = len(deliveries)
                        while len(deliveries) < before + 300:
                            await trio.lowlevel.checkpoint()
                        await kill_and_restart(broker)
                    is_over.set()
                is_sent.set()
        assert all(delivery.error is None for delivery in deliveries)
        assert [delivery.offset for delivery in deliveries] == list(range(len(deliveries)))
        assert await read(broker.bootstrap, topic, len(deliveries)) == expected(len(deliveries)) == seen


async def test_a_transaction_survives_the_brokers_death(tmp_path: Path) -> None:
    with running_broker(tmp_path, *ONE_PARTITION) as broker:
        topic = await new_topic(broker.bootstrap)
        async with Producer(broker.bootstrap, transactional_id="t", **QUICK) as producer:
            for round_number in range(3):
                async with producer.transaction():
                    await (await producer.send(topic, b"%d" % (2 * round_number)))
                    await kill_and_restart(broker)
                    await producer.send(topic, b"%d" % (2 * round_number + 1))
        assert await read(broker.bootstrap, topic, 6, isolation_level="read_committed") == expected(6)


async def test_an_abort_waits_for_its_broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_module, "CLOSE_GRACE_SECONDS", 0.05)
    with running_broker(tmp_path, *ONE_PARTITION) as broker:
        topic = await new_topic(broker.bootstrap)
        async with (
            Producer(broker.bootstrap, transactional_id="t", **QUICK) as producer,
            trio.open_nursery() as nursery,
        ):
            with suppress(ZeroDivisionError):
                async with producer.transaction():
                    await (await producer.send(topic, b"aborted"))
                    broker.process.send_signal(signal.SIGSTOP)
                    nursery.start_soon(let_go_on, broker)
                    raise ZeroDivisionError
            async with producer.transaction():
                await producer.send(topic, b"0")
        assert await read(broker.bootstrap, topic, 1, isolation_level="read_committed") == expected(1)


async def let_go_on(broker: BrokerProcess) -> None:
    """Continue the stopped broker after a moment."""
    await trio.sleep(0.3)
    broker.process.send_signal(signal.SIGCONT)


async def test_a_transaction_with_an_unknown_outcome_is_aborted_by_the_next_producer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producer_module, "CLOSE_GRACE_SECONDS", 0.05)
    with running_broker(tmp_path, *ONE_PARTITION) as broker:
        topic = await new_topic(broker.bootstrap)
        async with Producer(broker.bootstrap, transactional_id="t", **QUICK) as producer:
            with trio.CancelScope() as scope:
                async with producer.transaction():
                    await (await producer.send(topic, b"aborted"))
                    broker.process.send_signal(signal.SIGSTOP)
                    scope.cancel()
                    await trio.lowlevel.checkpoint()
            broker.process.send_signal(signal.SIGCONT)
            with pytest.raises(AbandonedError):
                async with producer.transaction():
                    pass
        async with Producer(broker.bootstrap, transactional_id="t", **QUICK) as producer, producer.transaction():
            await producer.send(topic, b"0")
        assert await read(broker.bootstrap, topic, 1, isolation_level="read_committed") == expected(1)


async def read_and_commit(consumer: Consumer, topic: str, end: int, seen: list[bytes | None]) -> None:
    """Read and commit until `end` is committed; records not committed before a rebalance are read again."""
    place = (topic, 0)
    while (await consumer.committed(place)).get(place) != end:
        while consumer.position(topic, 0) != end:
            seen += [record.value for record in await consumer.poll()]
        try:
            await consumer.commit()
        except BrokerError as error:
            if error.code not in MEETING_AGAIN:
                raise


async def test_a_group_goes_on_after_its_coordinators_death(tmp_path: Path) -> None:
    with running_broker(tmp_path, *ONE_PARTITION) as broker:
        topic = await new_topic(broker.bootstrap)
        seen: list[bytes | None] = []
        async with (
            Producer(broker.bootstrap, **QUICK) as producer,
            Consumer(broker.bootstrap, group_id="g", auto_offset_reset="earliest", **QUICK) as consumer,
        ):
            consumer.subscribe([topic])
            with trio.fail_after(PATIENCE_S):
                for n in range(4):
                    await (await producer.send(topic, b"%d" % n))
                    await read_and_commit(consumer, topic, n + 1, seen)
                    if n < 3:
                        await kill_and_restart(broker)
        assert list(dict.fromkeys(seen)) == expected(4)
        async with Admin(broker.bootstrap) as admin:
            assert await admin.group_offsets("g") == {(topic, 0): 4}


async def test_leader_changes_lose_duplicate_and_reorder_no_records(broker_process: BrokerProcess) -> None:
    async with two_addresses(broker_process) as cluster:
        topic = await new_topic(cluster.bootstrap)
        deliveries: list[Delivery] = []
        seen: list[bytes | None] = []
        async with (
            Producer(cluster.bootstrap, **QUICK) as producer,
            Consumer(cluster.bootstrap, auto_offset_reset="earliest", **QUICK) as consumer,
        ):
            consumer.assign([(topic, 0)])
            with trio.fail_after(PATIENCE_S):
                while cluster.refusals < 10:
                    for _ in range(100):
                        deliveries.append(await producer.send(topic, b"%d" % len(deliveries)))
                        # Batches of few records, so that several are in flight when the leader moves.
                        await trio.lowlevel.checkpoint()
                    cluster.leader = 3 - cluster.leader
                    seen += [record.value for record in await consumer.poll()]
                await producer.flush()
                while len(seen) < len(deliveries):
                    seen += [record.value for record in await consumer.poll()]
        count = len(deliveries)
        assert [delivery.offset for delivery in deliveries] == list(range(count))
        assert seen == expected(count) == await read(broker_process.bootstrap, topic, count)


@pytest.mark.parametrize("settings", [{}, {"acks": "1"}, {"compression_type": "lz4"}], ids=str)
async def test_a_producer_retries_at_once_at_the_leader_named_in_a_produce_response(
    broker_process: BrokerProcess, settings: dict[str, Any]
) -> None:
    """KIP-951: Metadata answers are behind, and the client connects to the named leader without a back-off."""
    async with two_addresses(broker_process) as cluster:
        topic = await new_topic(cluster.bootstrap)
        async with Producer(
            cluster.bootstrap, retry_backoff_ms=600_000, retry_backoff_max_ms=600_000, **settings
        ) as producer:
            await (await producer.send(topic, b"0"))
            cluster.gives_hints = True
            for n, leader in enumerate((2, 1, 2), start=1):
                cluster.stale_leader, cluster.leader = 3 - leader, leader
                cluster.leader_epoch = 100 + n
                with trio.fail_after(PATIENCE_S):
                    assert (await (await producer.send(topic, b"%d" % n))).offset == n
        assert cluster.refusals == 3
    assert await read(broker_process.bootstrap, topic, 4) == expected(4)


async def test_a_consumer_fetches_at_once_from_the_leader_named_in_a_fetch_response(
    broker_process: BrokerProcess,
) -> None:
    """KIP-951: Metadata answers are behind, and no back-off comes before the leader that was named."""
    async with two_addresses(broker_process) as cluster:
        topic = await new_topic(cluster.bootstrap)
        async with (
            Producer(broker_process.bootstrap) as producer,
            Consumer(cluster.bootstrap, auto_offset_reset="earliest", retry_backoff_ms=600_000) as consumer,
        ):
            consumer.assign([(topic, 0)])
            for n, leader in enumerate((1, 2, 1, 2)):
                if n:
                    cluster.gives_hints = True
                    cluster.stale_leader, cluster.leader, cluster.leader_epoch = 3 - leader, leader, 100 + n
                await (await producer.send(topic, b"%d" % n))
                with trio.fail_after(PATIENCE_S):
                    assert [record.value for record in await consumer.poll()] == [b"%d" % n]
        assert cluster.refusals == 3


async def test_records_are_sent_once_their_partition_has_a_leader(broker_process: BrokerProcess) -> None:
    async with two_addresses(broker_process) as cluster:
        topic = await new_topic(cluster.bootstrap)
        async with Producer(cluster.bootstrap, **QUICK) as producer:
            await (await producer.send(topic, b"0"))
            cluster.leader = -1
            delivery = await producer.send(topic, b"1")
            with trio.fail_after(PATIENCE_S):
                while (await producer.partitions_for(topic))[0].leader is not None:
                    await trio.lowlevel.checkpoint()
                cluster.leader = 1
                await delivery
    assert await read(broker_process.bootstrap, topic, 2) == expected(2)


async def test_raw_batches_stay_in_order_when_the_leader_moves(broker_process: BrokerProcess) -> None:
    async with two_addresses(broker_process) as cluster:
        topic = await new_topic(cluster.bootstrap)
        async with Producer(cluster.bootstrap, **QUICK) as producer:
            deliveries = []
            with trio.fail_after(PATIENCE_S):
                for n in range(200):
                    raw = v2.build_batch(
                        [Record(0, 5, None, b"%d" % n)], producer_id=99_000, producer_epoch=0, base_sequence=n
                    )
                    deliveries.append(await producer.send_batch(topic, 0, raw, keeps_producer=True))
                    if n % 20 == 0:
                        cluster.leader = 3 - cluster.leader
                    await trio.lowlevel.checkpoint()
                assert [(await delivery).offset for delivery in deliveries] == list(range(200))
        assert await read(broker_process.bootstrap, topic, 200) == expected(200)


async def test_wall_clock_jumps_affect_timestamps_only(broker_process: BrokerProcess) -> None:
    """Timestamps are those of the clock; no wait or timeout depends on the clock."""
    topic = await new_topic(broker_process.bootstrap)
    day_ms = 86_400_000
    jumps = [0, 10 * day_ms, -20 * day_ms, 3_650 * day_ms, -5, 7]
    now_ms = 1_700_000_000_000
    times: list[int] = []

    def jumping_clock() -> int:
        times.append(now_ms + jumps[len(times) % len(jumps)])
        return times[-1]

    async with Producer(broker_process.bootstrap, clock_ms=jumping_clock, linger_ms=20) as producer:
        with trio.fail_after(PATIENCE_S):
            deliveries = [await producer.send(topic, b"%d" % n) for n in range(600)]
            await producer.flush()
    assert all(delivery.error is None for delivery in deliveries)
    async with Consumer(broker_process.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, 0)])
        records: list[ConsumerRecord] = []
        with trio.fail_after(PATIENCE_S):
            while len(records) < 600:
                records += await consumer.poll()
    assert [(record.value, record.timestamp) for record in records] == list(zip(expected(600), times, strict=True))
