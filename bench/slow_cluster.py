"""Three Gregor brokers as one cluster, one of them slow: the setup of KIP-794's tests.

Each broker is a process of its own with the whole topic; a proxy before each answers Metadata as if partition n
lived on broker n alone, and holds every Produce answer of broker 0 for 20 ms, one after the other, as a broker that
sleeps in its produce response does. Any client can be pointed at it.
"""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from uuid import UUID

import trio

from gregor.client.admin import Admin, NewTopic
from gregor.client.offset_lookup import LATEST
from gregor.protocol.apis import ApiKey, response_header_version
from gregor.protocol.codec import decode, encode
from gregor.protocol.framing import FrameReader
from gregor.protocol.messages.metadata import MetadataResponse, MetadataResponseBroker

BROKER_COUNT = 3
SLOW_BROKER = 0
TOPIC_IDS = UUID("794794ab-7947-4947-9479-479479479479")
FRAME_LIMIT_BYTES = 1 << 28


async def frames(stream: trio.SocketStream) -> AsyncIterator[memoryview]:
    """The length-prefixed frames that come from a stream until it ends."""
    reader = FrameReader(FRAME_LIMIT_BYTES)
    async for data in stream:
        reader.feed(data)
        while (frame := reader.next_frame()) is not None:
            yield frame


def with_length(frame: bytes | memoryview) -> bytes:
    """A frame as it goes on the wire."""
    return len(frame).to_bytes(4, "big") + bytes(frame)


@dataclass(frozen=True)
class Ports:
    """Where the brokers really listen, and where the proxies before them do."""

    brokers: tuple[int, ...]
    proxies: tuple[int, ...]

    @property
    def bootstrap(self) -> str:
        """What a client is pointed at."""
        return f"127.0.0.1:{self.proxies[0]}"

    @classmethod
    def free(cls) -> Ports:
        """Ports that nobody uses now."""
        with ExitStack() as stack:
            probes = [stack.enter_context(socket.socket()) for _ in range(2 * BROKER_COUNT)]
            for probe in probes:
                probe.bind(("127.0.0.1", 0))
            numbers = [probe.getsockname()[1] for probe in probes]
        return cls(tuple(numbers[:BROKER_COUNT]), tuple(numbers[BROKER_COUNT:]))


def pretend_cluster(answer: memoryview, version: int, ports: Ports) -> bytes:
    """A Metadata answer in which three brokers have a partition each."""
    header_size = 4 + response_header_version(ApiKey.METADATA, version)
    metadata = decode(MetadataResponse, answer[header_size:], version)
    metadata.brokers = [
        MetadataResponseBroker(node_id=node, host="127.0.0.1", port=port) for node, port in enumerate(ports.proxies)
    ]
    metadata.controller_id = 0
    for topic in metadata.topics:
        topic.topic_id = TOPIC_IDS
        for partition in topic.partitions:
            partition.leader_id = partition.partition_index % BROKER_COUNT
            partition.replica_nodes = partition.isr_nodes = [partition.leader_id]
    return bytes(answer[:header_size]) + encode(metadata, version)


async def serve_client(node: int, delay_s: float, ports: Ports, client: trio.SocketStream) -> None:
    """Pass one connection's requests to the broker and its answers back."""
    asked: deque[tuple[int, int]] = deque()
    async with await trio.open_tcp_stream("127.0.0.1", ports.brokers[node]) as broker:

        async def pass_requests() -> None:
            async for frame in frames(client):
                asked.append((int.from_bytes(frame[:2], "big"), int.from_bytes(frame[2:4], "big")))
                await broker.send_all(with_length(frame))
            nursery.cancel_scope.cancel()

        async def pass_answers() -> None:
            async for frame in frames(broker):
                key, version = asked.popleft()
                answer: bytes | memoryview = frame
                if key == ApiKey.METADATA:
                    answer = pretend_cluster(frame, version, ports)
                elif key == ApiKey.PRODUCE and node == SLOW_BROKER:
                    await trio.sleep(delay_s)
                await client.send_all(with_length(answer))
            nursery.cancel_scope.cancel()

        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(pass_requests)
                nursery.start_soon(pass_answers)
        except* (trio.BrokenResourceError, trio.ClosedResourceError):
            pass


async def serve_proxies(delay_s: float, ports: Ports) -> None:
    """Run the three proxies until SIGTERM."""
    with trio.open_signal_receiver(signal.SIGTERM) as signals:
        async with trio.open_nursery() as nursery:
            for node, port in enumerate(ports.proxies):
                handler = partial(serve_client, node, delay_s, ports)
                await nursery.start(partial(trio.serve_tcp, handler, port, host="127.0.0.1"))
            print("ready", flush=True)
            async for _ in signals:
                nursery.cancel_scope.cancel()


@contextmanager
def slow_cluster(delay_ms: float = 20.0) -> Iterator[Ports]:
    """Three brokers and their proxies for the length of a block."""
    ports = Ports.free()
    processes: list[subprocess.Popen[str]] = []
    with tempfile.TemporaryDirectory(prefix="gregor-kip794-") as directory:
        try:
            processes += [_start_broker(port, Path(directory) / str(port)) for port in ports.brokers]
            numbers = [str(port) for port in ports.brokers + ports.proxies]
            command = [sys.executable, "-m", "bench.slow_cluster", str(delay_ms), *numbers]
            proxy = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            processes.append(proxy)
            assert proxy.stdout is not None
            proxy.stdout.readline()
            yield ports
        finally:
            for process in reversed(processes):
                process.send_signal(signal.SIGTERM)
                process.wait()


def _start_broker(port: int, directory: Path) -> subprocess.Popen[str]:
    directory.mkdir()
    settings = [f"listeners=PLAINTEXT://127.0.0.1:{port}", f"log.dirs={directory}/logs"]
    command = [sys.executable, "-m", "gregor.broker.command_line", "serve"]
    for setting in settings:
        command += ["--override", setting]
    with (directory / "server.log").open("w") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, text=True)


async def create_topic(name: str, ports: Ports) -> None:
    """Create a topic with a partition for each broker, on each of them."""
    for port in ports.brokers:
        async with Admin(f"127.0.0.1:{port}") as admin:
            await admin.create_topics([NewTopic(name, BROKER_COUNT, 1)])


async def records_by_node(topic: str, ports: Ports) -> list[int]:
    """How many records each broker has got."""
    counts = []
    for node, port in enumerate(ports.brokers):
        async with Admin(f"127.0.0.1:{port}") as admin:
            found = (await admin.list_offsets({(topic, node): LATEST}))[topic, node]
            counts.append(found.offset if found is not None else 0)
    return counts


if __name__ == "__main__":
    delay, *port_numbers = sys.argv[1:]
    numbers = tuple(map(int, port_numbers))
    trio.run(serve_proxies, float(delay) / 1000, Ports(numbers[:BROKER_COUNT], numbers[BROKER_COUNT:]))
