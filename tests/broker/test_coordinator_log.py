"""Records in a compacted internal topic: written, read back, and found in the partition that Kafka computes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gregor.broker.coordinators.internal_log import coordinator_log
from gregor.broker.coordinators.internal_log.coordinator_log import (
    CoordinatorLog,
    KeyValue,
    Replayed,
    ReplayedMarker,
    ReplayedRecord,
    TransactionalProducer,
    java_hash,
)
from gregor.broker.coordinators.transactions.markers import PartitionMarkers
from gregor.broker.coordinators.transactions.transaction import Transaction, TransactionState
from gregor.broker.replicas.partition import Partition
from gregor.broker.replicas.partition_registry import PartitionRegistry
from gregor.protocol.errors import BrokerError, ErrorCode
from gregor.protocol.topic_partition import TopicPartition
from gregor.storage.clock import ManualClock
from gregor.storage.log.log_config import LogConfig
from gregor.storage.log_manager import LogManager

TOPIC = "__consumer_offsets"


class OneTopic:
    """A set of one internal topic with two partitions, on disk."""

    def __init__(self, directory: Path, clock: ManualClock) -> None:
        self._logs = LogManager([str(directory)], LogConfig(), clock)
        self._logs.open_all()
        self.registry = PartitionRegistry(Partition(self._logs.create(TOPIC, index)) for index in range(2))

    def ensure_internal_topic(self, name: str) -> int:
        return 2

    def internal_topic_partitions(self, name: str) -> int:
        return 2

    def internal_partition(self, name: str, index: int) -> Partition | None:
        return self.registry.find(name, index)

    def close(self) -> None:
        self._logs.close()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_700_000_000_000)


@pytest.fixture
def topics(tmp_path: Path, clock: ManualClock) -> Iterator[OneTopic]:
    topics = OneTopic(tmp_path, clock)
    yield topics
    topics.close()


@pytest.fixture
def log(topics: OneTopic, clock: ManualClock) -> CoordinatorLog:
    return CoordinatorLog(TOPIC, topics, clock)


def test_an_unavailable_coordinator_partition_is_logged_once(
    log: CoordinatorLog, topics: OneTopic, caplog: pytest.LogCaptureFixture
) -> None:
    missing = topics.registry.remove(TOPIC, 0)
    assert missing is not None
    for index in (0, 0, 1, 0):
        if index:
            log.append(index, [KeyValue(b"key", b"value")])
            continue
        with pytest.raises(BrokerError, match="COORDINATOR_NOT_AVAILABLE"):
            log.append(index, [KeyValue(b"key", b"value")])
    assert caplog.messages == [f"{TOPIC}-0 takes no records: COORDINATOR_NOT_AVAILABLE"]

    topics.registry.add(missing)
    with pytest.raises(BrokerError, match="MESSAGE_TOO_LARGE"):
        log.append(1, [KeyValue(b"key", bytes(2_000_000))])
    assert len(caplog.messages) == 1, "a client's faulty record is not logged as a fault of the partition"


def replayed(log: CoordinatorLog, index: int) -> list[Replayed]:
    return [entry for entries in log.replay(index) for entry in entries]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("zoo-plain", 163972585),
        ("polygenelubricants", 0),  # Java's hash is the smallest integer, whose absolute value no integer is
        ("\N{GRINNING FACE}", 1772899),
    ],
)
def test_keys_hash_as_in_java(text: str, expected: int) -> None:
    assert java_hash(text) == expected


def test_records_are_replayed_in_order_with_tombstones(log: CoordinatorLog) -> None:
    assert log.append(0, [KeyValue(b"k", b"1"), KeyValue(b"l", None)]) == 0
    assert log.append(0, [KeyValue(b"k", b"2")]) == 2
    assert replayed(log, 0) == [
        ReplayedRecord(0, b"k", b"1", -1),
        ReplayedRecord(1, b"l", None, -1),
        ReplayedRecord(2, b"k", b"2", -1),
    ]
    assert replayed(log, 1) == []


def test_a_long_log_is_replayed_in_pieces(log: CoordinatorLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator_log, "REPLAY_BYTES", 1_000)
    for number in range(50):
        log.append(0, [KeyValue(b"%d" % number, b"v" * 100)])
    pieces = list(log.replay(0))
    assert len(pieces) > 3
    assert [entry.offset for piece in pieces for entry in piece] == list(range(50))


@pytest.mark.parametrize("commit", [True, False])
def test_replay_distinguishes_transaction_markers_from_records(
    log: CoordinatorLog, topics: OneTopic, clock: ManualClock, commit: bool
) -> None:
    log.append(1, [KeyValue(b"k", b"v")], producer=TransactionalProducer(7, 3))
    markers = PartitionMarkers(topics.registry, lambda *_: None, clock)
    transaction = Transaction(
        transactional_id="tx",
        producer_id=7,
        producer_epoch=3,
        timeout_ms=1,
        state=TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT,
        partitions=frozenset({TopicPartition(TOPIC, 1)}),
    )
    assert markers.write(transaction)
    assert replayed(log, 1) == [ReplayedRecord(0, b"k", b"v", 7), ReplayedMarker(1, 7, commit)]


def test_a_missing_partition_and_a_record_too_large_are_refused(log: CoordinatorLog) -> None:
    with pytest.raises(BrokerError) as missing:
        log.append(5, [KeyValue(b"k", b"v")])
    assert missing.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    with pytest.raises(BrokerError) as too_large:
        log.append(0, [KeyValue(b"k", bytes(2 << 20))])
    assert too_large.value.code is ErrorCode.MESSAGE_TOO_LARGE
