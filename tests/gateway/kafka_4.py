"""A broker that refuses what Kafka 4 refuses, with a gateway in front of it, in a thread of their own."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

import trio

from gregor.broker.api.table import APIS
from gregor.broker.app.broker import Broker
from gregor.broker.config import BrokerConfig
from gregor.gateway.gateway import Gateway
from gregor.protocol.kafka_4_floor import KAFKA_4_0_0_FLOORS, KAFKA_4_FLOORS

FLOORS = {**KAFKA_4_FLOORS, **KAFKA_4_0_0_FLOORS}
BROKER = {
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "num.partitions": "3",
}


class GatewayAndBroker:
    """A gateway and the broker behind it."""

    def __init__(self, broker: Broker, gateway: Gateway, host: str) -> None:
        self.broker = broker
        self.gateway = gateway
        self.upstream_address = (host.strip("[]"), broker.services.serving.listening[0].port)
        self.address = ("127.0.0.1", gateway.listening[0].port)


Start = Callable[[trio.Nursery], Awaitable[Callable[[], None]]]
"""Starts services in a nursery and returns the function that stops them."""


@contextmanager
def in_thread(start: Start) -> Iterator[None]:
    """Provide services that run in an event loop of their own thread for the length of a block."""
    started = threading.Event()
    tokens: list[trio.lowlevel.TrioToken] = []
    ended = trio.Event()

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            stop = await start(nursery)
            tokens.append(trio.lowlevel.current_trio_token())
            started.set()
            await ended.wait()
            stop()

    def run() -> None:
        try:
            trio.run(main)
        finally:
            started.set()

    thread = threading.Thread(target=run)
    thread.start()
    started.wait()
    try:
        assert tokens, "the services did not start"
        yield
    finally:
        if tokens:
            tokens[0].run_sync_soon(ended.set)
        thread.join()


@contextmanager
def gateway_before_kafka_4(
    directory: Path,
    gateway_properties: Mapping[str, str] = MappingProxyType({}),
    broker_properties: Mapping[str, str] = MappingProxyType({}),
    *,
    is_kafka_4: bool = True,
    host: str = "127.0.0.1",
) -> Iterator[GatewayAndBroker]:
    """Provide a running pair, the broker at ``host``; ``is_kafka_4`` is false for a broker that serves all versions."""
    running: list[GatewayAndBroker] = []

    async def start(nursery: trio.Nursery) -> Callable[[], None]:
        listeners = {"listeners": f"PLAINTEXT://{host}:0"}
        broker = Broker(BrokerConfig({**BROKER, **listeners, "log.dirs": str(directory), **broker_properties}))
        await nursery.start(broker.run)
        if is_kafka_4:
            refuse_what_kafka_4_refuses(broker)
        upstream = f"{host}:{broker.services.serving.listening[0].port}"
        gateway = await started_gateway(upstream, gateway_properties, nursery)
        running.append(GatewayAndBroker(broker, gateway, host))

        def stop() -> None:
            gateway.stop()
            broker.stop()

        return stop

    with in_thread(start):
        yield running[0]


@contextmanager
def gateway_before(upstream: str, properties: Mapping[str, str] = MappingProxyType({})) -> Iterator[Gateway]:
    """Provide a running gateway in front of brokers that run already."""
    running: list[Gateway] = []

    async def start(nursery: trio.Nursery) -> Callable[[], None]:
        running.append(await started_gateway(upstream, properties, nursery))
        return running[0].stop

    with in_thread(start):
        yield running[0]


async def started_gateway(upstream: str, properties: Mapping[str, str], nursery: trio.Nursery) -> Gateway:
    """Start a gateway in front of brokers, with free ports and one address unless ``properties`` say otherwise."""
    gateway = Gateway(BrokerConfig(_properties(upstream, properties)))
    listening = trio.Event()
    nursery.start_soon(gateway.run, listening.set)
    await listening.wait()
    return gateway


def refuse_what_kafka_4_refuses(broker: Broker) -> None:
    """Serve no version that Kafka 4 removed."""
    broker.dispatcher.serve(
        {
            key: api._replace(min_version=FLOORS[api.key].version) if api.key in FLOORS else api
            for key, api in APIS.items()
        }
    )


def _properties(upstream: str, others: Mapping[str, str]) -> dict[str, str]:
    return {"listeners": "PLAINTEXT://127.0.0.1:0", "gregor.gateway.upstream": upstream, "node.id": "0", **others}
