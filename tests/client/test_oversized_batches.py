"""Batches that a topic refuses as too large: one refusal makes its limit known (KIP-126)."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import pytest
import trio

from gregor.client import Admin, Delivery, Producer
from gregor.client.admin import AlterOperation, ResourceType
from gregor.client.errors import AbandonedError
from gregor.protocol.errors import BrokerError, ErrorCode
from tests.broker_process import BrokerProcess, running_broker
from tests.client.client_scenes import read
from tests.client.topics import new_topic
from tests.waiting import PATIENCE_S

LIMIT_BYTES = 5_000
RECORD_BYTES = 400
RECORDS = 100
NEVER_MS = 60_000
IN_ORDER: dict[str, Any] = {"enable_idempotence": False, "max_in_flight_requests_per_connection": 1}
"""Without sequence numbers, refused batches keep their order only if they are sent one by one."""
NO_CONFIGS = {
    "the right is missing": "gregor.fault.rule.configs=api=DescribeConfigs error=TOPIC_AUTHORIZATION_FAILED",
    "connections end": "gregor.fault.rule.configs=api=DescribeConfigs disconnect",
}


@pytest.fixture(scope="module", params=NO_CONFIGS)
def silent_broker(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[BrokerProcess]:
    faults = "gregor.fault.injection.enable=true"
    with running_broker(tmp_path_factory.mktemp("silent"), faults, NO_CONFIGS[request.param]) as broker:
        yield broker


def bodies(count: int = RECORDS) -> list[bytes]:
    noise = random.Random(1)
    return [noise.randbytes(RECORD_BYTES) for _ in range(count)]


async def send_all(producer: Producer, topic: str, values: list[bytes], batches: int = 1) -> list[Delivery]:
    """Send the records so that they are in flight as this many batches, and wait for all."""
    deliveries = []
    for start in range(0, len(values), len(values) // batches):
        deliveries += [await producer.send(topic, value) for value in values[start : start + len(values) // batches]]
        await producer.flush()
    return deliveries


@pytest.mark.parametrize("codec", ["none", "lz4"])
@pytest.mark.parametrize(
    "settings",
    [{}, {"enable_idempotence": False}, {"transactional_id": "t"}, {"max_in_flight_requests_per_connection": 1}],
    ids=str,
)
async def test_one_message_too_large_error_makes_the_size_limit_known(
    broker_process: BrokerProcess, settings: dict[str, Any], codec: str
) -> None:
    topic = await new_topic(broker_process.bootstrap, max_message_bytes=str(LIMIT_BYTES))
    values = bodies(3 * RECORDS)
    if "transactional_id" in settings:
        settings = {"transactional_id": topic}
    async with Producer(
        broker_process.bootstrap, batch_size=1 << 20, linger_ms=NEVER_MS, compression_type=codec, **settings
    ) as producer:
        with trio.fail_after(PATIENCE_S):
            async with producer.transaction() if "transactional_id" in settings else nullcontext():
                deliveries = await send_all(producer, topic, values, batches=3)
        metrics = producer.metrics()
    assert [delivery.offset for delivery in deliveries] == list(range(len(values)))
    assert [record.value for record in await read(broker_process.bootstrap, topic)] == values
    needed = len(values) * (RECORD_BYTES + 10) // LIMIT_BYTES + 1
    assert metrics.value("gregor.batch-send-total") <= needed + 1 + 6, "the parts, and one refusal"
    assert metrics.value("record-retry-total") == 0


@pytest.mark.parametrize("settings", [{}, IN_ORDER], ids=["idempotent", "plain"])
async def test_without_describe_configs_the_batch_size_is_halved_once_for_all_batches(
    silent_broker: BrokerProcess, settings: dict[str, Any]
) -> None:
    topic = await new_topic(silent_broker.bootstrap, max_message_bytes=str(LIMIT_BYTES))
    values = bodies(4 * RECORDS)
    async with Producer(silent_broker.bootstrap, batch_size=1 << 20, linger_ms=NEVER_MS, **settings) as producer:
        with trio.fail_after(PATIENCE_S):
            first = await send_all(producer, topic, values[:RECORDS])
            refusals = producer.metrics().value("batch-split-total")
            rest = await send_all(producer, topic, values[RECORDS:], batches=3)
        assert producer.metrics().value("batch-split-total") == refusals + 3, "each is split before it is sent"
    assert [delivery.offset for delivery in first + rest] == list(range(len(values)))
    assert [record.value for record in await read(silent_broker.bootstrap, topic)] == values


@pytest.mark.parametrize("release", ["0.10", "0.11"])
@pytest.mark.parametrize("codec", ["none", "gzip"])
async def test_too_large_batches_are_split_in_old_message_formats(
    broker_process: BrokerProcess, release: str, codec: str
) -> None:
    topic = await new_topic(broker_process.bootstrap, max_message_bytes=str(LIMIT_BYTES))
    values = [*bodies(), b"", b"x" * 8_000, *bodies(20)] if codec == "none" else bodies()
    async with Producer(
        broker_process.bootstrap,
        batch_size=1 << 20,
        linger_ms=NEVER_MS,
        compression_type=codec,
        api_version=release,
        **IN_ORDER,
    ) as producer:
        with trio.fail_after(PATIENCE_S):
            deliveries = await send_all(producer, topic, values)
    errors = [delivery.error for delivery in deliveries]
    refused = [error.code for error in errors if isinstance(error, BrokerError)]
    assert refused == [ErrorCode.MESSAGE_TOO_LARGE] * (codec == "none")
    arrived = [value for value, error in zip(values, errors, strict=True) if error is None]
    assert [record.value for record in await read(broker_process.bootstrap, topic)] == arrived


async def test_a_changed_max_message_bytes_is_noticed(broker_process: BrokerProcess) -> None:
    topic = await new_topic(broker_process.bootstrap, max_message_bytes="20000")
    values = bodies()

    async def limit(size: int) -> None:
        async with Admin(broker_process.bootstrap) as admin:
            change = (AlterOperation.SET, "max.message.bytes", str(size))
            await admin.alter_configs(ResourceType.TOPIC, topic, [change])

    async with Producer(
        broker_process.bootstrap, batch_size=1 << 20, linger_ms=NEVER_MS, metadata_max_age_ms=10 * NEVER_MS
    ) as producer:
        with trio.fail_after(PATIENCE_S):
            deliveries = await send_all(producer, topic, values)
            await limit(LIMIT_BYTES)
            deliveries += await send_all(producer, topic, values)
            limits = producer._accumulator.limits
            assert limits.configured(topic) == LIMIT_BYTES
            await limit(1_000_000)
            clock = limits._clock
            limits._clock = lambda: clock() + 10 * NEVER_MS / 1000
            before = producer.metrics().value("gregor.batch-send-total")
            deliveries += await send_all(producer, topic, values)
            assert producer.metrics().value("gregor.batch-send-total") == before + 1, "knowledge ages"
    assert [delivery.offset for delivery in deliveries] == list(range(3 * RECORDS))


async def test_a_producer_closed_by_an_error_abandons_records_waiting_for_a_size_limit(
    silent_broker: BrokerProcess,
) -> None:
    topic = await new_topic(silent_broker.bootstrap, max_message_bytes=str(LIMIT_BYTES))
    deliveries: list[Delivery] = []
    asked = trio.Event()

    async def never(*_: object, **__: object) -> None:
        asked.set()
        await trio.sleep_forever()

    async def send_and_leave() -> None:
        async with Producer(
            silent_broker.bootstrap, batch_size=1 << 20, linger_ms=20, enable_idempotence=False
        ) as producer:
            producer._cluster.request_any = never  # type: ignore[method-assign,assignment]
            deliveries.extend([await producer.send(topic, value) for value in bodies()])
            await asked.wait()
            raise ZeroDivisionError

    with trio.fail_after(PATIENCE_S), pytest.raises(ZeroDivisionError):
        await send_and_leave()
    assert all(isinstance(delivery.error, AbandonedError) for delivery in deliveries)
