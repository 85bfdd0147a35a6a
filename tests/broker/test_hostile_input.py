"""Bad input over real sockets: its sender gets an error or is disconnected, other clients are not affected."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import struct
import time
import zlib
from collections.abc import Callable, Iterator

import pytest

from gregor.protocol.apis import ApiKey, request_class, valid_versions
from gregor.protocol.codec import encode
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from gregor.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from gregor.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from gregor.protocol.records import v1, v2
from gregor.protocol.records.compression import Codec
from gregor.protocol.records.record import Record
from tests.broker_process import BrokerProcess
from tests.waiting import PATIENCE_S
from tests.wire import Wire, forget_peak, resident_bytes

MIB = 1 << 20
TOPIC = "witness"
BOMB_INFLATED_BYTES = 1 << 30


def records_of(values: list[bytes]) -> list[Record]:
    return [Record(offset=i, timestamp=1_700_000_000_000, key=b"k", value=value) for i, value in enumerate(values)]


def produce(wire: Wire, data: bytes, *, version: int = 7, topic: str = TOPIC) -> tuple[ErrorCode, int]:
    """Return the error and base offset that one produced set of records is answered with."""
    request = ProduceRequest(
        acks=-1,
        timeout_ms=10_000,
        topic_data=[TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=data)])],
    )
    answer = wire.ask(ApiKey.PRODUCE, version, request).responses[0].partition_responses[0]
    return ErrorCode(answer.error_code), answer.base_offset


def fetch_request(topic: str, offset: int, *, max_bytes: int = MIB, max_wait_ms: int = 0) -> FetchRequest:
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=max_bytes)
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=max_bytes,
        topics=[FetchTopic(topic=topic, partitions=[partition])],
    )


@pytest.fixture(scope="module")
def witness(broker_process: BrokerProcess) -> BrokerProcess:
    """Return the broker under attack, with a topic whose records must outlive every attack."""
    with Wire(broker_process.address) as wire:
        topic = CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1)
        wire.ask(ApiKey.CREATE_TOPICS, 4, CreateTopicsRequest(topics=[topic], timeout_ms=10_000))
        error, base = produce(wire, v2.build_batch(records_of([b"acknowledged"])))
        assert (error, base) == (ErrorCode.NONE, 0)
    return broker_process


@pytest.fixture(autouse=True)
def others_go_on(witness: BrokerProcess) -> Iterator[None]:
    """Check after each attack that memory is bounded, another client is served and the record is still readable."""
    forget_peak(witness.pid)
    before = resident_bytes(witness.pid)
    yield
    with Wire(witness.address) as wire:
        data = wire.ask(ApiKey.FETCH, 4, fetch_request(TOPIC, 0)).responses[0].partitions[0]
        assert data.error_code == 0
        assert b"acknowledged" in bytes(data.records)
        error, _ = produce(wire, v2.build_batch(records_of([b"still here"])))
        assert error is ErrorCode.NONE
    assert resident_bytes(witness.pid, "VmHWM") - before < 64 * MIB


def closed_by_broker(raw: socket.socket, *, within_s: float = PATIENCE_S) -> bool:
    raw.settimeout(within_s)
    try:
        while raw.recv(65536):
            pass
    except ConnectionError:
        return True
    except TimeoutError:
        return False
    return True


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64),
        struct.pack(">i", 0x7FFFFFFF) + b"x" * 64,
        struct.pack(">i", -1),
        struct.pack(">i", 0),
        struct.pack(">ihhi", 8, 9999, 0, 1),
        struct.pack(">ihhih", 10, int(ApiKey.METADATA), 99, 1, -1),
        struct.pack(">i", 200_000_000) + b"x",
    ],
    ids=["http", "tls", "2GB", "negative", "empty", "unknown api", "unknown version", "over the limit"],
)
def test_a_frame_that_is_not_kafka_costs_the_connection(witness: BrokerProcess, sent: bytes) -> None:
    with socket.create_connection(witness.address) as raw:
        raw.sendall(sent)
        assert closed_by_broker(raw)


def test_random_bytes_in_frames_cost_at_most_the_connection(witness: BrokerProcess) -> None:
    rng = random.Random(283)
    for _ in range(300):
        body = rng.randbytes(rng.randrange(0, 200))
        with socket.create_connection(witness.address) as raw, contextlib.suppress(ConnectionError):
            raw.sendall(struct.pack(">i", len(body)) + body)
            raw.shutdown(socket.SHUT_WR)
            assert closed_by_broker(raw)


def mutations(rng: random.Random, frame: bytes) -> Iterator[bytes]:
    """Yield ``frame`` with its body cut, a bit flipped, or a length field enlarged; the outer length stays correct."""
    head, body = frame[4:12], frame[12:]
    for _ in range(6):
        damaged = bytearray(body)
        kind = rng.randrange(3)
        if kind == 0:
            damaged = damaged[: rng.randrange(len(damaged) + 1)]
        elif kind == 1 and damaged:
            for _ in range(rng.randrange(1, 4)):
                damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
        elif len(damaged) >= 4:
            at = rng.randrange(len(damaged) - 3)
            damaged[at : at + 4] = struct.pack(">i", rng.choice([-1, -2, 0x7FFFFFFF, -0x80000000, 1 << 24]))
        yield struct.pack(">i", len(head) + len(damaged)) + head + bytes(damaged)


@pytest.mark.slow
def test_every_request_version_survives_damage(witness: BrokerProcess) -> None:
    """Every API and version that is served, with damaged bodies: an answer or a closed connection, never silence."""
    rng = random.Random(794)
    attacked = 0
    skipped = {ApiKey.PRODUCE, ApiKey.FETCH}
    with Wire(witness.address) as wire:
        for key in ApiKey:
            first, last = valid_versions(key)
            for version in range(first, last + 1):
                request = fetch_request(TOPIC, 0) if key is ApiKey.FETCH else request_class(key)()
                with contextlib.suppress(ValueError):
                    frame = wire.frame(key, version, request)
                    for damaged in mutations(rng, frame):
                        attacked += 1
                        with socket.create_connection(witness.address) as raw, contextlib.suppress(ConnectionError):
                            raw.sendall(damaged)
                            raw.shutdown(socket.SHUT_WR)
                            assert key in skipped or closed_by_broker(raw), f"{key.name} v{version} left waiting"
    assert attacked > 1000


def test_connections_that_announce_large_frames_and_send_nothing_allocate_no_memory(witness: BrokerProcess) -> None:
    """200 connections that each announce 100 MB and send nothing: no memory is allocated for missing bytes."""
    with contextlib.ExitStack() as stack:
        for _ in range(200):
            raw = stack.enter_context(socket.create_connection(witness.address))
            raw.sendall(struct.pack(">i", 100_000_000) + b"\x00\x00\x00\x07")
        with Wire(witness.address) as wire:
            error, _ = produce(wire, v2.build_batch(records_of([b"between"])))
            assert error is ErrorCode.NONE


@pytest.mark.slow
def test_a_compression_bomb_is_refused_in_bounded_memory(witness: BrokerProcess) -> None:
    """About 1 MB of gzip in format v1 that inflates to 1 GB (it ends Kafka 3.9.1)."""
    compressor = zlib.compressobj(9, zlib.DEFLATED, 31)
    inner = v1.build_message(0, 1, None, bytes(MIB))
    inflated = BOMB_INFLATED_BYTES // len(inner)
    bomb = b"".join([*(compressor.compress(inner) for _ in range(inflated)), compressor.flush()])
    wrapper = v1.build_message(0, 1, None, bomb, attributes=int(Codec.GZIP))
    with Wire(witness.address) as wire:
        error, _ = produce(wire, wrapper, version=2)
        assert error is not ErrorCode.NONE


def damaged_batches() -> dict[str, tuple[bytes, int]]:
    """Return damaged sets of records, each with the Produce version that carries it."""
    good = v2.build_batch(records_of([b"a", b"b"]))
    wrong_crc = bytearray(good)
    wrong_crc[-1] ^= 0xFF
    lying_count = bytearray(good)
    struct.pack_into(">i", lying_count, 57, 1_000_000_000)
    huge_length = bytearray(good)
    struct.pack_into(">i", huge_length, 8, 0x7FFFFFF0)
    negative_length = bytearray(good)
    struct.pack_into(">i", negative_length, 8, -5)
    unknown_magic = bytearray(good)
    unknown_magic[16] = 9
    old_wrong_crc = bytearray(v1.build_message(0, 1, b"k", b"v"))
    old_wrong_crc[-1] ^= 0xFF
    return {
        "wrong crc": (bytes(wrong_crc), 7),
        "a billion records": (bytes(lying_count), 7),
        "huge length": (bytes(huge_length), 7),
        "negative length": (bytes(negative_length), 7),
        "unknown magic": (bytes(unknown_magic), 7),
        "cut": (good[:-3], 7),
        "wrong crc in v1": (bytes(old_wrong_crc), 2),
        "garbage": (b"\xff" * 100, 7),
    }


@pytest.mark.parametrize("name", damaged_batches())
def test_a_damaged_batch_is_refused_and_not_stored(witness: BrokerProcess, name: str) -> None:
    data, version = damaged_batches()[name]
    with Wire(witness.address) as wire:
        _, before = produce(wire, v2.build_batch(records_of([b"before"])))
        error, base = produce(wire, data, version=version)
        assert error in {ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT}
        assert base == -1
        _, after = produce(wire, v2.build_batch(records_of([b"after"])))
        assert after == before + 1


def test_an_offset_out_of_range_and_an_unknown_topic_are_errors_of_that_partition(witness: BrokerProcess) -> None:
    with Wire(witness.address) as wire:
        partition = wire.ask(ApiKey.FETCH, 4, fetch_request(TOPIC, 10**9)).responses[0].partitions[0]
        assert partition.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        partition = wire.ask(ApiKey.FETCH, 4, fetch_request("no-such-topic", 0)).responses[0].partitions[0]
        assert partition.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def big_topic(witness: BrokerProcess) -> str:
    """Return a topic with 24 MB of v2 records, for consumers that need them converted."""
    batch = v2.build_batch(records_of([bytes(1000)] * 800))
    with Wire(witness.address) as wire:
        for _ in range(30):
            assert produce(wire, batch, topic="stalled")[0] in {ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    return "stalled"


def test_clients_that_stop_reading_a_converted_answer_hold_one_chunk_each(witness: BrokerProcess) -> None:
    topic = big_topic(witness)
    with contextlib.ExitStack() as stack:
        for _ in range(50):
            wire = stack.enter_context(Wire(witness.address))
            wire.send(ApiKey.FETCH, 3, fetch_request(topic, 0, max_bytes=20 * MIB))
            wire.socket.recv(1024)


def test_a_client_that_disconnects_during_a_delayed_fetch_frees_its_connection(witness: BrokerProcess) -> None:
    with Wire(witness.address) as wire:
        end = produce(wire, v2.build_batch(records_of([b"x"])))[1] + 1
    for _ in range(20):
        with Wire(witness.address) as wire:
            wire.send(ApiKey.FETCH, 4, fetch_request(TOPIC, end, max_wait_ms=600_000))
    assert eventually(lambda: open_sockets(witness.pid) < 20)


def open_sockets(pid: int) -> int:
    """Return the number of sockets that ``pid`` holds."""
    names = []
    for fd in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):
            names.append(os.readlink(f"/proc/{pid}/fd/{fd}"))
    return sum(name.startswith("socket:") for name in names)


def eventually(condition: Callable[[], bool], *, within_s: float = PATIENCE_S) -> bool:
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def test_a_record_larger_than_allowed_is_too_large(witness: BrokerProcess) -> None:
    with Wire(witness.address) as wire:
        error, _ = produce(wire, v2.build_batch(records_of([bytes(2 * MIB)])))
        assert error is ErrorCode.MESSAGE_TOO_LARGE


def test_a_partition_count_larger_than_the_frame_closes_the_connection(witness: BrokerProcess) -> None:
    body = encode(fetch_request(TOPIC, 0), 4)
    at = body.index(TOPIC.encode()) + len(TOPIC)
    lying = body[:at] + struct.pack(">i", 0x7FFFFFFF) + body[at + 4 :]
    header = struct.pack(">hhih", int(ApiKey.FETCH), 4, 1, -1)
    with socket.create_connection(witness.address) as raw:
        raw.sendall(struct.pack(">i", len(header) + len(lying)) + header + lying)
        assert closed_by_broker(raw)
