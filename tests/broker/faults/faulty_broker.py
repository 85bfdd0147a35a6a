"""A broker that injects faults, with raw clients over real sockets and their requests."""

from __future__ import annotations

from functools import partial
from typing import Any

import trio

from gregor.broker.app.broker import Broker
from gregor.broker.metadata.state import ResourceType
from gregor.protocol.apis import AnyApiKey, ApiKey
from gregor.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from gregor.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from gregor.protocol.records.record import Record
from gregor.protocol.records.v2 import build_batch
from tests.wire import Wire

START_MS = 1_700_000_000_000
ONE_RECORD = build_batch([Record(0, START_MS, None, b"x")])


class FaultyBroker:
    """A broker with rules, and its clients, each with one connection."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self._wires: list[Wire] = []

    def rules(self, **texts: str) -> None:
        """Set these rules, with `-` for `_` in their names, and remove all others."""
        configs = {f"gregor.fault.rule.{name.replace('_', '-')}": text for name, text in texts.items()}
        self.broker.services.metadata.set_configs(ResourceType.BROKER, "1", configs)

    @property
    def strikes(self) -> dict[str, int]:
        """How often each rule was applied."""
        assert self.broker.services.faults is not None
        return {name: count for name, count in self.broker.services.faults.strike_counts().items() if count}

    async def connect(self, client_id: str | None = "tester") -> Wire:
        address = ("127.0.0.1", self.broker.services.serving.listening[0].port)
        wire = await trio.to_thread.run_sync(partial(Wire, address, client_id=client_id))
        self._wires.append(wire)
        return wire

    def close(self) -> None:
        for wire in self._wires:
            wire.socket.close()


async def ask(wire: Wire, key: AnyApiKey, version: int, request: Any) -> Any:
    """Return the response to a request. Raises ConnectionError if the broker disconnects."""
    return await trio.to_thread.run_sync(wire.ask, key, version, request, abandon_on_cancel=True)


def produce_request(*places: tuple[str, int], acks: int = 1) -> ProduceRequest:
    """Return one record for each place."""
    return ProduceRequest(
        acks=acks,
        timeout_ms=1000,
        topic_data=[
            TopicProduceData(
                name=topic,
                partition_data=[
                    PartitionProduceData(index=index, records=ONE_RECORD) for t, index in places if t == topic
                ],
            )
            for topic in dict(places)
        ],
    )


async def produce(wire: Wire, *places: tuple[str, int], version: int = 7) -> dict[tuple[str, int], int]:
    """Return the error code of each place that one record was produced to."""
    answer = await ask(wire, ApiKey.PRODUCE, version, produce_request(*places))
    return {(t.name, p.index): p.error_code for t in answer.responses for p in t.partition_responses}


def fetch_request(*places: tuple[str, int], session_id: int = 0, epoch: int = -1, wait_ms: int = 0) -> FetchRequest:
    """Return a Fetch from offset 0 on."""
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=1 << 20,
        session_id=session_id,
        session_epoch=epoch,
        topics=[
            FetchTopic(
                topic=topic,
                partitions=[
                    FetchPartition(partition=index, partition_max_bytes=1 << 20) for t, index in places if t == topic
                ],
            )
            for topic in dict(places)
        ],
    )
