"""The work whose cost is drawn, and the requests that measure it.

Each kind of work is a class: `grow(broker, size)` brings a broker to a size (sizes only increase), and `measure`
returns the figures there. The requests are encoded once, so that the client costs little.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

from bench.broker_pair import BenchBroker
from gregor.protocol.apis import ApiKey
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from gregor.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from gregor.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from gregor.protocol.records import v2
from gregor.protocol.records.record import Record
from tests.wire import Wire, resident_bytes

Figures = Mapping[str, float]
MIB = 1 << 20
TIMEOUT_S = 600.0
WARM_UP_S = 3.0
"""The time for which requests are sent before they are measured: the JVM compiles what it runs often."""
WORTHWHILE_S = 1.0
"""Requests are repeated until the broker has used this much CPU: its clock has ticks of 10 ms."""
MOST_REPEATS = 20_000
TOPICS_A_REQUEST = 250
RECORD = v2.build_batch([Record(0, -1, None, b"x" * 100)])


def connect(broker: BenchBroker) -> Wire:
    """Return a connection, as soon as the broker accepts one."""
    return Wire(broker.address, timeout=TIMEOUT_S, client_id="curves")


def cpu_us(broker: BenchBroker, repeat: Callable[[], int]) -> float:
    """Return the broker's CPU time in microseconds for one request; `repeat` sends some and returns how many."""
    warm_at = time.monotonic() + WARM_UP_S
    while time.monotonic() < warm_at:
        repeat()
    count, before = 0, broker.cpu_seconds()
    while broker.cpu_seconds() - before < WORTHWHILE_S and count < MOST_REPEATS:
        count += repeat()
    return (broker.cpu_seconds() - before) / count * 1e6


def asker(wire: Wire, key: ApiKey, version: int, request: object, repeats: int) -> Callable[[], int]:
    """Return a function that sends a request that often, one after the other, and returns the number."""
    frame = wire.frame(key, version, request)

    def ask() -> int:
        for _ in range(repeats):
            wire.socket.sendall(frame)
            wire.receive_frame()
        return repeats

    return ask


def produce(topic: str, records: bytes = RECORD) -> ProduceRequest:
    """Return a request with these records for partition 0, one of 100 bytes unless told, acks=1."""
    data = PartitionProduceData(index=0, records=records)
    return ProduceRequest(acks=1, timeout_ms=30_000, topic_data=[TopicProduceData(name=topic, partition_data=[data])])


def resident_mib(broker: BenchBroker) -> float:
    """Return the resident memory of the broker's process."""
    return resident_bytes(broker.pid) / MIB


def seconds_to_restart(broker: BenchBroker, how: signal.Signals, topic: str) -> float:
    """Stop and start the broker; return the seconds from the start to the first acknowledged record of a topic."""
    broker.stop(how)
    begun = time.monotonic()
    broker.start()
    with connect(broker) as wire:
        asker(wire, ApiKey.PRODUCE, 7, produce(topic), 1)()
    return time.monotonic() - begun


def create_topics(broker: BenchBroker, names: Sequence[str]) -> None:
    """Create topics of one partition, `TOPICS_A_REQUEST` a request; topics that exist stay.

    Raises RuntimeError for refusals.
    """
    with connect(broker) as wire:
        for begin in range(0, len(names), TOPICS_A_REQUEST):
            topics = [
                CreatableTopic(name=name, num_partitions=1, replication_factor=1)
                for name in names[begin : begin + TOPICS_A_REQUEST]
            ]
            answer = wire.ask(ApiKey.CREATE_TOPICS, 4, CreateTopicsRequest(topics=topics, timeout_ms=300_000))
            refused = {
                ErrorCode(topic.error_code).name
                for topic in answer.topics
                if topic.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
            }
            if refused:
                raise RuntimeError(f"{broker.name} refuses topics: {', '.join(sorted(refused))}")
        request = MetadataRequest(topics=[MetadataRequestTopic(name=names[-1])])
        while wire.ask(ApiKey.METADATA, 4, request).topics[0].error_code:
            time.sleep(0.05)


class Work:
    """A kind of work; the first attribute names what grows, in the table and below the plot."""

    NAME: ClassVar[str]
    SIZES: ClassVar[Sequence[int]]
    SETTINGS: ClassVar[Sequence[str]] = ()
    """Settings of both brokers, as lines of server.properties."""

    def grow(self, broker: BenchBroker, size: int) -> None:
        """Bring the broker to a size."""
        raise NotImplementedError

    def measure(self, broker: BenchBroker, size: int) -> Figures:
        """Return the figures at the size to which the broker was grown, by name and unit."""
        raise NotImplementedError

    def end(self) -> None:
        """Close what `grow` has left open."""


class WorkOfConnections(Work):
    """Work whose size is a number of open connections."""

    def __init__(self) -> None:
        self._wires: list[Wire] = []

    def grow(self, broker: BenchBroker, size: int) -> None:
        """Open connections up to that number."""
        while len(self._wires) < size:
            self._wires.append(connect(broker))

    def end(self) -> None:
        """Close all connections."""
        while self._wires:
            self._wires.pop().socket.close()
