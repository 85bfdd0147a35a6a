"""The client with brokers that offer what Kafka 0.10, 0.11 and those between offered, and no more."""

from __future__ import annotations

import pytest
import trio

from gregor.client import Admin, Consumer, Producer
from gregor.client.wire.connection import Connection
from gregor.protocol.apis import ApiKey
from gregor.protocol.spoken_versions import PINNED_RELEASES
from tests.broker_process import BrokerProcess
from tests.client.client_scenes import CLIENT_SCENES, ClientScene, eager_group, every_codec, raw_batches, read
from tests.client.topics import new_topic
from tests.waiting import PATIENCE_S

KAFKA_1_0 = {
    **PINNED_RELEASES["0.11"],
    ApiKey.FETCH: 6,
    ApiKey.PRODUCE: 5,
    ApiKey.METADATA: 5,
    ApiKey.CREATE_PARTITIONS: 0,
    ApiKey.DESCRIBE_LOG_DIRS: 0,
}
KAFKA_2_0 = {
    **KAFKA_1_0,
    ApiKey.FETCH: 8,
    ApiKey.PRODUCE: 6,
    ApiKey.METADATA: 6,
    ApiKey.LIST_OFFSETS: 3,
    ApiKey.JOIN_GROUP: 3,
    ApiKey.OFFSET_COMMIT: 4,
    ApiKey.OFFSET_FETCH: 4,
    ApiKey.DELETE_GROUPS: 1,
}
NEW_AGES = {"1.0": KAFKA_1_0, "2.0": KAFKA_2_0}
WITH_ZSTD = (every_codec, raw_batches)
"""Scenes for Kafka 2.1 and later."""


def offer_only(monkeypatch: pytest.MonkeyPatch, newest: dict[ApiKey, int]) -> None:
    """Let ApiVersions answers end at these versions."""
    negotiate = Connection._negotiate

    async def negotiate_and_forget(connection: Connection) -> None:
        await negotiate(connection)
        offered: dict[int, tuple[int, int]] = {key: (0, version) for key, version in newest.items()}
        connection.versions._offered = {**offered, ApiKey.API_VERSIONS: (0, 0)}

    monkeypatch.setattr(Connection, "_negotiate", negotiate_and_forget)


@pytest.mark.parametrize("age", NEW_AGES)
@pytest.mark.parametrize(
    "scene", [scene for scene in CLIENT_SCENES if scene not in WITH_ZSTD], ids=lambda scene: scene.__name__
)
async def test_clients_work_with_the_api_versions_of_kafka_1_0_and_2_0(
    broker_process: BrokerProcess, monkeypatch: pytest.MonkeyPatch, age: str, scene: ClientScene
) -> None:
    offer_only(monkeypatch, dict(NEW_AGES[age]))
    with trio.fail_after(PATIENCE_S):
        await scene(broker_process.bootstrap)


@pytest.mark.parametrize("age", ["0.10", "0.11"])
async def test_clients_work_with_the_api_versions_of_kafka_0_10_and_0_11(
    broker_process: BrokerProcess, monkeypatch: pytest.MonkeyPatch, age: str
) -> None:
    """0.10 has message format v1 and no idempotence: the producer works without it unless it is required."""
    offer_only(monkeypatch, dict(PINNED_RELEASES[age]))
    with trio.fail_after(PATIENCE_S):
        topic = await new_topic(broker_process.bootstrap)
        for codec in ("none", "gzip", "snappy", "lz4"):
            async with Producer(broker_process.bootstrap, compression_type=codec, linger_ms=5) as producer:
                for n in range(50):
                    await producer.send(topic, b"%d" % n, key=b"k")
        records = await read(broker_process.bootstrap, topic)
        assert [record.value for record in records] == [b"%d" % n for n in range(50)] * 4
        await eager_group(broker_process.bootstrap)
        async with Admin(broker_process.bootstrap) as admin:
            assert topic in await admin.list_topics()
            assert (await admin.describe_cluster()).brokers
            await admin.delete_topics([topic])
        async with Consumer(broker_process.bootstrap) as consumer:
            assert topic not in await consumer.topics()
