"""Transactions V2 (KIP-890, part 2): each transaction has an epoch of its own, given by EndTxn v5."""

from __future__ import annotations

import pytest

from gregor.broker.coordinators.transactions.coordinator import CoordinatorSettings
from gregor.broker.coordinators.transactions.transaction import (
    LARGEST_EPOCH,
    ProducerIdentity,
    Transaction,
    TransactionState,
)
from gregor.broker.coordinators.transactions.transaction_log import read_value, value_bytes
from gregor.protocol.errors import ErrorCode
from gregor.protocol.topic_partition import TopicPartition
from tests.broker.coordinators.transactions.house import House, refused

A, B = TopicPartition("a", 0), TopicPartition("b", 3)


def begun(house: House) -> ProducerIdentity:
    """Return a producer whose write to A began a transaction."""
    producer = house.init()
    house.coordinator.add_partitions("tx", producer, [A], is_v2=True)
    return producer


@pytest.mark.parametrize("commit", [True, False])
def test_end_txn_v5_returns_the_next_epoch_and_writes_markers_with_it(house: House, commit: bool) -> None:
    producer = begun(house)
    following = house.coordinator.end_v2("tx", producer, commit=commit)
    assert following == (producer.producer_id, producer.epoch + 1)
    assert house.journal.markers == [(A, following.epoch, commit)]
    with refused(ErrorCode.PRODUCER_FENCED):
        house.coordinator.add_partitions("tx", producer, [A], is_v2=True)
    house.coordinator.add_partitions("tx", following, [A], is_v2=True)


@pytest.mark.parametrize("restarts", [False, True])
def test_a_repeated_end_txn_gets_the_same_answer(house: House, restarts: bool) -> None:
    producer = begun(house)
    following = house.coordinator.end_v2("tx", producer, commit=True)
    if restarts:
        house.restart()
    assert house.coordinator.end_v2("tx", producer, commit=True) == following
    with refused(ErrorCode.INVALID_TXN_STATE):
        house.coordinator.end_v2("tx", producer, commit=False)
    assert len(house.journal.markers) == 1


def test_once_the_next_transaction_has_begun_the_old_epoch_is_fenced(house: House) -> None:
    producer = begun(house)
    following = house.coordinator.end_v2("tx", producer, commit=True)
    house.coordinator.add_partitions("tx", following, [A], is_v2=True)
    with refused(ErrorCode.PRODUCER_FENCED):
        house.coordinator.end_v2("tx", producer, commit=True)


def test_a_producer_that_added_nothing_may_abort_but_not_commit(house: House) -> None:
    producer = house.init()
    with refused(ErrorCode.INVALID_TXN_STATE):
        house.coordinator.end_v2("tx", producer, commit=True)
    following = house.coordinator.end_v2("tx", producer, commit=False)
    assert following.epoch == producer.epoch + 1
    assert house.state is TransactionState.COMPLETE_ABORT
    assert house.coordinator.end_v2("tx", following, commit=False).epoch == producer.epoch + 2


@pytest.mark.parametrize("restarts", [False, True])
def test_an_end_txn_retry_is_concurrent_transactions_until_all_markers_are_written(
    house: House, restarts: bool
) -> None:
    producer = begun(house)
    house.journal.broken = {A}
    following = house.coordinator.end_v2("tx", producer, commit=True)
    with refused(ErrorCode.CONCURRENT_TRANSACTIONS):
        house.coordinator.end_v2("tx", producer, commit=True)
    with refused(ErrorCode.CONCURRENT_TRANSACTIONS):
        house.coordinator.end_v2("tx", following, commit=False)
    house.journal.broken = set()
    if restarts:
        house.restart()
    else:
        house.coordinator.resume()
    assert house.coordinator.end_v2("tx", producer, commit=True) == following
    assert house.journal.markers == [(A, following.epoch, True)]


@pytest.mark.slow
@pytest.mark.parametrize("restarts", [False, True])
def test_used_up_epochs_lead_to_a_new_producer_id_at_the_end_of_a_transaction(house: House, restarts: bool) -> None:
    producer = begun(house)
    while not producer.is_exhausted:
        producer = house.coordinator.end_v2("tx", producer, commit=False)
    house.coordinator.add_partitions("tx", producer, [A], is_v2=True)
    following = house.coordinator.end_v2("tx", producer, commit=True)
    assert following == (producer.producer_id + 1, 0)
    assert house.journal.markers[-1] == (A, LARGEST_EPOCH, True)
    if restarts:
        house.restart()
    assert house.coordinator.end_v2("tx", producer, commit=True) == following
    house.coordinator.add_partitions("tx", following, [A], is_v2=True)


def test_end_txn_of_a_timed_out_transaction_is_producer_fenced(house: House) -> None:
    producer = begun(house)
    house.clock.advance(60_001)
    house.coordinator.abort_timed_out()
    for commit in (True, False):
        with refused(ErrorCode.PRODUCER_FENCED):
            house.coordinator.end_v2("tx", producer, commit=commit)


def test_a_new_session_fences_the_one_before(house: House) -> None:
    producer = begun(house)
    following = house.coordinator.end_v2("tx", producer, commit=True)
    house.init()
    for fenced in (producer, following):
        with refused(ErrorCode.PRODUCER_FENCED):
            house.coordinator.end_v2("tx", fenced, commit=False)


def test_a_client_that_goes_back_to_v1_keeps_its_epoch(house: House) -> None:
    following = house.coordinator.end_v2("tx", begun(house), commit=True)
    house.coordinator.add_partitions("tx", following, [B])
    house.coordinator.end("tx", following, commit=True)
    assert house.journal.markers[-1] == (B, following.epoch, True)
    house.coordinator.add_partitions("tx", following, [B])


def test_fields_of_transactions_v2_are_read_back_from_their_record() -> None:
    transaction = Transaction(
        transactional_id="tx",
        producer_id=7,
        producer_epoch=LARGEST_EPOCH,
        previous_producer_id=6,
        timeout_ms=5,
        state=TransactionState.PREPARE_COMMIT,
        partitions=frozenset({A, B}),
        start_timestamp=11,
        last_update_timestamp=CoordinatorSettings().expiration_ms,
        is_v2=True,
        next_producer_id=8,
    )
    assert read_value("tx", value_bytes(transaction)) == transaction
