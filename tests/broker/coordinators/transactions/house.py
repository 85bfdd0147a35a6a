"""A transaction coordinator whose dependencies record their calls, for tests without a broker."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from gregor.broker.coordinators.internal_log.coordinator_log import ReplayedRecord
from gregor.broker.coordinators.transactions.coordinator import CoordinatorSettings, TransactionCoordinator
from gregor.broker.coordinators.transactions.transaction import ProducerIdentity, Transaction, TransactionState
from gregor.protocol.errors import BrokerError, ErrorCode
from gregor.protocol.topic_partition import TopicPartition
from gregor.storage.clock import ManualClock


class Journal:
    """A log that records all writes in order; `broken` partitions refuse their markers."""

    def __init__(self) -> None:
        self.records: list[ReplayedRecord] = []
        self.markers: list[tuple[TopicPartition, int, bool]] = []
        self.broken: set[TopicPartition] = set()
        self.refuses: set[int] = set()
        """Partitions of this log that take no records."""

    def partition_of(self, key: str) -> int:
        return len(key)

    def append(self, index: int, records: Collection[tuple[bytes, bytes | None]]) -> int:
        if index in self.refuses:
            raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR)
        first = len(self.records)
        for offset, (key, value) in enumerate(records, first):
            self.records.append(ReplayedRecord(offset, key, value, -1))
        return first

    def write(self, transaction: Transaction) -> bool:
        for partition in sorted(transaction.partitions - self.broken):
            self.markers.append((partition, transaction.producer_epoch, transaction.commits))
        return not transaction.partitions & self.broken


class Loaded:
    """A set of partitions that this broker coordinates; the ids in ``loading`` are not loaded completely."""

    def __init__(self) -> None:
        self.loading: set[str] = set()

    def check(self, key: str) -> None:
        if key in self.loading:
            raise BrokerError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    def serves(self, key: str) -> bool:
        return key not in self.loading


class House:
    """A coordinator with its dependencies that can be killed and restarted."""

    def __init__(self) -> None:
        self.journal = Journal()
        self.clock = ManualClock(1_000_000)
        self.next_id = 100
        self.partitions = Loaded()
        self.coordinator = self.fresh()

    def fresh(self) -> TransactionCoordinator:
        settings = CoordinatorSettings()
        return TransactionCoordinator(self.journal, self.journal, self.take_id, self.clock, settings, self.partitions)

    def take_id(self) -> int:
        self.next_id += 1
        return self.next_id

    def restart(self) -> None:
        self.coordinator = self.fresh()
        self.coordinator.replay(self.journal.records)
        self.coordinator.resume()

    def init(self, expected: ProducerIdentity | None = None) -> ProducerIdentity:
        return self.coordinator.init_producer_id("tx", 60_000, expected)

    @property
    def state(self) -> TransactionState:
        return self.coordinator.describe("tx").state


def refused(code: ErrorCode) -> pytest.RaisesExc[BrokerError]:
    return pytest.RaisesExc(BrokerError, check=lambda error: error.code is code)
