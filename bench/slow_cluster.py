"""Three Gregor brokers as one cluster, one of them slow: the setup of KIP-794's tests.

Each broker is a process of its own with the whole topic; a proxy before each answers Metadata as if partition n
lived on broker n alone, and holds every Produce answer of broker 0 for 20 ms, one after the other, as a broker that
sleeps in its produce response does. Any client can be pointed at it.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
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
FIRST_PROXY_PORT = 19700
FIRST_BROKER_PORT = 19710
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


def pretend_cluster(answer: memoryview, version: int) -> bytes:
    """A Metadata answer in which three brokers have a partition each."""
    header_size = 4 + response_header_version(ApiKey.METADATA, version)
    metadata = decode(MetadataResponse, answer[header_size:], version)
    metadata.brokers = [
        MetadataResponseBroker(node_id=node, host="127.0.0.1", port=FIRST_PROXY_PORT + node)
        for node in range(BROKER_COUNT)
    ]
    metadata.controller_id = 0
    for topic in metadata.topics:
        topic.topic_id = TOPIC_IDS
        for partition in topic.partitions:
            partition.leader_id = partition.partition_index % BROKER_COUNT
            partition.replica_nodes = partition.isr_nodes = [partition.leader_id]
    return bytes(answer[:header_size]) + encode(metadata, version)


async def serve_client(node: int, delay_s: float, client: trio.SocketStream) -> None:
    """Pass one connection's requests to the broker and its answers back."""
    asked: deque[tuple[int, int]] = deque()
    async with await trio.open_tcp_stream("127.0.0.1", FIRST_BROKER_PORT + node) as broker:

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
                    answer = pretend_cluster(frame, version)
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


async def serve_proxies(delay_s: float) -> None:
    """Run the three proxies until SIGTERM."""
    with trio.open_signal_receiver(signal.SIGTERM) as signals:
        async with trio.open_nursery() as nursery:
            for node in range(BROKER_COUNT):
                handler = partial(serve_client, node, delay_s)
                await nursery.start(partial(trio.serve_tcp, handler, FIRST_PROXY_PORT + node, host="127.0.0.1"))
            print("ready", flush=True)
            async for _ in signals:
                nursery.cancel_scope.cancel()


@contextmanager
def slow_cluster(delay_ms: float = 20.0) -> Iterator[str]:
    """Three brokers and their proxies for the length of a block; yields the bootstrap server."""
    processes: list[subprocess.Popen[str]] = []
    with tempfile.TemporaryDirectory(prefix="gregor-kip794-") as directory:
        try:
            processes += [_start_broker(node, Path(directory) / str(node)) for node in range(BROKER_COUNT)]
            proxy = subprocess.Popen(
                [sys.executable, "-m", "bench.slow_cluster", "--delay-ms", str(delay_ms)],
                stdout=subprocess.PIPE,
                text=True,
            )
            processes.append(proxy)
            assert proxy.stdout is not None
            proxy.stdout.readline()
            yield f"127.0.0.1:{FIRST_PROXY_PORT}"
        finally:
            for process in reversed(processes):
                process.send_signal(signal.SIGTERM)
                process.wait()


def _start_broker(node: int, directory: Path) -> subprocess.Popen[str]:
    directory.mkdir()
    settings = [f"listeners=PLAINTEXT://127.0.0.1:{FIRST_BROKER_PORT + node}", f"log.dirs={directory}/logs"]
    command = [sys.executable, "-m", "gregor.broker.command_line", "serve"]
    for setting in settings:
        command += ["--override", setting]
    with (directory / "server.log").open("w") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, text=True)


async def create_topic(name: str) -> None:
    """Create a topic with a partition for each broker, on each of them."""
    for node in range(BROKER_COUNT):
        async with Admin(f"127.0.0.1:{FIRST_BROKER_PORT + node}") as admin:
            await admin.create_topics([NewTopic(name, BROKER_COUNT, 1)])


async def records_by_node(topic: str) -> list[int]:
    """How many records each broker has got."""
    counts = []
    for node in range(BROKER_COUNT):
        async with Admin(f"127.0.0.1:{FIRST_BROKER_PORT + node}") as admin:
            found = (await admin.list_offsets({(topic, node): LATEST}))[topic, node]
            counts.append(found.offset if found is not None else 0)
    return counts


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--delay-ms", type=float, default=20.0)
    trio.run(serve_proxies, parser.parse_args().delay_ms / 1000)
