"""``make bench ARGS=tls``: the cost of TLS, Gregor beside Apache Kafka 3.9.1, for produce, fetch and lazy conversion.

Each broker has a PLAINTEXT and an SSL listener (TLS 1.3, one certificate of `gregor dev-certs`). The rounds of brokers
and protocols are interleaved. One connection produces batches of 16 kB with five requests in flight (Produce v7,
acks=1), reads them back as they are stored (Fetch v11), and in format v1, which the broker converts (Fetch v3). The
table has the medians of MB/s and of the broker's CPU seconds per GB, with the lowest and highest round.
"""

from __future__ import annotations

import argparse
import os
import statistics
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from bench.broker_pair import GREGOR_PORT, KAFKA_PORT, BenchBroker, Gregor, Kafka
from bench.side_by_side import SHARED
from gregor.command_line import main as gregor
from gregor.pipeline.kafka.wire import Wire, WireSettings
from gregor.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from gregor.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from gregor.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from gregor.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from gregor.protocol.records.record import Record
from gregor.protocol.records.v2 import build_batch

TLS_PORT_DISTANCE = 5
RECORD_BYTES = 1000
BATCH_RECORDS = 16
IN_FLIGHT = 5
FETCH_BYTES = 8 << 20
TESTS = {"produce, 16 kB batches": None, "Fetch v11, as stored": 11, "Fetch v3, converted": 3}
"""The tests in their order, each with its version of Fetch."""
_ENTRY = struct.Struct(">qi")
_LAST_OFFSET_DELTA = struct.Struct(">i")


@dataclass
class Figures:
    """The figures of one test, an entry for each round."""

    megabytes_per_s: list[float] = field(default_factory=list)
    cpu_s_per_gb: list[float] = field(default_factory=list)


Place = tuple[str, str, str]
"""A test, a broker and a protocol."""


def listeners(port: int, *others: str) -> str:
    """Return the value of `listeners` for a broker."""
    return ",".join((f"PLAINTEXT://127.0.0.1:{port}", *others, f"TLS://localhost:{port + TLS_PORT_DISTANCE}"))


def settings(port: int, certificates: Path, *others: str) -> tuple[str, ...]:
    """Return the settings of a broker."""
    return (
        f"listeners={listeners(port, *others)}",
        f"advertised.listeners={listeners(port)}",
        "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,TLS:SSL",
        "ssl.keystore.type=PEM",
        f"ssl.keystore.location={certificates}/broker.pem",
    )


def connect(broker: BenchBroker, protocol: str, certificates: Path) -> Wire:
    """Return a connection to a listener of the broker."""
    options = {"kafka.bootstrap.servers": "localhost"}
    port = broker.address[1]
    if protocol == "TLS":
        port += TLS_PORT_DISTANCE
        trusted = {"type": "PEM", "location": f"{certificates}/ca.pem"}
        options |= {"kafka.security.protocol": "SSL", **{f"kafka.ssl.truststore.{k}": v for k, v in trusted.items()}}
    return Wire("localhost" if protocol == "TLS" else "127.0.0.1", port, WireSettings.from_options(options))


def create(wire: Wire, topic: str) -> None:
    """Create a topic of one partition, and wait until its broker serves it. Raises RuntimeError."""
    request = CreateTopicsRequest(topics=[CreatableTopic(name=topic, num_partitions=1, replication_factor=1)])
    answer = wire.request(request, CreateTopicsResponse, version=4)
    if answer.topics[0].error_code:
        raise RuntimeError(f"CreateTopics: {answer.topics[0]}")
    partition = ListOffsetsTopic(name=topic, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])
    while True:
        offsets = wire.request(ListOffsetsRequest(topics=[partition]), ListOffsetsResponse, version=4)
        if not offsets.topics[0].partitions[0].error_code:
            return
        time.sleep(0.01)


def produce(wire: Wire, topic: str, batch: bytes, count: int) -> int:
    """Produce a batch ``count`` times; return the size of all in bytes. Raises RuntimeError."""
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=batch)])
    request = ProduceRequest(acks=1, timeout_ms=30_000, topic_data=[data])
    for number in range(count + IN_FLIGHT):
        if number < count:
            wire.send(request, version=7)
        if number >= IN_FLIGHT:
            answer = wire.receive(ProduceResponse)
            if answer.responses[0].partition_responses[0].error_code:
                raise RuntimeError(f"Produce: {answer.responses[0]}")
    return count * len(batch)


def fetch(wire: Wire, topic: str, version: int, end_offset: int) -> int:
    """Read a topic to its end; return the size of its records as they were sent. Raises RuntimeError."""
    offset = size_bytes = 0
    while offset < end_offset:
        part = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=FETCH_BYTES)
        request = FetchRequest(
            max_wait_ms=500, min_bytes=1, max_bytes=FETCH_BYTES, topics=[FetchTopic(topic=topic, partitions=[part])]
        )
        answer = wire.request(request, FetchResponse, version=version).responses[0].partitions[0]
        if answer.error_code:
            raise RuntimeError(f"Fetch: error {answer.error_code}")
        records = answer.records
        assert isinstance(records, memoryview)
        size_bytes += len(records)
        offset = next_offset(records, offset)
    return size_bytes


def next_offset(records: memoryview, offset: int) -> int:
    """Return the offset behind the last complete batch or message."""
    position = 0
    while position + 27 <= len(records):
        first, size = _ENTRY.unpack_from(records, position)
        if position + _ENTRY.size + size > len(records):
            break
        is_batch = records[position + 16] == 2
        offset = first + 1 + (_LAST_OFFSET_DELTA.unpack_from(records, position + 23)[0] if is_batch else 0)
        position += _ENTRY.size + size
    return offset


def timed(broker: BenchBroker, work: Callable[[], int], figures: Figures) -> None:
    """Run a test and add its figures."""
    cpu_before, began = broker.cpu_seconds(), time.perf_counter()
    size_bytes = work()
    elapsed = time.perf_counter() - began
    figures.megabytes_per_s.append(size_bytes / elapsed / 1e6)
    figures.cpu_s_per_gb.append((broker.cpu_seconds() - cpu_before) / size_bytes * 1e9)


def one_round(broker: BenchBroker, protocol: str, certificates: Path, topic: str, megabytes: int) -> dict[str, Figures]:
    """Run all tests once, over one connection."""
    found = {test: Figures() for test in TESTS}
    now = int(time.time() * 1000)
    text = os.urandom(RECORD_BYTES)
    batch = build_batch([Record(offset, now, None, text) for offset in range(BATCH_RECORDS)])
    count = megabytes * 1_000_000 // len(batch)
    wire = connect(broker, protocol, certificates)
    create(wire, topic)
    for test, version in TESTS.items():
        if version is None:
            timed(broker, partial(produce, wire, topic, batch, count), found[test])
        else:
            timed(broker, partial(fetch, wire, topic, version, count * BATCH_RECORDS), found[test])
    wire.close()
    return found


def run(brokers: list[BenchBroker], certificates: Path, rounds: int, megabytes: int) -> dict[Place, Figures]:
    """Run all rounds; the first one warms the brokers and does not count."""
    found: dict[Place, Figures] = {}
    for number in range(rounds + 1):
        print(f"round {number} of {rounds}" if number else "warming", file=sys.stderr)
        for broker in brokers:
            for protocol in ("PLAINTEXT", "TLS"):
                topic = f"tls-{protocol}-{number}"
                for test, figures in one_round(broker, protocol, certificates, topic, megabytes).items():
                    if number:
                        total = found.setdefault((test, broker.name, protocol), Figures())
                        total.megabytes_per_s += figures.megabytes_per_s
                        total.cpu_s_per_gb += figures.cpu_s_per_gb
    return found


def lines(found: dict[Place, Figures]) -> Iterator[str]:
    """Yield the lines of the table."""
    yield "| test | broker | protocol | MB/s | broker CPU s/GB |"
    yield "| --- | --- | --- | --- | --- |"
    for (test, broker, protocol), figures in sorted(found.items(), key=lambda item: list(TESTS).index(item[0][0])):
        speed, cost = spread(figures.megabytes_per_s, ",.0f"), spread(figures.cpu_s_per_gb, ".2f")
        yield f"| {test} | {broker} | {protocol} | {speed} | {cost} |"


def spread(values: list[float], form: str) -> str:
    """Format the median, with the range in brackets."""
    return f"{statistics.median(values):{form}} ({min(values):{form}}-{max(values):{form}})"


def main(arguments: list[str]) -> int:
    """Measure and print the table; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench tls", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--megabytes", type=int, default=200, help="records of each round")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="gregor-bench-") as scratch:
        certificates = Path(scratch) / "certificates"
        gregor(["dev-certs", "--dir", str(certificates)])
        brokers: list[BenchBroker] = [Gregor(Path(scratch) / "gregor", settings(GREGOR_PORT, certificates))]
        if (SHARED / "peer").is_dir():
            controller = f"CONTROLLER://127.0.0.1:{KAFKA_PORT + 1}"
            brokers.append(Kafka(settings(KAFKA_PORT, certificates, controller)))
        try:
            for broker in brokers:
                broker.start()
            print(*lines(run(brokers, certificates, options.rounds, options.megabytes)), sep="\n")
        finally:
            for broker in brokers:
                broker.remove()
    return 0
