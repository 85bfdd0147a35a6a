"""No request leaves a reference cycle: its memory is free after the answer, without garbage collection.

`serve.GARBAGE_THRESHOLD` makes collections rare, and a cycle may hold a batch of megabytes or a conversion's memory.
"""

from __future__ import annotations

import gc
import socket
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest
import snappy
import trio

from gregor.broker.app.broker import Broker
from gregor.broker.config import BrokerConfig
from gregor.protocol.apis import ApiKey
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages.api_versions import ApiVersionsRequest
from gregor.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from gregor.protocol.messages.fetch import FetchRequest
from gregor.protocol.messages.find_coordinator import FindCoordinatorRequest
from gregor.protocol.messages.heartbeat import HeartbeatRequest
from gregor.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from gregor.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from gregor.protocol.messages.offset_fetch import OffsetFetchRequest
from gregor.protocol.messages.produce import ProduceRequest
from gregor.protocol.records import v0, v1, v2
from gregor.protocol.records.compression import Codec, compress
from gregor.protocol.records.record import Record
from tests.broker.api.log_requests import fetch, produce
from tests.wire import Wire

NOW_MS = 1_700_000_000_000
TIMES = 3
OLD_CODECS = [codec for codec in Codec if codec is not Codec.ZSTD]
LARGE_BYTES = 100_000
"""Of a record, so that a batch of it is checked and converted in a worker thread."""


class Call(NamedTuple):
    """A request."""

    key: ApiKey
    version: int
    request: Any


class Served:
    """A broker in this process and one client that is connected to it."""

    def __init__(self, broker: Broker) -> None:
        listener = broker.services.serving.listening[0]
        self.address = (listener.host, listener.port)
        self._wire = Wire(self.address)

    async def ask(self, call: Call) -> Any:
        return await trio.to_thread.run_sync(self._wire.ask, call.key, call.version, call.request)

    def close(self) -> None:
        self._wire.socket.close()


async def garbage_of(action: Callable[[], Any]) -> Counter[str]:
    """Return the types and numbers of the objects that ``action``, repeated, leaves to the garbage collector each time.

    What is left less often is that of another task or thread of the process, which had a turn meanwhile.
    """
    await action()
    gc.collect()
    gc.disable()
    try:
        for _ in range(TIMES):
            await action()
        await trio.testing.wait_all_tasks_blocked()
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        left = Counter(f"{type(found).__module__}.{type(found).__qualname__}" for found in gc.garbage)
        return Counter({name: count for name, count in left.items() if count >= TIMES})
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


@pytest.fixture
async def served(tmp_path: Path, nursery: trio.Nursery) -> Any:
    """Provide a broker with the topic of each codec and format, and ``t``."""
    overrides = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path), "log.retention.ms": "-1"}
    broker = Broker(BrokerConfig({**overrides, "message.max.bytes": "4000000"}))
    await nursery.start(broker.run)
    client = Served(broker)
    names = [topic_of(codec, magic) for codec in Codec for magic in (v0.MAGIC, v1.MAGIC, v2.MAGIC)]
    topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in (*names, "t")]
    await client.ask(Call(ApiKey.CREATE_TOPICS, 4, CreateTopicsRequest(topics=topics, timeout_ms=60_000)))
    # Objects that exist by now are frozen: with them each collection takes a tenth of a second.
    gc.collect()
    gc.freeze()
    yield client
    gc.unfreeze()
    client.close()
    broker.stop()


def topic_of(codec: Codec, magic: int) -> str:
    return f"{codec.name.lower()}-{magic}"


def payload(codec: Codec, magic: int, record_bytes: int) -> bytes:
    # Half of the value compresses well, half not at all.
    noise = Random(record_bytes).randbytes(record_bytes // 2)
    records = [Record(index, NOW_MS, b"k", noise + bytes(record_bytes // 2)) for index in range(3)]
    if magic == v2.MAGIC:
        return v2.build_batch(records, codec=codec)
    build = v0.build_message_set if magic == v0.MAGIC else v1.build_message_set
    return bytes(build(records, codec=codec))


def stored_formats() -> Iterator[tuple[Codec, int]]:
    for codec in Codec:
        for magic in (v0.MAGIC, v1.MAGIC, v2.MAGIC):
            if codec is not Codec.ZSTD or magic == v2.MAGIC:
                yield codec, magic


@pytest.mark.parametrize(("codec", "magic"), list(stored_formats()))
async def test_batches_appended_and_fetched_in_any_format_leave_no_reference_cycles(
    served: Served, codec: Codec, magic: int
) -> None:
    topic = topic_of(codec, magic)
    calls = []
    for record_bytes in (100, LARGE_BYTES):
        data = payload(codec, magic, record_bytes)
        calls.append(Call(ApiKey.PRODUCE, {v0.MAGIC: 1, v1.MAGIC: 2, v2.MAGIC: 8}[magic], produce(data, topic, acks=1)))
        # The first offset of the log, and of the large batch.
        calls += [
            Call(ApiKey.FETCH, version, fetch((0, offset), topic=topic, max_bytes=1 << 24))
            for version in (0, 3, 4, 11)
            for offset in (0, 12)
        ]
    for call in calls:
        found = await garbage_of(partial(served.ask, call))
        assert not found, f"{call.key.name} v{call.version}: {found}"


def broken(codec: Codec, body: bytes) -> bytes:
    return v2.assemble_batch(
        body,
        record_count=5,
        base_offset=0,
        last_offset=4,
        attributes=codec,
        base_timestamp=NOW_MS,
        max_timestamp=NOW_MS,
    )


def refused_batches() -> dict[str, Call]:
    """Return Produce requests that are refused, by their fault."""
    payloads: dict[str, bytes] = {
        "raw snappy": broken(Codec.SNAPPY, snappy.compress(bytes(19_000_000))),
        "too large": payload(Codec.NONE, v2.MAGIC, 2_000_000),
    }
    for codec in Codec:
        wrong_crc = bytearray(payload(codec, v2.MAGIC, 1000))
        wrong_crc[100] ^= 0xFF
        payloads[f"crc of {codec.name}"] = bytes(wrong_crc)
        payloads[f"bytes of {codec.name}"] = broken(codec, b"\1\2\3" * 99)
        payloads[f"many bytes of {codec.name}"] = broken(codec, b"\1\2\3" * 99_999)
        payloads[f"zeros of {codec.name}"] = broken(codec, compress(codec, bytes(3_000_000)))
    calls = {name: Call(ApiKey.PRODUCE, 8, produce(data, acks=1)) for name, data in payloads.items()}
    for codec in OLD_CODECS[1:]:
        wrapper = v1.build_message(0, NOW_MS, None, compress(codec, bytes(3_000_000)), attributes=codec)
        calls[f"zeros of {codec.name} in a wrapper"] = Call(ApiKey.PRODUCE, 2, produce(bytes(wrapper), acks=1))
    return calls


@pytest.mark.parametrize("call", list(refused_batches().values()), ids=list(refused_batches()))
async def test_refused_batches_leave_no_reference_cycles(served: Served, call: Call) -> None:
    answer = (await served.ask(call)).responses[0].partition_responses[0]
    assert answer.error_code != ErrorCode.NONE
    found = await garbage_of(lambda: served.ask(call))
    assert not found


SMALL_CALLS = [
    Call(ApiKey.API_VERSIONS, 3, ApiVersionsRequest(client_software_name="a", client_software_version="1")),
    Call(ApiKey.METADATA, 9, MetadataRequest(topics=None)),
    Call(
        ApiKey.METADATA,
        9,
        MetadataRequest(topics=[MetadataRequestTopic(name="absent")], allow_auto_topic_creation=False),
    ),
    Call(ApiKey.METADATA, 1, MetadataRequest(topics=[MetadataRequestTopic(name="t")])),
    Call(ApiKey.FIND_COORDINATOR, 2, FindCoordinatorRequest(key="g")),
    Call(ApiKey.HEARTBEAT, 3, HeartbeatRequest(group_id="absent", generation_id=1, member_id="m")),
    Call(ApiKey.OFFSET_FETCH, 5, OffsetFetchRequest(group_id="absent", topics=None)),
    Call(
        ApiKey.LIST_OFFSETS,
        5,
        ListOffsetsRequest(
            topics=[
                ListOffsetsTopic(name=name, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])
                for name in ("t", "absent")
            ]
        ),
    ),
    Call(ApiKey.FETCH, 11, fetch((0, 99))),
    Call(ApiKey.FETCH, 11, fetch((0, 0), topic="absent")),
    Call(ApiKey.FETCH, 4, fetch((0, 0), max_wait_ms=2)),
    Call(ApiKey.FETCH, 11, FetchRequest(session_id=77, session_epoch=5)),
    Call(ApiKey.PRODUCE, 8, produce(b"", "absent", acks=1)),
    Call(ApiKey.PRODUCE, 8, produce(b"", acks=5)),
    Call(ApiKey.PRODUCE, 8, ProduceRequest(acks=1)),
    Call(ApiKey.CREATE_TOPICS, 4, CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=1)])),
]


async def test_small_requests_leave_no_reference_cycles(served: Served) -> None:
    for call in SMALL_CALLS:
        found = await garbage_of(partial(served.ask, call))
        assert not found, f"{call.key.name} v{call.version}: {found}"


def come_and_go(address: tuple[str, int], sent: bytes, *, is_reset: bool) -> None:
    with socket.create_connection(address) as client:
        client.sendall(sent)
        if is_reset:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        elif sent:
            client.recv(1000)


@pytest.mark.parametrize("is_reset", [False, True])
@pytest.mark.parametrize("sent", [b"", bytes(4), b"\xff" * 8, struct.pack(">ihhih", 10, 999, 0, 1, -1)])
async def test_closed_connections_leave_no_reference_cycles(served: Served, sent: bytes, is_reset: bool) -> None:
    async def many_come() -> None:
        for _ in range(5):
            await trio.to_thread.run_sync(lambda: come_and_go(served.address, sent, is_reset=is_reset))
        await served.ask(SMALL_CALLS[0])
        await trio.testing.wait_all_tasks_blocked()

    found = await garbage_of(many_come)
    assert not found
