"""The records that our compaction leaves are those that Kafka 3.9.1's own cleaner leaves of the same input."""

import os
import random
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gregor.protocol.apis import ApiKey
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from gregor.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from gregor.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from gregor.protocol.records import v2
from gregor.protocol.records.batches import Record, iter_batches, iter_records
from gregor.protocol.records.compression import Codec
from gregor.protocol.records.validation import AppendRules, validate
from gregor.storage.clock import ManualClock
from gregor.storage.compaction import plan
from gregor.storage.files import OsFiles
from gregor.storage.log_config import LogConfig
from gregor.storage.partition_log import PartitionLog
from tests.conformance.conftest import free_port_pair
from tests.storage.payloads import read_all
from tests.wire import Wire, produce_once_there_is_a_leader

pytestmark = pytest.mark.peer

SEGMENT_BYTES = 4000
NOW_MS = int(time.time() * 1000)
PATIENCE_S = 60


@pytest.fixture
def eager_kafka(shared: Path) -> Iterator[tuple[str, int]]:
    """A Kafka 3.9.1 whose cleaner does not wait."""
    script = shared / "peer" / "kafka39"
    if not script.exists() or shutil.which("java") is None:
        pytest.skip("Apache Kafka 3.9.1 needs ../shared/peer and a Java 17")
    port = free_port_pair()
    settings = ["log.cleaner.backoff.ms=200", "log.initial.task.delay.ms=100", "log.cleaner.dedupe.buffer.size=4000000"]
    subprocess.run([script, "start", str(port), *settings], check=True, capture_output=True, timeout=300)
    yield "127.0.0.1", port
    subprocess.run([script, "stop", str(port)], check=False, capture_output=True, timeout=60)


def batches(seed: int) -> list[bytes]:
    """Payloads with keys that come again, tombstones, every codec and producers that are idempotent or not."""
    chance = random.Random(seed)
    made = []
    sequences = {100: 0, 101: 0}
    for number in range(160):
        records = [
            Record(
                index,
                NOW_MS + number,
                b"key %d" % chance.randrange(40),
                None if chance.random() < 0.15 else b"value %d " % number + b"x" * chance.randrange(60),
            )
            for index in range(chance.randrange(1, 6))
        ]
        codec = chance.choice(list(Codec))
        producer = chance.choice([None, None, 100, 101])
        if producer is None:
            made.append(v2.build_batch(records, codec=codec))
        else:
            made.append(
                v2.build_batch(
                    records,
                    codec=codec,
                    producer_id=producer,
                    producer_epoch=0,
                    base_sequence=sequences[producer],
                )
            )
            sequences[producer] += len(records)
    return made


def kafkas_answer(address: tuple[str, int], payloads: list[bytes], settings: dict[str, str], until: int) -> set[object]:
    """Produce to Kafka, wait until all but the active segment is clean, read what is left."""
    with Wire(address) as wire:
        configs = [CreatableTopicConfig(name=name, value=value) for name, value in settings.items()]
        topic = CreatableTopic(name="cleaned", num_partitions=1, replication_factor=1, configs=configs)
        created = wire.ask(ApiKey.CREATE_TOPICS, 4, CreateTopicsRequest(topics=[topic], timeout_ms=20_000))
        assert created.topics[0].error_code == ErrorCode.NONE
        for data in payloads:
            partition = PartitionProduceData(index=0, records=data)
            request = ProduceRequest(
                acks=-1, timeout_ms=20_000, topic_data=[TopicProduceData(name="cleaned", partition_data=[partition])]
            )
            assert produce_once_there_is_a_leader(wire, request) == ErrorCode.NONE
        wait_for_cleaner(address[1], until)
        return set(read(wire))


def wait_for_cleaner(port: int, offset: int) -> None:
    """Until the checkpoint says that the topic is clean up to `offset`."""
    home = Path(os.environ.get("PEER_HOME", Path.home() / ".cache" / "peer-kafka39"))
    checkpoint = home / f"data-{port}" / "log" / "cleaner-offset-checkpoint"
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if checkpoint.exists() and f"cleaned 0 {offset}\n" in checkpoint.read_text():
            return
        time.sleep(0.2)
    pytest.fail(f"Kafka's cleaner did not reach {offset}: {checkpoint.read_text() if checkpoint.exists() else None}")


def read(wire: Wire) -> Iterator[tuple[int, bytes | None, bytes | None]]:
    """(offset, key, value) of everything in the topic."""
    offset = 0
    while True:
        partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
        topics = [FetchTopic(topic="cleaned", partitions=[partition])]
        request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1 << 24, topics=topics)
        data = wire.ask(ApiKey.FETCH, 11, request).responses[0].partitions[0]
        found = list(iter_batches(data.records or b""))
        if not found:
            return
        for batch in found:
            for record in iter_records(batch):
                if record.offset >= offset:
                    yield record.offset, record.key, record.value
        offset = found[-1].last_offset + 1


@pytest.mark.parametrize("seed", [1, 2])
def test_the_same_records_survive(eager_kafka: tuple[str, int], tmp_path: Path, seed: int) -> None:
    payloads = batches(seed)
    config = LogConfig(cleanup_policy="compact", segment_bytes=SEGMENT_BYTES)
    log = PartitionLog.open(str(tmp_path / "cleaned-0"), config, ManualClock(NOW_MS + 1000))
    for data in payloads:
        log.append(validate(bytearray(data), AppendRules(keys_required=True), now_ms=NOW_MS), leader_epoch=0)
    active = log.segments[-1].base_offset
    planned = plan(log, OsFiles(), ManualClock(NOW_MS + 1000), 0)
    assert planned is not None
    planned.run()
    assert planned.commit()
    ours = {(record.offset, record.key, record.value) for record in read_all(log)}
    settings = {
        "cleanup.policy": "compact",
        "segment.bytes": str(SEGMENT_BYTES),
        "min.cleanable.dirty.ratio": "0.001",
        "delete.retention.ms": "86400000",
    }
    theirs = kafkas_answer(eager_kafka, payloads, settings, active)
    assert ours == theirs
    assert len(ours) < sum(1 for data in payloads for batch in iter_batches(data) for _ in iter_records(batch)) / 2
    log.close()
