"""The transaction coordinator's rules, as in Kafka 3.9, and their state after a restart."""

from __future__ import annotations

import pytest

from gregor.broker.coordinators.transactions.coordinator import CoordinatorSettings
from gregor.broker.coordinators.transactions.transaction import ProducerIdentity, Transaction, TransactionState
from gregor.broker.coordinators.transactions.transaction_log import read_value, value_bytes
from gregor.protocol.errors import ErrorCode
from gregor.protocol.topic_partition import TopicPartition
from tests.broker.coordinators.transactions.house import House, refused

A, B = TopicPartition("a", 0), TopicPartition("b", 3)


def test_init_producer_id_returns_the_same_producer_id_and_the_next_epoch(house: House) -> None:
    assert house.init() == (101, 0)
    assert house.init() == (101, 1)


def test_commit_writes_a_marker_into_each_partition_then_completes(house: House) -> None:
    producer = house.init()
    house.coordinator.add_partitions("tx", producer, [A])
    house.coordinator.add_partitions("tx", producer, [B])
    house.coordinator.end("tx", producer, commit=True)
    assert house.journal.markers == [(A, 0, True), (B, 0, True)]
    assert house.state is TransactionState.COMPLETE_COMMIT
    house.coordinator.end("tx", producer, commit=True)
    with refused(ErrorCode.INVALID_TXN_STATE):
        house.coordinator.end("tx", producer, commit=False)


def test_a_coordinator_that_may_be_replaced_writes_a_record_for_unchanged_state_too(house: House) -> None:
    """If another broker is the coordinator by now, the record is not replicated, and no answer is sent."""
    producer = house.init()
    house.coordinator.add_partitions("tx", producer, [A])
    written = len(house.journal.records)
    assert house.coordinator.holds_partition("tx", producer, A)
    assert len(house.journal.records) == written
    assert not house.coordinator.holds_partition("tx", producer, B)
    assert len(house.journal.records) == written + 1
    house.coordinator.end("tx", producer, commit=True)
    written = len(house.journal.records)
    house.coordinator.end("tx", producer, commit=True)
    assert len(house.journal.records) == written + 1
    assert house.journal.records[-1].value == house.journal.records[-2].value


def test_init_producer_id_aborts_an_open_transaction_with_a_bumped_epoch(house: House) -> None:
    old = house.init()
    house.coordinator.add_partitions("tx", old, [A])
    with refused(ErrorCode.CONCURRENT_TRANSACTIONS):
        house.init()
    assert house.journal.markers == [(A, 1, False)]
    assert house.init() == (101, 2)
    with refused(ErrorCode.PRODUCER_FENCED):
        house.coordinator.end("tx", old, commit=True)


@pytest.mark.parametrize("broken", [set(), {A}, {A, B}])
def test_a_prepared_transaction_is_completed_after_a_crash(house: House, broken: set[TopicPartition]) -> None:
    producer = house.init()
    house.coordinator.add_partitions("tx", producer, [A, B])
    house.journal.broken = broken
    house.coordinator.end("tx", producer, commit=True)
    house.journal.broken = set()
    house.restart()
    assert house.state is TransactionState.COMPLETE_COMMIT
    assert {partition for partition, _, commit in house.journal.markers if commit} == {A, B}


def test_until_all_markers_are_written_no_new_transaction_can_begin(house: House) -> None:
    producer = house.init()
    house.coordinator.add_partitions("tx", producer, [A])
    house.journal.broken = {A}
    house.coordinator.end("tx", producer, commit=True)
    with refused(ErrorCode.CONCURRENT_TRANSACTIONS):
        house.coordinator.add_partitions("tx", producer, [B])
    with refused(ErrorCode.CONCURRENT_TRANSACTIONS):
        house.init()
    with refused(ErrorCode.CONCURRENT_TRANSACTIONS):
        house.coordinator.end("tx", producer, commit=True)
    with refused(ErrorCode.INVALID_TXN_STATE):
        house.coordinator.end("tx", producer, commit=False)


def test_an_open_transaction_times_out_and_its_producer_is_fenced(house: House) -> None:
    producer = house.init()
    house.coordinator.add_partitions("tx", producer, [A])
    house.clock.advance(60_001)
    house.coordinator.abort_timed_out()
    assert house.state is TransactionState.COMPLETE_ABORT
    with refused(ErrorCode.PRODUCER_FENCED):
        house.coordinator.add_partitions("tx", producer, [A])


def test_a_producer_may_bump_its_own_epoch_and_ask_again(house: House) -> None:
    """KIP-360: the retry of a bump gets the same answer; an older epoch is fenced."""
    first = house.init()
    second = house.init(first)
    assert second == (first.producer_id, first.epoch + 1)
    assert house.init(first) == second
    house.init(second)
    with refused(ErrorCode.PRODUCER_FENCED):
        house.init(first)
    with refused(ErrorCode.PRODUCER_FENCED):
        house.init(ProducerIdentity(first.producer_id + 1000, 0))


def test_used_up_epochs_lead_to_a_new_producer_id(house: House) -> None:
    house.init()
    for _ in range(0x7FFF - 1):
        last = house.init()
    assert last == (101, 0x7FFE)
    assert house.init(last) == (102, 0)


def test_expired_transactional_ids_stay_deleted_after_a_restart(house: House) -> None:
    house.init()
    house.clock.advance(CoordinatorSettings().expiration_ms)
    house.coordinator.forget_expired()
    house.restart()
    with refused(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND):
        house.coordinator.describe("tx")


@pytest.mark.parametrize(
    ("timeout_ms", "good"), [(0, False), (-1, False), (1, True), (900_000, True), (900_001, False)]
)
def test_time_outs_have_limits(house: House, timeout_ms: int, good: bool) -> None:
    if good:
        house.coordinator.init_producer_id("t", timeout_ms, None)
    else:
        with refused(ErrorCode.INVALID_TRANSACTION_TIMEOUT):
            house.coordinator.init_producer_id("t", timeout_ms, None)


def test_a_transaction_is_read_back_from_its_record() -> None:
    transaction = Transaction(
        transactional_id="tx",
        producer_id=7,
        producer_epoch=3,
        timeout_ms=5,
        state=TransactionState.ONGOING,
        partitions=frozenset({A, B}),
        start_timestamp=11,
        last_update_timestamp=12,
    )
    assert read_value("tx", value_bytes(transaction)) == transaction
