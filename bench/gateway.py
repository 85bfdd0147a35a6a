"""``python -m bench.gateway``: a gateway in front of Kafka 4, beside Kafka 3.9.1's own down-conversion.

Each figure is the median of interleaved rounds, with the lowest and highest round. CPU seconds are those of the process
that serves the client: the gateway, or Kafka 3.9.1. Give the addresses of running brokers, both on this machine:
``--kafka39 127.0.0.1:19092:PID --kafka4 127.0.0.1:29092:PID``.
"""

from __future__ import annotations

import argparse
import os
import socket
import statistics
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from gregor.protocol.apis import AnyApiKey, ApiKey, request_header_version, response_class, response_header_version
from gregor.protocol.codec import decode, encode
from gregor.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from gregor.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from gregor.protocol.messages.header import RequestHeader
from gregor.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from gregor.protocol.records import v2
from gregor.protocol.records.compression import Codec
from gregor.protocol.records.record import Record

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
GATEWAY_PORT = 19690
VALUE_BYTES = 1000
RECORDS_IN_A_BATCH = 16
FETCH_BYTES = 1 << 20
CREATION_LIMIT_S = 30
SLOW_CLIENTS = SLOW_PARTITIONS = 250


class Place(NamedTuple):
    """A server to measure."""

    name: str
    port: int
    pid: int

    def cpu_seconds(self) -> float:
        """Return the user and system time of the process so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND

    def resident_mb(self, field: str = "VmRSS") -> float:
        """Return a memory figure of the kernel for the process."""
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(field + ":"))


class Wire:
    """A blocking connection."""

    def __init__(self, place: Place) -> None:
        self.socket = socket.create_connection(("127.0.0.1", place.port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, key: AnyApiKey, version: int, request: Any) -> None:
        """Send a request."""
        header = RequestHeader(request_api_key=key, request_api_version=version, correlation_id=1, client_id="bench")
        frame = encode(header, request_header_version(key, version)) + encode(request, version)
        self.socket.sendall(struct.pack(">i", len(frame)) + frame)

    def receive(self) -> memoryview:
        """Return the next frame."""
        (size,) = struct.unpack(">i", self._read(4))
        return self._read(size)

    def _read(self, size: int) -> memoryview:
        data = memoryview(bytearray(size))
        position = 0
        while position < size:
            count = self.socket.recv_into(data[position:])
            if not count:
                raise ConnectionError("the server closed the connection")
            position += count
        return data

    def ask(self, key: AnyApiKey, version: int, request: Any) -> Any:
        """Send a request and return the decoded answer."""
        self.send(key, version, request)
        head = 4 + response_header_version(key, version)
        return decode(response_class(key), self.receive()[head:], version)


def fetch_request(topic: str, offsets: dict[int, int], version: int, max_bytes: int = FETCH_BYTES) -> FetchRequest:
    """Return a request for partitions of a topic."""
    parts = [
        FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=max_bytes)
        for index, offset in offsets.items()
    ]
    request = FetchRequest(max_wait_ms=500, min_bytes=1, topics=[FetchTopic(topic=topic, partitions=parts)])
    if version >= 3:
        request.max_bytes = 50 << 20
    return request


def fill(place: Place, topic: str, total_bytes: int, codec: Codec, partitions: int = 1) -> int:
    """Create a topic and fill its partitions in turn; return the number of records."""
    wire = Wire(place)
    topics = [CreatableTopic(name=topic, num_partitions=partitions, replication_factor=1)]
    wire.ask(ApiKey.CREATE_TOPICS, 4, CreateTopicsRequest(topics=topics, timeout_ms=30000))
    words = (b"order region status deleted created warehouse user click basket total " * 20)[:VALUE_BYTES]
    now_ms = int(time.time() * 1000)
    records = [Record(n, now_ms, None, words) for n in range(RECORDS_IN_A_BATCH)]
    batch = memoryview(v2.build_batch(records, codec=codec))
    count = total_bytes // (VALUE_BYTES * RECORDS_IN_A_BATCH)
    for number in range(count):
        data = PartitionProduceData(index=number % partitions, records=batch)
        request = ProduceRequest(
            acks=1, timeout_ms=30000, topic_data=[TopicProduceData(name=topic, partition_data=[data])]
        )
        _produce(wire, request)
    return count * RECORDS_IN_A_BATCH


def _produce(wire: Wire, request: ProduceRequest) -> None:
    """Send a request again until new partitions have their leaders."""
    deadline = time.monotonic() + CREATION_LIMIT_S
    while code := wire.ask(ApiKey.PRODUCE, 7, request).responses[0].partition_responses[0].error_code:
        if time.monotonic() > deadline:
            raise RuntimeError(f"Produce: error {code}")
        time.sleep(0.1)


def read_all(place: Place, topic: str, version: int, record_count: int) -> tuple[float, float]:
    """Read a topic to its end; return MB of values per second, and CPU seconds of the server."""
    wire = Wire(place)
    cpu, began = place.cpu_seconds(), time.perf_counter()
    offset = 0
    while offset < record_count:
        records = wire.ask(ApiKey.FETCH, version, fetch_request(topic, {0: offset}, version))
        found = bytes(records.responses[0].partitions[0].records)
        offset = next_offset(found, offset)
    seconds = time.perf_counter() - began
    return record_count * VALUE_BYTES / seconds / 1e6, place.cpu_seconds() - cpu


def next_offset(records: bytes, offset: int) -> int:
    """Return the offset after the last complete batch, from the batch headers."""
    position, end = 0, len(records)
    while position + 12 <= end:
        base, size = struct.unpack_from(">qi", records, position)
        if position + 12 + size > end:
            break
        last = base
        if records[position + 16] == v2.MAGIC:
            last += struct.unpack_from(">i", records, position + 23)[0]
        offset = last + 1
        position += 12 + size
    return offset


def latencies_ms(place: Place, topic: str, count: int) -> list[float]:
    """Return the latency of one-record produce requests."""
    wire = Wire(place)
    batch = memoryview(v2.build_batch([Record(0, int(time.time() * 1000), None, b"v" * 100)]))
    request = ProduceRequest(
        acks=1,
        timeout_ms=30000,
        topic_data=[TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=batch)])],
    )
    found = []
    for _ in range(count):
        began = time.perf_counter()
        wire.ask(ApiKey.PRODUCE, 7, request)
        found.append((time.perf_counter() - began) * 1000)
    return found


def slow_clients_mb(gateway: Place, topic: str) -> float:
    """Return the peak memory of the gateway with many clients that request all partitions and read nothing."""
    Path(f"/proc/{gateway.pid}/clear_refs").write_text("5")
    clients = [Wire(gateway) for _ in range(SLOW_CLIENTS)]
    request = fetch_request(topic, dict.fromkeys(range(SLOW_PARTITIONS), 0), 1)
    for client in clients:
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.send(ApiKey.FETCH, 1, request)
    peak = 0.0
    for _ in range(40):
        time.sleep(0.5)
        peak = gateway.resident_mb("VmHWM")
    for client in clients:
        client.socket.close()
    return peak


@contextmanager
def running_gateway(kafka4: Place) -> Iterator[Place]:
    """Run a gateway during the context."""
    command = [sys.executable, "-m", "gregor.command_line", "gateway", "--upstream", f"127.0.0.1:{kafka4.port}"]
    command += ["--override", f"listeners=PLAINTEXT://127.0.0.1:{GATEWAY_PORT}"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    print(process.stdout.readline().strip(), file=sys.stderr)
    try:
        yield Place("gateway", GATEWAY_PORT, process.pid)
    finally:
        process.terminate()
        process.wait()


def interleaved(
    places: list[Place], rounds: int, measure: Callable[[Place], tuple[float, float]]
) -> dict[str, list[tuple[float, float]]]:
    """Measure each place in turn, once more than counted to warm it."""
    found: dict[str, list[tuple[float, float]]] = {place.name: [] for place in places}
    for number in range(rounds + 1):
        for place in places:
            result = measure(place)
            if number:
                found[place.name].append(result)
    return found


def show(title: str, found: dict[str, list[tuple[float, float]]]) -> None:
    """Print rates and CPU seconds."""
    print(title)
    for name, results in found.items():
        rates, cpu = [rate for rate, _ in results], [seconds for _, seconds in results]
        print(
            f"  {name:12} {statistics.median(rates):7.0f} MB/s ({min(rates):.0f} to {max(rates):.0f}), "
            f"{statistics.median(cpu):5.2f} CPU s ({min(cpu):.2f} to {max(cpu):.2f})"
        )


def place_of(name: str, text: str) -> Place:
    """Return the place of an option ``HOST:PORT:PID``."""
    _, port, pid = text.split(":")
    return Place(name, int(port), int(pid))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.gateway", description=__doc__)
    parser.add_argument("--kafka39", required=True, metavar="HOST:PORT:PID")
    parser.add_argument("--kafka4", required=True, metavar="HOST:PORT:PID")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--megabytes", type=int, default=100)
    options = parser.parse_args()
    kafka39, kafka4 = place_of("Kafka 3.9.1", options.kafka39), place_of("Kafka 4", options.kafka4)
    run = f"{int(time.time()):x}"
    with running_gateway(kafka4) as gateway:
        for codec in (Codec.NONE, Codec.GZIP, Codec.LZ4):
            topic = f"bench-{codec.name.lower()}-{run}"
            counts = {place.name: fill(place, topic, options.megabytes << 20, codec) for place in (kafka39, kafka4)}
            count = min(counts.values())
            for version in (1, 3):
                found = interleaved(
                    [kafka39, gateway],
                    options.rounds,
                    lambda place, topic=topic, version=version, count=count: read_all(place, topic, version, count),  # type: ignore[misc]
                )
                show(f"old consumer, Fetch v{version}, {codec.name.lower()}", found)
        topic = f"bench-none-{run}"
        found = interleaved([kafka4, gateway], options.rounds, lambda place: read_all(place, topic, 11, count))
        show("new consumer, Fetch v11, passed through (CPU: Kafka 4 alone, the gateway alone)", found)
        samples: dict[str, list[float]] = {kafka4.name: [], gateway.name: []}
        for _ in range(options.rounds):
            for place in (kafka4, gateway):
                samples[place.name] += latencies_ms(place, topic, 1000)
        medians = {name: statistics.median(values) for name, values in samples.items()}
        added = medians[gateway.name] - medians[kafka4.name]
        print(f"one-record Produce v7, acks=1: p50 {medians}, added {added:.3f} ms")
        wide = f"bench-wide-{run}"
        fill(kafka4, wide, 30 << 20, Codec.NONE, SLOW_PARTITIONS)
        peak = slow_clients_mb(gateway, wide)
        print(f"{SLOW_CLIENTS} slow clients of {SLOW_PARTITIONS} partitions: {peak:.0f} MB at most")


if __name__ == "__main__":
    main()
