"""KIP-283's memory test for compressed batches: the same bounds as `test_bounded_memory` has for plain ones."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from gregor.protocol.apis import ApiKey
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from gregor.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from gregor.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from gregor.protocol.records import v2
from gregor.protocol.records.compression import Codec
from gregor.protocol.records.record import Record
from tests.broker_process import BrokerProcess, running_broker
from tests.wire import Wire, forget_peak, resident_bytes

MIB = 1 << 20
KIB = 1 << 10
PARTITIONS = 8
PARTITION_BYTES = 8 * MIB
SLOW_CONSUMERS = 100
ONE_BOUND_BYTES = 16 * MIB
MANY_BOUND_BYTES = 64 * MIB
QUICK = [(Codec.LZ4, 16 * KIB, 3), (Codec.SNAPPY, MIB, 1)]
ROWS = [
    (codec, batch_bytes, version)
    for codec in (Codec.LZ4, Codec.GZIP, Codec.ZSTD, Codec.SNAPPY)
    for batch_bytes in (16 * KIB, MIB)
    for version in (1, 3)
]


def marked(rows: list[tuple[Codec, int, int]], quick: list[tuple[Codec, int, int]]) -> Iterator[object]:
    """Yield the rows with names, all but the quick ones for `make peers`."""
    for codec, batch_bytes, version in rows:
        name = f"{codec.name.lower()}-{batch_bytes // KIB}kB-v{version}"
        marks = () if (codec, batch_bytes, version) in quick else pytest.mark.peer
        yield pytest.param(codec, batch_bytes, version, id=name, marks=marks)


@pytest.fixture
def roomy_broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """Provide a broker that lets one fetch have more than Kafka's default of 55 MB.

    Each row has a broker of its own: a broker continues with requests of closed connections until it has bytes to send.
    """
    with running_broker(tmp_path, "fetch.max.bytes=300000000") as broker:
        yield broker


def topic_with(broker: BrokerProcess, codec: Codec, batch_bytes: int) -> str:
    """Create a topic of 8 partitions of 8 MB; a batch has ``batch_bytes``, and twice as many inflated."""
    name = f"{codec.name.lower()}-{batch_bytes}"
    with Wire(broker.address) as wire:
        topic = CreatableTopic(name=name, num_partitions=PARTITIONS, replication_factor=1)
        wire.ask(ApiKey.CREATE_TOPICS, 4, CreateTopicsRequest(topics=[topic], timeout_ms=60_000))
        noise = random.Random(1)
        values = [noise.randbytes(950) + bytes(950) for _ in range(batch_bytes // 1024)]
        records = [Record(index, 1_700_000_000_000, None, value) for index, value in enumerate(values)]
        data = v2.build_batch(records, codec=codec)
        for index in range(PARTITIONS):
            part = TopicProduceData(name=name, partition_data=[PartitionProduceData(index=index, records=data)])
            for _ in range(PARTITION_BYTES // batch_bytes):
                request = ProduceRequest(acks=1, timeout_ms=10_000, topic_data=[part])
                answer = wire.ask(ApiKey.PRODUCE, 7, request)
                assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
    return name


def fetch_all(topic: str, count: int = PARTITIONS) -> FetchRequest:
    """Return a fetch of the first ``count`` partitions, all of them."""
    partitions = [
        FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=PARTITION_BYTES) for index in range(count)
    ]
    topics = [FetchTopic(topic=topic, partitions=partitions)]
    return FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=300 * MIB, topics=topics)


@pytest.mark.parametrize(("codec", "batch_bytes", "version"), list(marked(ROWS, QUICK)))
def test_one_fetch_of_compressed_batches_grows_the_broker_by_less_than_16_mb(
    roomy_broker: BrokerProcess, codec: Codec, batch_bytes: int, version: int
) -> None:
    topic = topic_with(roomy_broker, codec, batch_bytes)
    forget_peak(roomy_broker.pid)
    idle = resident_bytes(roomy_broker.pid)
    with Wire(roomy_broker.address) as wire:
        wire.send(ApiKey.FETCH, version, fetch_all(topic))
        size = remaining = int.from_bytes(wire.read(4), "big")
        while remaining:
            remaining -= len(wire.socket.recv(min(MIB, remaining)))
    growth = resident_bytes(roomy_broker.pid, "VmHWM") - idle
    print(f"{topic} v{version}: {size / MIB:.0f} MiB sent, idle {idle / MIB:.1f} MiB, growth {growth / MIB:.1f} MiB")
    # Clients of these versions cannot fetch zstd.
    assert (size > PARTITIONS * PARTITION_BYTES * 0.8) is (codec is not Codec.ZSTD)
    assert growth < ONE_BOUND_BYTES


@pytest.mark.parametrize(("codec", "batch_bytes", "version"), list(marked(ROWS, [])))
def test_a_hundred_slow_consumers_of_compressed_batches_grow_the_broker_by_less_than_64_mb(
    roomy_broker: BrokerProcess, codec: Codec, batch_bytes: int, version: int
) -> None:
    topic = topic_with(roomy_broker, codec, batch_bytes)
    forget_peak(roomy_broker.pid)
    idle = resident_bytes(roomy_broker.pid)
    with contextlib.ExitStack() as stack:
        # Each plan compresses a batch of each partition: two plans are enough, and take long on a busy machine.
        slow = [stack.enter_context(Wire(roomy_broker.address, timeout=600)) for _ in range(SLOW_CONSUMERS)]
        for wire in slow:
            wire.send(ApiKey.FETCH, version, fetch_all(topic, 2))
        for _ in range(1 if codec is Codec.ZSTD else 5):
            for wire in slow:
                assert wire.socket.recv(16384)
        growth = resident_bytes(roomy_broker.pid, "VmHWM") - idle
    print(f"{topic} v{version}: {SLOW_CONSUMERS} slow consumers, idle {idle / MIB:.1f}, growth {growth / MIB:.1f} MiB")
    assert growth < MANY_BOUND_BYTES
