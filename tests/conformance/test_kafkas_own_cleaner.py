"""The records that our compaction leaves are those that Kafka 3.9.1's own cleaner leaves of the same input."""

import os
import random
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from gregor.protocol.apis import ApiKey
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from gregor.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from gregor.protocol.messages.end_txn import EndTxnRequest
from gregor.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from gregor.protocol.messages.find_coordinator import FindCoordinatorRequest
from gregor.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from gregor.protocol.messages.init_producer_id import InitProducerIdRequest
from gregor.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from gregor.protocol.records import v2
from gregor.protocol.records.batches import BatchView, Record, iter_batches, iter_records
from gregor.protocol.records.compression import Codec
from gregor.protocol.records.validation import AppendRules, validate
from gregor.storage.clock import ManualClock
from gregor.storage.compaction.compaction import plan
from gregor.storage.disk.files import OsFiles
from gregor.storage.log.log_config import LogConfig
from gregor.storage.log.partition_log import PartitionLog
from tests.conformance.conftest import running_kafka
from tests.storage.payloads import read_all
from tests.waiting import PATIENCE_S
from tests.wire import Wire, produce_once_there_is_a_leader

pytestmark = pytest.mark.peer

SEGMENT_BYTES = 4000
NOW_MS = int(time.time() * 1000)
PASSING_ERRORS = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)


@pytest.fixture
def eager_kafka(shared: Path) -> Iterator[tuple[str, int]]:
    """Provide a Kafka 3.9.1 whose cleaner does not wait."""
    settings = ("log.cleaner.backoff.ms=200", "log.initial.task.delay.ms=100", "log.cleaner.dedupe.buffer.size=4000000")
    with running_kafka(shared, *settings) as address:
        host, _, port = address.partition(":")
        yield host, int(port)


def batches(seed: int) -> list[bytes]:
    """Return batches with repeated keys, tombstones, every codec, and idempotent and other producers."""
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
    """Produce to Kafka, wait until all but the active segment is clean, and return the remaining records."""
    with Wire(address) as wire:
        create_topic(wire, settings)
        for data in payloads:
            assert produce(wire, data) == ErrorCode.NONE
        wait_for_cleaner(address[1], until)
        return set(read(wire))


def create_topic(wire: Wire, settings: dict[str, str]) -> None:
    configs = [CreatableTopicConfig(name=name, value=value) for name, value in settings.items()]
    topic = CreatableTopic(name="cleaned", num_partitions=1, replication_factor=1, configs=configs)
    created = wire.ask(ApiKey.CREATE_TOPICS, 4, CreateTopicsRequest(topics=[topic], timeout_ms=20_000))
    assert created.topics[0].error_code == ErrorCode.NONE


def wait_for_cleaner(port: int, offset: int) -> None:
    """Wait until the cleaner's checkpoint of the topic is `offset`."""
    home = Path(os.environ.get("PEER_HOME", Path.home() / ".cache" / "peer-kafka39"))
    checkpoint = home / f"data-{port}" / "log" / "cleaner-offset-checkpoint"
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if checkpoint.exists() and f"cleaned 0 {offset}\n" in checkpoint.read_text():
            return
        time.sleep(0.2)
    pytest.fail(f"Kafka's cleaner did not reach {offset}: {checkpoint.read_text() if checkpoint.exists() else None}")


def read(wire: Wire) -> Iterator[tuple[int, bytes | None, bytes | None]]:
    """Yield (offset, key, value) of each record of the topic."""
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


class Transactions:
    """A transactional producer of Kafka, over one connection."""

    def __init__(self, wire: Wire, transactional_id: str) -> None:
        self._wire = wire
        self._id = transactional_id
        self._sequence = 0
        find = FindCoordinatorRequest(key=transactional_id, key_type=1)
        until_done(lambda: wire.ask(ApiKey.FIND_COORDINATOR, 3, find).error_code)
        request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=600_000)
        until_done(lambda: wire.ask(ApiKey.INIT_PRODUCER_ID, 2, request).error_code)
        answer = wire.ask(ApiKey.INIT_PRODUCER_ID, 2, request)
        assert answer.error_code == ErrorCode.NONE
        self._producer_id, self._epoch = answer.producer_id, answer.producer_epoch

    def begin(self) -> None:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._id,
            v3_and_below_producer_id=self._producer_id,
            v3_and_below_producer_epoch=self._epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name="cleaned", partitions=[0])],
        )

        def error() -> int:
            answer = self._wire.ask(ApiKey.ADD_PARTITIONS_TO_TXN, 3, request)
            code: int = answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
            return code

        until_done(error)

    def write(self, records: list[Record]) -> None:
        data = v2.build_batch(
            records,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            base_sequence=self._sequence,
            is_transactional=True,
        )
        self._sequence += len(records)
        assert produce(self._wire, data, self._id) == ErrorCode.NONE

    def end(self, *, is_commit: bool) -> None:
        request = EndTxnRequest(
            transactional_id=self._id,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            committed=is_commit,
        )
        until_done(lambda: self._wire.ask(ApiKey.END_TXN, 3, request).error_code)


def until_done(error: Callable[[], int]) -> None:
    """Repeat a request as long as the coordinator is busy or not available."""
    deadline = time.monotonic() + PATIENCE_S
    while (code := error()) != ErrorCode.NONE:
        assert code in PASSING_ERRORS
        assert time.monotonic() < deadline
        time.sleep(0.05)


def produce(wire: Wire, data: bytes, transactional_id: str | None = None) -> int:
    topic = TopicProduceData(name="cleaned", partition_data=[PartitionProduceData(index=0, records=data)])
    request = ProduceRequest(transactional_id=transactional_id, acks=-1, timeout_ms=20_000, topic_data=[topic])
    return produce_once_there_is_a_leader(wire, request)


def write_transactions(wire: Wire, producers: list[Transactions], chance: random.Random, steps: int) -> None:
    """Write interleaved transactions between plain batches, and commit or abort all of them."""
    is_open = dict.fromkeys(producers, False)

    def records() -> list[Record]:
        return [
            Record(index, NOW_MS, b"key %d" % chance.randrange(30), None if chance.random() < 0.1 else b"v" * 40)
            for index in range(chance.randrange(1, 5))
        ]

    for _ in range(steps):
        producer = chance.choice(producers)
        action = chance.random()
        if action < 0.25:
            assert produce(wire, v2.build_batch(records())) == ErrorCode.NONE
        elif not is_open[producer]:
            producer.begin()
            producer.write(records())
            is_open[producer] = True
        elif action < 0.6:
            producer.write(records())
        else:
            producer.end(is_commit=action < 0.8)
            is_open[producer] = False
    for producer in producers:
        if is_open[producer]:
            producer.end(is_commit=False)
    # A transaction begins only when the markers of the one before are written.
    for producer in producers:
        producer.begin()
        producer.end(is_commit=True)


def stored_batches(wire: Wire, offset: int) -> list[BatchView]:
    """Return all batches from `offset` on, markers too, as Kafka stores them."""
    batches: list[BatchView] = []
    while True:
        partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=1 << 24,
            topics=[FetchTopic(topic="cleaned", partitions=[partition])],
        )
        data = wire.ask(ApiKey.FETCH, 11, request).responses[0].partitions[0].records or b""
        found = [batch for batch in iter_batches(data) if batch.last_offset >= offset]
        if not found:
            return batches
        batches += found
        offset = found[-1].last_offset + 1


def contents(batches: Iterable[BatchView]) -> set[tuple[object, ...]]:
    """Return what readers and producers can distinguish: records, markers, and the headers of emptied batches."""
    left: set[tuple[object, ...]] = set()
    for batch in batches:
        kind = (batch.producer_id, batch.producer_epoch, batch.is_transactional, batch.is_control)
        left |= {(record.offset, record.key, record.value, *kind) for record in iter_records(batch)}
        if batch.record_count == 0:
            left.add((batch.stored_offset, batch.last_offset, batch.base_sequence, *kind))
    return left


def let_clean(wire: Wire, ratio: str) -> None:
    config = AlterableConfig(name="min.cleanable.dirty.ratio", config_operation=0, value=ratio)
    resource = AlterConfigsResource(resource_type=2, resource_name="cleaned", configs=[config])
    answer = wire.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, IncrementalAlterConfigsRequest(resources=[resource]))
    assert answer.responses[0].error_code == ErrorCode.NONE


@pytest.mark.parametrize(("seed", "delete_retention_ms"), [(1, 86_400_000), (2, 0), (3, 0)])
def test_compaction_of_transactions_leaves_the_same_as_kafkas_cleaner(
    eager_kafka: tuple[str, int], tmp_path: Path, seed: int, delete_retention_ms: int
) -> None:
    """Two passes: the second may remove the tombstones and markers that the first only marks."""
    chance = random.Random(seed)
    settings = {
        "cleanup.policy": "compact",
        "segment.bytes": str(SEGMENT_BYTES),
        "min.cleanable.dirty.ratio": "1",
        "delete.retention.ms": str(delete_retention_ms),
    }
    config = LogConfig(cleanup_policy="compact", segment_bytes=SEGMENT_BYTES, delete_retention_ms=delete_retention_ms)
    clock = ManualClock(NOW_MS + 1000)
    log = PartitionLog.open(str(tmp_path / "cleaned-0"), config, clock)
    with Wire(eager_kafka) as wire:
        create_topic(wire, settings)
        producers = [Transactions(wire, name) for name in ("a", "b", "c")]
        clean_until = 0
        for _ in range(2):
            write_transactions(wire, producers, chance, 120)
            for batch in stored_batches(wire, log.log_end_offset):
                log.append_as_follower(bytes(batch.view))
            planned = plan(log, OsFiles(), clock, clean_until)
            assert planned is not None
            planned.run()
            assert planned.commit()
            clean_until = planned.end_offset
            let_clean(wire, "0.0001")
            wait_for_cleaner(eager_kafka[1], clean_until)
            let_clean(wire, "1")
            clock.advance(1000)
            for segment in log.segments:
                segment.load()
            ours = contents(batch for segment in log.segments for batch in segment.batches_from(0))
            assert ours == contents(stored_batches(wire, 0))
    assert any(is_control for *_, is_control in ours)
    log.close()


@pytest.mark.parametrize("seed", [1, 2])
def test_compaction_leaves_the_same_records_as_kafkas_cleaner(
    eager_kafka: tuple[str, int], tmp_path: Path, seed: int
) -> None:
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
