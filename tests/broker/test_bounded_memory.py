"""KIP-283's memory test: the memory of one converted answer, and of a hundred slow readers."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

import pytest

from gregor.protocol.apis import ApiKey
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from gregor.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from gregor.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from gregor.protocol.records import v2
from gregor.protocol.records.record import Record
from tests.broker_process import BrokerProcess, running_broker
from tests.wire import Wire, forget_peak, resident_bytes

pytestmark = pytest.mark.peer

MIB = 1 << 20
PARTITIONS = 250
BATCHES_A_PARTITION = 256
RECORDS_A_BATCH = 16
SLOW_CONSUMERS = 100
TOPIC = "kip283"


def fetch_everything(max_bytes: int = 250 * MIB) -> FetchRequest:
    partitions = [FetchPartition(partition=i, fetch_offset=0, partition_max_bytes=MIB) for i in range(PARTITIONS)]
    topics = [FetchTopic(topic=TOPIC, partitions=partitions)]
    return FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=max_bytes, topics=topics)


@pytest.fixture(scope="module")
def roomy_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """Provide a broker that lets one fetch have more than Kafka's default of 55 MB."""
    with running_broker(tmp_path_factory.mktemp("roomy"), "fetch.max.bytes=300000000") as broker:
        yield broker


@pytest.fixture(scope="module")
def filled(roomy_broker: BrokerProcess) -> BrokerProcess:
    """Return a broker with 250 partitions of 4 MB: batches of 16 records of 1 kB in format v2."""
    batch = v2.build_batch([Record(i, 1_700_000_000_000, None, bytes(1000)) for i in range(RECORDS_A_BATCH)])
    with Wire(roomy_broker.address) as wire:
        topic = CreatableTopic(name=TOPIC, num_partitions=PARTITIONS, replication_factor=1)
        wire.ask(ApiKey.CREATE_TOPICS, 4, CreateTopicsRequest(topics=[topic], timeout_ms=60_000))
        data = [PartitionProduceData(index=i, records=batch) for i in range(PARTITIONS)]
        request = ProduceRequest(
            acks=1, timeout_ms=10_000, topic_data=[TopicProduceData(name=TOPIC, partition_data=data)]
        )
        for _ in range(BATCHES_A_PARTITION):
            answer = wire.ask(ApiKey.PRODUCE, 7, request)
        assert all(p.error_code == ErrorCode.NONE for p in answer.responses[0].partition_responses)
    return roomy_broker


@pytest.mark.parametrize("version", [3, 1, 11])
def test_one_fetch_of_250_mb_grows_the_broker_by_less_than_16_mb(filled: BrokerProcess, version: int) -> None:
    time.sleep(0.5)
    forget_peak(filled.pid)
    idle = resident_bytes(filled.pid)
    with Wire(filled.address) as wire:
        wire.send(ApiKey.FETCH, version, fetch_everything())
        size = int.from_bytes(wire.read(4), "big")
        assert size > 200 * MIB
        received = 0
        while received < size:
            received += len(wire.socket.recv(min(MIB, size - received)))
    growth = resident_bytes(filled.pid, "VmHWM") - idle
    print(f"fetch v{version}: {size / MIB:.0f} MiB sent, idle {idle / MIB:.1f} MiB, growth {growth / MIB:.1f} MiB")
    assert growth < 16 * MIB


def test_a_hundred_slow_old_consumers_grow_the_broker_by_less_than_64_mb(filled: BrokerProcess) -> None:
    forget_peak(filled.pid)
    idle = resident_bytes(filled.pid)
    with contextlib.ExitStack() as stack:
        slow = [stack.enter_context(Wire(filled.address)) for _ in range(SLOW_CONSUMERS)]
        for wire in slow:
            wire.send(ApiKey.FETCH, 3, fetch_everything())
        for _ in range(5):
            for wire in slow:
                assert wire.socket.recv(16384)
        growth = resident_bytes(filled.pid, "VmHWM") - idle
        print(f"{SLOW_CONSUMERS} slow consumers: growth {growth / MIB:.1f} MiB")
        assert growth < 64 * MIB
