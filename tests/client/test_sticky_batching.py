"""The batches of the sticky partitioner without lingering: they grow as soon as requests are outstanding (KIP-794)."""

from __future__ import annotations

import pytest
import trio.testing

from gregor.client import Producer
from gregor.testing import Broker

RECORD_COUNT = 40


@pytest.mark.parametrize("in_flight", [2, 5])
async def test_records_share_a_batch_once_all_requests_are_in_flight(in_flight: int) -> None:
    """The partitioner before KIP-794 changed the partition with each batch, so 30 partitions had 30 small batches."""
    with Broker(topics=["t:30"], runs_in="thread") as broker:
        async with Producer(
            broker.bootstrap_servers, linger_ms=0, acks="1", max_in_flight_requests_per_connection=in_flight
        ) as producer:
            await (await producer.send("t", b"first", partition=0))
            before = producer.metrics().value("gregor.batch-send-total")
            with broker.fault(api="Produce", delay="500ms"):
                deliveries = []
                for number in range(RECORD_COUNT):
                    deliveries.append(await producer.send("t", b"%d" % number))
                    await trio.testing.wait_all_tasks_blocked()
                await producer.flush()
            assert producer.metrics().value("gregor.batch-send-total") - before == in_flight + 1
    assert len({delivery.partition for delivery in deliveries}) == 1
