"""The sender with brokers that stop and restart, over substitutes for connections."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from gregor.client import Producer
from gregor.client.errors import ConnectionLostError, DeadlineExceededError


class PretendedBroker:
    """A node 1 that leads partition 1 of topic `t` and cannot be reached unless `is_up`."""

    def __init__(self, producer: Producer, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_up = False
        self.dials = 0
        cluster: Any = producer._cluster
        cluster._brokers = {0: object(), 1: object()}
        monkeypatch.setattr(type(cluster), "brokers", property(lambda cluster: cluster._brokers))
        monkeypatch.setattr(cluster, "established", lambda node: object() if self.is_up or node == 0 else None)
        monkeypatch.setattr(cluster, "connection", self._connection)

    async def _connection(self, node: int) -> object:
        self.dials += 1
        await trio.lowlevel.checkpoint()
        if not self.is_up:
            raise ConnectionLostError(f"node-{node} is down")
        return object()


@pytest.mark.parametrize("how", ["comes back", "leaves the cluster"])
async def test_a_broker_down_for_longer_than_the_delivery_timeout_gets_records_again(
    how: str, monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    """KIP-794: `partitioner.availability.timeout.ms` excludes the broker, and then no record shows that it is back."""
    producer = Producer(
        "127.0.0.1:1",
        partitioner_availability_timeout_ms=100,
        delivery_timeout_ms=2_000,
        request_timeout_ms=1_000,
        acks="1",
    )
    broker = PretendedBroker(producer, monkeypatch)
    producer._is_open = True
    accumulator = producer._accumulator
    queues = accumulator.update_topic("t", [0, 1])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(producer._sender.run)
        lost = await producer.send("t", b"v", partition=1)
        await trio.sleep(10)
        assert isinstance(lost.error, DeadlineExceededError)
        assert accumulator._reachable(queues, [0, 1]) == [0]
        if how == "comes back":
            broker.is_up = True
        else:
            del producer._cluster._brokers[1]
        await trio.sleep(3)
        assert accumulator._reachable(queues, [0, 1]) == [0, 1]
        nursery.cancel_scope.cancel()


async def test_without_the_availability_timeout_an_idle_sender_does_not_reconnect(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    producer = Producer("127.0.0.1:1", delivery_timeout_ms=2_000, request_timeout_ms=1_000, acks="1")
    broker = PretendedBroker(producer, monkeypatch)
    producer._is_open = True
    producer._accumulator.update_topic("t", [0, 1])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(producer._sender.run)
        lost = await producer.send("t", b"v", partition=1)
        await lost.wait_done()
        await trio.sleep(1)
        dials = broker.dials
        await trio.sleep(60)
        assert broker.dials == dials
        nursery.cancel_scope.cancel()
