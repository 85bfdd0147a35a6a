"""Tests with a real broker: `gregor-broker` has the fixtures, nothing is imported and nothing must be running."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from confluent_kafka import Consumer, TopicPartition
from orders import OrderLog, read_all


def records_of(broker, topic):
    """Return the records of partition 0 with a client of the test's own."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "test"})
    _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)
    consumer.assign([TopicPartition(topic, 0, 0)])
    records = consumer.consume(end, timeout=30)
    consumer.close()
    return records


def test_an_order_is_stored_under_its_id(gregor_broker, gregor_topics):
    topic = gregor_topics(prefix="orders")
    OrderLog(gregor_broker.bootstrap_servers, topic).place("o-1", "c-1", 9.5)
    (record,) = records_of(gregor_broker, topic)
    assert record.key() == b"o-1"


async def test_orders_of_all_partitions_are_read(gregor_broker, gregor_topics):
    topic = gregor_topics(partitions=3, prefix="orders")
    log = OrderLog(gregor_broker.bootstrap_servers, topic)
    for number in range(10):
        log.place(f"o-{number}", "c-1", number)
    assert len(await read_all(gregor_broker.bootstrap_servers, topic)) == 10


async def test_customers_are_there_from_the_start(gregor_broker):
    customers = await read_all(gregor_broker.bootstrap_servers, "customers")
    assert customers["c-1"] == {"name": "Ada", "discount": 10}


def test_an_order_is_stored_once_if_its_acknowledgement_is_lost(gregor_broker, gregor_topics, gregor_faults):
    topic = gregor_topics(prefix="orders")
    gregor_faults(api="Produce", topic=topic, at="answer", disconnect=True, first=1)
    OrderLog(gregor_broker.bootstrap_servers, topic).place("o-1", "c-1", 9.5)
    assert len(records_of(gregor_broker, topic)) == 1


def test_an_order_is_stored_though_the_leader_moves(gregor_broker, gregor_topics):
    topic = gregor_topics(prefix="orders")
    log = OrderLog(gregor_broker.bootstrap_servers, topic)
    with gregor_broker.fault(f"api=Produce topic={topic} error=NOT_LEADER_OR_FOLLOWER first=2"):
        log.place("o-1", "c-1", 9.5)
    assert len(records_of(gregor_broker, topic)) == 1


def test_orders_of_yesterday(gregor_broker, gregor_topics, gregor_clock):
    topic = gregor_topics(prefix="orders", **{"message.timestamp.type": "LogAppendTime"})
    gregor_clock(timedelta(days=-1))
    OrderLog(gregor_broker.bootstrap_servers, topic).place("o-1", "c-1", 9.5)
    (record,) = records_of(gregor_broker, topic)
    _, milliseconds = record.timestamp()
    age = datetime.now(UTC) - datetime.fromtimestamp(milliseconds / 1000, UTC)
    assert timedelta(hours=23) < age < timedelta(hours=25)
