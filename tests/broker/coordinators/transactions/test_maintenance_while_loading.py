"""Periodic work on transactions while their partition is being loaded, or while a partition takes no records."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gregor.broker.coordinators.transactions.coordinator import CoordinatorSettings, TransactionCoordinator
from gregor.broker.coordinators.transactions.transaction import TransactionState
from gregor.protocol.topic_partition import TopicPartition
from tests.broker.coordinators.transactions.house import House

A = TopicPartition("a", 0)


def maintain(coordinator: TransactionCoordinator) -> None:
    coordinator.abort_timed_out()
    coordinator.resume()
    coordinator.forget_expired()


@pytest.mark.parametrize("replayed", [1, 2, 3, 4])
def test_a_transaction_is_left_alone_until_its_last_record_is_replayed(house: House, replayed: int) -> None:
    """Each prefix of its records shows an outdated state: open since long ago, decided, or unused since long ago."""
    producer = house.init()
    house.coordinator.add_partitions("tx", producer, [A])
    house.coordinator.end("tx", producer, commit=True)
    history = list(house.journal.records)
    house.journal.markers.clear()
    house.clock.advance(CoordinatorSettings().expiration_ms + 1)
    house.coordinator.add_partitions("tx", producer, [A])
    records = list(house.journal.records)
    house.coordinator = house.fresh()
    house.partitions.loading.add("tx")
    house.coordinator.replay(history[:replayed])
    maintain(house.coordinator)
    assert (house.journal.records, house.journal.markers) == (records, [])
    house.coordinator.replay(records[replayed:])
    house.partitions.loading.clear()
    maintain(house.coordinator)
    assert (house.journal.records, house.state) == (records, TransactionState.ONGOING)


def test_markers_of_an_earlier_leadership_do_not_end_a_transaction_that_is_being_loaded(house: House) -> None:
    producer = house.init()
    house.coordinator.add_partitions("tx", producer, [A])
    house.journal.broken.add(A)
    house.coordinator.end("tx", producer, commit=True)
    prepared, records = house.coordinator.describe("tx"), list(house.journal.records)
    house.partitions.loading.add("tx")
    house.coordinator.markers_written(prepared)
    assert house.journal.records == records
    house.partitions.loading.clear()
    house.coordinator.markers_written(prepared)
    assert house.state is TransactionState.COMPLETE_COMMIT


@pytest.mark.parametrize(
    ("wait_ms", "work", "ended"),
    [
        (60_001, TransactionCoordinator.abort_timed_out, TransactionState.COMPLETE_ABORT),
        (0, TransactionCoordinator.resume, TransactionState.COMPLETE_COMMIT),
        (CoordinatorSettings().expiration_ms, TransactionCoordinator.forget_expired, None),
    ],
)
def test_a_partition_that_takes_no_records_does_not_hold_up_the_others(
    house: House, wait_ms: int, work: Callable[[TransactionCoordinator], None], ended: TransactionState | None
) -> None:
    for transactional_id in ("refused", "tx"):
        producer = house.coordinator.init_producer_id(transactional_id, 60_000, None)
        if ended is not None:
            house.coordinator.add_partitions(transactional_id, producer, [A])
        if ended is TransactionState.COMPLETE_COMMIT:
            house.journal.broken.add(A)
            house.coordinator.end(transactional_id, producer, commit=True)
    house.journal.broken.clear()
    house.journal.refuses.add(house.journal.partition_of("refused"))
    house.clock.advance(wait_ms)
    work(house.coordinator)
    states = {transaction.transactional_id: transaction.state for transaction in house.coordinator}
    assert states.get("tx") is ended
    assert "refused" in states
