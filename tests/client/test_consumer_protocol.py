"""Consumers of the consumer protocol (KIP-848), and of topics that are recreated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio

from gregor.client import Admin, Consumer, Producer
from gregor.client.admin import NewTopic
from gregor.client.errors import ConfigError
from gregor.protocol.errors import BrokerError, ErrorCode
from gregor.protocol.topic_partition import AnyTopicPartition
from tests.broker_process import BrokerProcess, running_broker
from tests.client.topics import new_topic
from tests.waiting import PATIENCE_S


def settings(topic: str, **more: Any) -> dict[str, Any]:
    return {"group_id": f"g-{topic}", "group_protocol": "consumer", "auto_offset_reset": "earliest", **more}


async def until_assigned(consumer: Consumer, count: int) -> None:
    while len(consumer.assignment()) != count:
        await consumer.poll(20)


@pytest.fixture(scope="module")
def quick_broker(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Provide a broker with heartbeats every 50 ms, as a rebalance takes a few of them."""
    overrides = (
        "offsets.topic.num.partitions=1",
        "group.consumer.heartbeat.interval.ms=50",
        "group.consumer.min.heartbeat.interval.ms=50",
    )
    with running_broker(tmp_path_factory.mktemp("quick"), *overrides) as broker:
        yield broker


async def test_members_share_partitions_and_take_over_those_of_a_leaving_member(quick_broker: BrokerProcess) -> None:
    topic = await new_topic(quick_broker.bootstrap, 4)
    revoked: list[AnyTopicPartition] = []

    async def on_revoked(places: list[AnyTopicPartition]) -> None:
        revoked.extend(places)

    with trio.fail_after(PATIENCE_S):
        async with Consumer(quick_broker.bootstrap, **settings(topic)) as first:
            first.subscribe([topic], on_revoked=on_revoked)
            await until_assigned(first, 4)
            async with Consumer(quick_broker.bootstrap, **settings(topic)) as second:
                second.subscribe([topic])
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(until_assigned, first, 2)
                    nursery.start_soon(until_assigned, second, 2)
                assert set(first.assignment()) | set(second.assignment()) == {(topic, n) for n in range(4)}
                assert sorted(revoked) == sorted(second.assignment())
            await until_assigned(first, 4)
            async with Admin(quick_broker.bootstrap) as admin:
                group = await admin.describe_consumer_group(f"g-{topic}")
                assert (group.group_state, len(group.members)) == ("Stable", 1)


async def test_a_group_goes_on_where_it_has_committed(quick_broker: BrokerProcess) -> None:
    topic = await new_topic(quick_broker.bootstrap, 1)
    async with Producer(quick_broker.bootstrap) as producer:
        for n in range(10):
            await producer.send(topic, b"%d" % n)
    seen: list[bytes | None] = []
    for count in (4, 6):
        async with Consumer(quick_broker.bootstrap, **settings(topic)) as consumer:
            consumer.subscribe([topic])
            with trio.fail_after(PATIENCE_S):
                while count:
                    records = await consumer.poll(max_records=count)
                    seen += [record.value for record in records]
                    count -= len(records)
            await consumer.commit()
    assert seen == [b"%d" % n for n in range(10)]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_a_member_that_does_not_poll_leaves_and_rejoins_at_its_next_poll(
    quick_broker: BrokerProcess, protocol: str
) -> None:
    topic = await new_topic(quick_broker.bootstrap, 2)
    config = settings(topic, group_protocol=protocol, heartbeat_interval_ms=50)
    with trio.fail_after(PATIENCE_S):
        async with (
            Consumer(quick_broker.bootstrap, **config, max_poll_interval_ms=500) as slow,
            Consumer(quick_broker.bootstrap, **config) as busy,
        ):
            slow.subscribe([topic])
            await until_assigned(slow, 2)
            busy.subscribe([topic])
            await until_assigned(busy, 2)
            assert slow.assignment() == []
            while [len(consumer.assignment()) for consumer in (slow, busy)] != [1, 1]:
                await slow.poll(20)
                await busy.poll(20)


async def test_a_changed_subscription_changes_the_assignment(quick_broker: BrokerProcess) -> None:
    one, other = await new_topic(quick_broker.bootstrap, 1), await new_topic(quick_broker.bootstrap, 2)
    with trio.fail_after(PATIENCE_S):
        async with Consumer(quick_broker.bootstrap, **settings(one)) as consumer:
            consumer.subscribe([one])
            await until_assigned(consumer, 1)
            consumer.subscribe([one, other])
            await until_assigned(consumer, 3)
            consumer.subscribe([other])
            await until_assigned(consumer, 2)


async def test_a_member_outlives_its_coordinator(tmp_path: Path) -> None:
    overrides = ("offsets.topic.num.partitions=1", "group.consumer.min.heartbeat.interval.ms=50")
    with running_broker(tmp_path, *overrides, "group.consumer.heartbeat.interval.ms=50") as broker:
        topic = await new_topic(broker.bootstrap, 2)
        config = settings(topic, retry_backoff_ms=10, reconnect_backoff_ms=10)
        async with Producer(broker.bootstrap) as producer, Consumer(broker.bootstrap, **config) as consumer:
            consumer.subscribe([topic])
            with trio.fail_after(PATIENCE_S):
                await until_assigned(consumer, 2)
                await trio.to_thread.run_sync(broker.kill)
                await trio.to_thread.run_sync(broker.start_again)
                await (await producer.send(topic, b"after"))
                assert [record.value for record in await consumer.poll()] == [b"after"]
                await consumer.commit()


async def test_a_restarted_static_member_gets_its_partitions_back(quick_broker: BrokerProcess) -> None:
    topic = await new_topic(quick_broker.bootstrap, 2)
    with trio.fail_after(PATIENCE_S):
        async with Consumer(quick_broker.bootstrap, **settings(topic, group_instance_id="i")) as other:
            other.subscribe([topic])
            await until_assigned(other, 2)
        async with Consumer(quick_broker.bootstrap, **settings(topic, group_instance_id="i")) as back:
            back.subscribe([topic])
            await until_assigned(back, 2)


async def test_an_unknown_remote_assignor_raises_unsupported_assignor(quick_broker: BrokerProcess) -> None:
    topic = await new_topic(quick_broker.bootstrap, 1)
    async with Consumer(quick_broker.bootstrap, **settings(topic, group_remote_assignor="mine")) as consumer:
        consumer.subscribe([topic])
        with trio.fail_after(PATIENCE_S), pytest.raises(BrokerError) as caught:
            await consumer.poll()
        assert caught.value.code is ErrorCode.UNSUPPORTED_ASSIGNOR


def test_an_unknown_group_protocol_is_refused() -> None:
    with pytest.raises(ConfigError, match="classic or consumer"):
        Consumer("localhost:1", group_protocol="modern")


async def test_a_recreated_topic_is_read_from_its_first_record(broker_process: BrokerProcess) -> None:
    """The consumer notices the new topic id, and starts at the new topic's first record."""
    topic = await new_topic(broker_process.bootstrap, 1)
    async with (
        Admin(broker_process.bootstrap) as admin,
        Consumer(broker_process.bootstrap, auto_offset_reset="earliest", retry_backoff_ms=10) as consumer,
    ):
        consumer.assign([(topic, 0)])
        for values in ([b"a", b"b"], [b"c"]):
            async with Producer(broker_process.bootstrap) as producer:
                for value in values:
                    await producer.send(topic, value)
            seen: list[bytes | None] = []
            with trio.fail_after(PATIENCE_S):
                while len(seen) < len(values):
                    seen += [record.value for record in await consumer.poll()]
            assert seen == values
            await admin.delete_topics([topic])
            await admin.create_topics([NewTopic(topic, 1, 1)])
