"""Work that grows with partitions, connections, slow consumers and the bytes of a log."""

from __future__ import annotations

import signal
import time
from typing import ClassVar

from bench.broker_pair import BenchBroker
from bench.curves.work import (
    MIB,
    Figures,
    Work,
    WorkOfConnections,
    asker,
    connect,
    cpu_us,
    create_topics,
    produce,
    resident_mib,
    seconds_to_restart,
)
from gregor.protocol.apis import ApiKey
from gregor.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from gregor.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from gregor.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from gregor.protocol.records import v2
from gregor.protocol.records.record import Record


class Topics(Work):
    """Topics of one partition: a record produced, Metadata of all and of one, memory, and a restart."""

    NAME = "partitions"
    SIZES = (1, 100, 1_000, 10_000)

    def grow(self, broker: BenchBroker, size: int) -> None:
        """Create the topics."""
        create_topics(broker, [f"t{number}" for number in range(size)])

    def measure(self, broker: BenchBroker, size: int) -> Figures:
        """Return the CPU cost of requests and a restart after a clean stop."""
        with connect(broker) as wire:
            every = asker(wire, ApiKey.METADATA, 4, MetadataRequest(topics=None), 1)
            one = MetadataRequest(topics=[MetadataRequestTopic(name="t0")])
            figures = {
                "Produce, CPU us": cpu_us(broker, asker(wire, ApiKey.PRODUCE, 7, produce("t0"), 500)),
                "Metadata of one, CPU us": cpu_us(broker, asker(wire, ApiKey.METADATA, 4, one, 500)),
                "Metadata of all, CPU us": cpu_us(broker, every),
                "RSS, MiB": resident_mib(broker),
            }
        figures["restart, s"] = seconds_to_restart(broker, signal.SIGTERM, "t0")
        return figures


class Connections(WorkOfConnections):
    """Open connections: one record produced on one connection after the other."""

    NAME = "connections"
    SIZES = (1, 10, 100, 1_000, 10_000)

    def grow(self, broker: BenchBroker, size: int) -> None:
        """Open connections up to that number."""
        create_topics(broker, ["t0"])
        super().grow(broker, size)

    def measure(self, broker: BenchBroker, size: int) -> Figures:
        """Return the CPU cost of a request while all connections are open, and the memory."""
        frame = self._wires[0].frame(ApiKey.PRODUCE, 7, produce("t0"))

        def ask() -> int:
            for wire in self._wires:
                wire.socket.sendall(frame)
                wire.receive_frame()
            return len(self._wires)

        return {"Produce, CPU us": cpu_us(broker, ask), "RSS, MiB": resident_mib(broker)}


class LogSize(Work):
    """Megabytes of one partition: look-ups of a time, a small fetch from the middle, and a restart."""

    NAME = "megabytes of a log"
    SIZES = (10, 100, 1_000)
    BATCH: ClassVar[bytes] = v2.build_batch([Record(number, 1_000, None, b"x" * 1_000) for number in range(16)])

    def __init__(self) -> None:
        self._written = 0

    def grow(self, broker: BenchBroker, size: int) -> None:
        """Produce batches of 16 kB up to that size."""
        create_topics(broker, ["log"])
        request = produce("log", self.BATCH)
        with connect(broker) as wire:
            append = asker(wire, ApiKey.PRODUCE, 7, request, 1)
            while self._written < size * 1_000_000:
                append()
                self._written += len(self.BATCH)

    def measure(self, broker: BenchBroker, size: int) -> Figures:
        """Return the CPU cost of look-ups, and of a restart after a kill."""
        middle = self._written // len(self.BATCH) // 2 * 16
        part = FetchPartition(partition=0, fetch_offset=middle, partition_max_bytes=1)
        fetching = FetchRequest(
            max_wait_ms=0, min_bytes=0, max_bytes=1, topics=[FetchTopic(topic="log", partitions=[part])]
        )
        looked_up = ListOffsetsPartition(partition_index=0, timestamp=1_000)
        looking = ListOffsetsRequest(topics=[ListOffsetsTopic(name="log", partitions=[looked_up])])
        with connect(broker) as wire:
            figures = {
                "ListOffsets, CPU us": cpu_us(broker, asker(wire, ApiKey.LIST_OFFSETS, 2, looking, 200)),
                "Fetch of a batch, CPU us": cpu_us(broker, asker(wire, ApiKey.FETCH, 11, fetching, 100)),
                "RSS, MiB": resident_mib(broker),
            }
        figures["start after kill -9, s"] = seconds_to_restart(broker, signal.SIGKILL, "log")
        return figures


class SlowConsumers(WorkOfConnections):
    """Old consumers that asked for a megabyte to convert and do not read it: the cost of others' requests."""

    NAME = "slow consumers"
    SIZES = (1, 10, 100, 1_000)

    def grow(self, broker: BenchBroker, size: int) -> None:
        """Produce 2 MB once; let further consumers ask for a megabyte as Fetch v3."""
        if not self._wires:
            create_topics(broker, ["t0", "old"])
            request = produce("old", LogSize.BATCH)
            with connect(broker) as wire:
                asker(wire, ApiKey.PRODUCE, 7, request, 2 * MIB // len(LogSize.BATCH))()
        part = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=MIB)
        topics = [FetchTopic(topic="old", partitions=[part])]
        while len(self._wires) < size:
            wire = connect(broker)
            wire.send(ApiKey.FETCH, 3, FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=MIB, topics=topics))
            self._wires.append(wire)
        time.sleep(1)

    def measure(self, broker: BenchBroker, size: int) -> Figures:
        """Return the CPU cost of another client's request while the consumers wait, and the memory."""
        with connect(broker) as wire:
            cost = cpu_us(broker, asker(wire, ApiKey.PRODUCE, 7, produce("t0"), 500))
        return {"Produce, CPU us": cost, "RSS, MiB": resident_mib(broker)}
