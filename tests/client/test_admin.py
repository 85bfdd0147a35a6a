"""The admin client against a broker process."""

from __future__ import annotations

from uuid import uuid4

import pytest
import trio

from gregor.client import Admin, Consumer, Producer
from gregor.client.admin import AlterOperation, NewTopic, ResourceType
from gregor.client.errors import DeadlineExceededError, UnknownTopicError
from gregor.client.wire.offset_lookup import EARLIEST, LATEST
from gregor.protocol.apis import ApiKey
from gregor.protocol.errors import BrokerError, ErrorCode
from tests.broker_process import BrokerProcess
from tests.waiting import PATIENCE_S


async def test_topics_are_created_listed_described_and_deleted(broker_process: BrokerProcess) -> None:
    name = f"a-{uuid4().hex[:12]}"
    async with Admin(broker_process.bootstrap) as admin:
        await admin.create_topics([NewTopic(name, 2, 1, {"retention.ms": "5000"})], validate_only=True)
        assert name not in await admin.list_topics()
        await admin.create_topics([NewTopic(name, 2, 1, {"retention.ms": "5000"})])
        assert name in await admin.list_topics()
        with pytest.raises(BrokerError) as refused:
            await admin.create_topics([NewTopic(name)])
        assert refused.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
        await admin.create_partitions(name, 5)
        (described,) = await admin.describe_topics([name])
        assert len(described.partitions) == 5
        assert described.leaders == [described.leaders[0]] * 5
        await admin.delete_topics([name])
        with pytest.raises(UnknownTopicError):
            await admin.describe_topics([name])


async def test_topic_and_broker_configs_are_altered_and_described(broker_process: BrokerProcess) -> None:
    name = f"a-{uuid4().hex[:12]}"
    async with Admin(broker_process.bootstrap) as admin:
        await admin.create_topics([NewTopic(name, 1, 1)])
        await admin.alter_configs(ResourceType.TOPIC, name, [(AlterOperation.SET, "segment.ms", "777")])
        (entry,) = await admin.describe_configs(ResourceType.TOPIC, name, ["segment.ms"])
        assert (entry.name, entry.value) == ("segment.ms", "777")
        await admin.alter_configs(ResourceType.TOPIC, name, [(AlterOperation.DELETE, "segment.ms", None)])
        (entry,) = await admin.describe_configs(ResourceType.TOPIC, name, ["segment.ms"])
        assert entry.value == "604800000"
        with pytest.raises(BrokerError):
            await admin.alter_configs(ResourceType.TOPIC, name, [(AlterOperation.SET, "segment.ms", "soon")])
        cluster = await admin.describe_cluster()
        (node,) = cluster.brokers
        assert any(e.name == "log.dirs" for e in await admin.describe_configs(ResourceType.BROKER, str(node)))


async def test_groups_are_described_and_their_offsets_altered_and_deleted(broker_process: BrokerProcess) -> None:
    name = f"a-{uuid4().hex[:12]}"
    group_id = f"g-{name}"
    async with Producer(broker_process.bootstrap) as producer:
        await (await producer.send(name, b"v"))
    async with Admin(broker_process.bootstrap) as admin:
        async with Consumer(broker_process.bootstrap, group_id=group_id, auto_offset_reset="earliest") as consumer:
            consumer.subscribe([name])
            with trio.fail_after(PATIENCE_S):
                await consumer.poll()
            assert group_id in [group.group_id for group in await admin.list_groups()]
            group = await admin.describe_group(group_id)
            assert (group.group_state, len(group.members)) == ("Stable", 1)
        assert await admin.group_offsets(group_id) == {(name, 0): 1}
        await admin.alter_group_offsets(group_id, {(name, 0): 0})
        assert await admin.group_offsets(group_id, [(name, 0)]) == {(name, 0): 0}
        await admin.delete_group_offsets(group_id, [(name, 0)])
        assert await admin.group_offsets(group_id) == {}
        await admin.alter_group_offsets(group_id, {(name, 0): 0})
        await admin.delete_groups([group_id])
        assert (await admin.describe_group(group_id)).group_state == "Dead"


async def test_offsets_are_listed_and_records_deleted(broker_process: BrokerProcess) -> None:
    name = f"a-{uuid4().hex[:12]}"
    place = (name, 0)
    async with Producer(broker_process.bootstrap) as producer:
        for _ in range(10):
            await producer.send(name, b"v")
    async with Admin(broker_process.bootstrap) as admin:
        latest = (await admin.list_offsets({place: LATEST}))[place]
        assert latest is not None
        assert latest.offset == 10
        assert await admin.delete_records({place: 4}) == {place: 4}
        earliest = (await admin.list_offsets({place: EARLIEST}))[place]
        assert earliest is not None
        assert earliest.offset == 4


async def test_api_versions_and_log_dirs_are_described(broker_process: BrokerProcess) -> None:
    async with Admin(broker_process.bootstrap) as admin:
        versions = await admin.api_versions()
        assert versions[ApiKey.FETCH] >= 11
        described = await admin.describe_log_dirs()
        assert [directory.error_code for directories in described.values() for directory in directories] == [0]


async def test_an_unreachable_broker_fails_after_the_api_timeout() -> None:
    async with Admin("127.0.0.1:1", default_api_timeout_ms=2_000) as admin:
        with pytest.raises(DeadlineExceededError, match="cannot connect"):
            await admin.list_topics()
