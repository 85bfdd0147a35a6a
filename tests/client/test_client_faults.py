"""Records whose connection is cut in the middle of an answer, or that are never answered."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import trio

from gregor.client import Consumer, Delivery, Producer
from gregor.client.errors import DeadlineExceededError
from tests.broker_process import BrokerProcess
from tests.client.faulty_proxy import broker_for_proxy, faulty_proxy
from tests.waiting import PATIENCE_S


@pytest.fixture(scope="module")
def hidden_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[BrokerProcess, int]]:
    with broker_for_proxy(tmp_path_factory.mktemp("hidden"), "offsets.topic.num.partitions=1") as broker_and_port:
        yield broker_and_port


async def read_until(bootstrap: str, topic: str, count: int) -> list[bytes | None]:
    seen: list[bytes | None] = []
    async with Consumer(bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, 0)])
        with trio.fail_after(PATIENCE_S):
            while len(seen) < count:
                seen += [record.value for record in await consumer.poll()]
            seen += [record.value for record in await consumer.poll(100)]
    return seen


async def test_cut_produce_responses_lose_and_duplicate_no_records(hidden_broker: tuple[BrokerProcess, int]) -> None:
    broker, port = hidden_broker
    async with faulty_proxy(broker, port) as proxy:
        deliveries: list[Delivery] = []
        async with Producer(f"127.0.0.1:{port}", retry_backoff_ms=5, reconnect_backoff_ms=5) as producer:
            for round_number in range(15):
                proxy.cut_after_bytes = 3 + 4 * round_number
                deliveries += [await producer.send("cut", b"%d-%d" % (round_number, n)) for n in range(40)]
                with trio.fail_after(PATIENCE_S):
                    await deliveries[-1]
        assert proxy.cuts >= 10
        assert all(delivery.error is None for delivery in deliveries)
        proxy.cut_after_bytes = None
        expected = [b"%d-%d" % (round_number, n) for round_number in range(15) for n in range(40)]
        assert await read_until(f"127.0.0.1:{port}", "cut", len(expected)) == expected


async def test_cut_fetch_responses_lose_and_duplicate_no_records(hidden_broker: tuple[BrokerProcess, int]) -> None:
    broker, port = hidden_broker
    bootstrap = f"127.0.0.1:{port}"
    seen: list[int] = []
    async with faulty_proxy(broker, port) as proxy:
        async with Producer(bootstrap, linger_ms=5) as producer:
            for n in range(3_000):
                await producer.send("cut-fetches", b"%d" % n)
        async with Consumer(
            bootstrap,
            auto_offset_reset="earliest",
            max_partition_fetch_bytes=2_000,
            retry_backoff_ms=5,
            reconnect_backoff_ms=5,
        ) as consumer:
            consumer.assign([("cut-fetches", 0)])
            with trio.fail_after(PATIENCE_S):
                while len(seen) < 3_000:
                    if proxy.cut_after_bytes is None and proxy.cuts < 20:
                        proxy.cut_after_bytes = 777 * proxy.cuts
                    seen += [record.offset for record in await consumer.poll(max_records=20)]
        assert proxy.cuts >= 3
    assert seen == list(range(3_000))


async def test_undeliverable_records_fail_after_delivery_timeout_ms_and_later_ones_succeed(
    hidden_broker: tuple[BrokerProcess, int],
) -> None:
    broker, port = hidden_broker
    # Records are delivered even if the machine pauses for a moment.
    patient_enough: dict[str, Any] = {"delivery_timeout_ms": 6_000, "request_timeout_ms": 5_000, "retry_backoff_ms": 10}
    async with (
        faulty_proxy(broker, port) as proxy,
        Producer(f"127.0.0.1:{port}", **patient_enough) as producer,
    ):
        await (await producer.send("undeliverable", b"first"))
        proxy.refuses = True
        await proxy.cut_all()
        lost = await producer.send("undeliverable", b"lost")
        with pytest.raises(DeadlineExceededError, match="not delivered in"):
            await lost
        proxy.refuses = False
        late = await producer.send("undeliverable", b"late")
        assert (await late).offset == 1


async def test_a_record_is_retried_when_the_broker_is_silent_for_request_timeout_ms(
    hidden_broker: tuple[BrokerProcess, int],
) -> None:
    broker, port = hidden_broker
    async with (
        faulty_proxy(broker, port) as proxy,
        Producer(f"127.0.0.1:{port}", request_timeout_ms=300, retry_backoff_ms=10) as producer,
    ):
        await (await producer.send("silent", b"0"))
        proxy.answer_delay_s = 60.0
        late = await producer.send("silent", b"1")
        with trio.move_on_after(0.5):
            await late
        proxy.answer_delay_s = 0.0
        with trio.fail_after(PATIENCE_S):
            assert (await late).offset == 1, "the repeated batch is recognised, not appended twice"
            assert await read_until(f"127.0.0.1:{port}", "silent", 2) == [b"0", b"1"]
