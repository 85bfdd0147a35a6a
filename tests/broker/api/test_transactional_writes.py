"""Produce within transactions: partitions that are added implicitly (KIP-890, part 2) or explicitly, early writes."""

from __future__ import annotations

import pytest

from gregor.broker.api.handlers.producers import handle_init_producer_id
from gregor.broker.api.handlers.transactions import handle_end_txn
from gregor.broker.coordinators.transactions.markers import PartitionMarkers
from gregor.broker.coordinators.transactions.transaction import ProducerIdentity
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from gregor.protocol.messages.init_producer_id import InitProducerIdRequest
from tests.asking import Asking
from tests.broker.api.log_requests import batch, produce, produced

TOPIC, TRANSACTION = "t", "tx"
BEFORE_KIP_890, PART_1, PART_2 = 10, 11, 12
"""Versions of Produce."""


@pytest.fixture
async def producer(asking: Asking) -> ProducerIdentity:
    """Return a transactional producer and a topic for it."""
    asking.broker.services.metadata.create_topic(TOPIC, partitions=2)
    request = InitProducerIdRequest(transactional_id=TRANSACTION, transaction_timeout_ms=60_000)
    answer = await asking.ask(handle_init_producer_id, request)
    return ProducerIdentity(answer.producer_id, answer.producer_epoch)


async def written(asking: Asking, producer: ProducerIdentity, version: int, *, sequence: int = 0) -> ErrorCode:
    """Return the outcome of one transactional record."""
    data = batch(
        b"x",
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        base_sequence=sequence,
        is_transactional=True,
    )
    answer = await produced(asking, produce(data, TOPIC, transactional_id=TRANSACTION), version)
    return ErrorCode(answer.error_code)


async def ended(asking: Asking, producer: ProducerIdentity) -> ProducerIdentity:
    """Return the producer id and epoch for the next transaction after a commit."""
    request = EndTxnRequest(
        transactional_id=TRANSACTION,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        committed=True,
    )
    answer = await asking.ask(handle_end_txn, request, 5)
    assert isinstance(answer, EndTxnResponse)
    assert answer.error_code == ErrorCode.NONE
    return ProducerIdentity(answer.producer_id, answer.producer_epoch)


def end_offset(asking: Asking) -> int:
    return asking.broker.services.partitions.get(TOPIC, 0).log.log_end_offset


@pytest.mark.parametrize(
    ("version", "outcome"),
    [
        (BEFORE_KIP_890, ErrorCode.INVALID_TXN_STATE),
        (PART_1, ErrorCode.TRANSACTION_ABORTABLE),
        (PART_2, ErrorCode.NONE),
    ],
)
async def test_only_produce_v12_writes_to_partitions_that_were_not_added_to_the_transaction(
    asking: Asking, producer: ProducerIdentity, version: int, outcome: ErrorCode
) -> None:
    assert await written(asking, producer, version) == outcome
    assert end_offset(asking) == (0 if outcome else 1)


async def test_the_epoch_of_the_last_transaction_is_too_old(asking: Asking, producer: ProducerIdentity) -> None:
    assert await written(asking, producer, PART_2) == ErrorCode.NONE
    following = await ended(asking, producer)
    assert await written(asking, producer, PART_2, sequence=1) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert await written(asking, following, PART_2) == ErrorCode.NONE


async def test_the_next_transaction_waits_for_the_marker_of_the_last(
    asking: Asking, producer: ProducerIdentity, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first record would belong to the last transaction, as that transaction's marker ends all open records."""
    assert await written(asking, producer, PART_2) == ErrorCode.NONE
    with monkeypatch.context() as patched:
        patched.setattr(PartitionMarkers, "write", lambda *_: False)
        following = await ended(asking, producer)
        assert await written(asking, following, PART_2) == ErrorCode.CONCURRENT_TRANSACTIONS
    assert end_offset(asking) == 1
    asking.broker.services.transactions.resume()
    assert await written(asking, following, PART_2) == ErrorCode.NONE
    assert end_offset(asking) == 3
