"""The transactional state of a producer, with the coordinator's answers given by the test."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from gregor.client.config import ProducerConfig
from gregor.client.errors import AbandonedError, ClientError
from gregor.client.producer.transactions import TransactionManager, TransactionState
from gregor.protocol.errors import BrokerError, ErrorCode


def open_transaction(monkeypatch: pytest.MonkeyPatch) -> tuple[TransactionManager, list[str], trio.Event]:
    """Return a producer's open transaction, the requests that were answered, and the event that answers AddPartitions.

    No request to the coordinator leaves the process.
    """
    manager = TransactionManager(SimpleNamespace(), ProducerConfig.from_properties({"transactional_id": "id"}))  # type: ignore[arg-type]
    answered: list[str] = []
    is_added = trio.Event()

    async def ask(request: object, answer: object, what: str, codes: Callable[[Any], list[int]], **_: object) -> None:
        if what == "AddPartitionsToTxn":
            await is_added.wait()
        answered.append(what)

    monkeypatch.setattr(manager, "_ask", ask)
    manager.state = TransactionState.READY
    manager.begin()
    return manager, answered, is_added


async def test_a_transaction_ends_after_the_answer_to_a_request_that_adds_partitions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise the coordinator opens a transaction that the producer takes for the next one, and sends records to the
    partition without adding it.
    """
    manager, answered, is_added = open_transaction(monkeypatch)
    manager.note_partition("topic", 0)

    async def abort() -> None:
        await manager.end(commit=False)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(manager.add_partitions)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(abort)
        await trio.testing.wait_all_tasks_blocked()
        assert answered == []
        with pytest.raises(ClientError):
            manager.check_open()
        is_added.set()
    assert answered == ["AddPartitionsToTxn", "EndTxn"]
    manager.begin()
    manager.note_partition("topic", 0)
    assert manager.has_new_partitions(), "the next transaction adds the partition again"
    assert not manager.is_added("topic", 0)


async def test_partitions_are_not_added_after_the_end_of_their_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    manager, answered, is_added = open_transaction(monkeypatch)
    manager.note_partition("topic", 0)
    is_added.set()
    await manager.end(commit=False)
    await manager.add_partitions()
    assert answered == []


def test_the_error_that_fenced_a_producer_is_not_replaced_by_a_later_one(monkeypatch: pytest.MonkeyPatch) -> None:
    manager, _, _ = open_transaction(monkeypatch)
    manager.fail(BrokerError(ErrorCode.PRODUCER_FENCED, "another producer"))
    manager.fail(AbandonedError("the transaction was aborted"))
    with pytest.raises(BrokerError) as raised:
        manager.begin()
    assert raised.value.code is ErrorCode.PRODUCER_FENCED


def test_an_error_that_is_raised_many_times_keeps_no_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    manager, _, _ = open_transaction(monkeypatch)
    manager.fail(BrokerError(ErrorCode.NOT_ENOUGH_REPLICAS, "topic-0"))
    for _ in range(10):
        with pytest.raises(BrokerError):
            manager.check_open()
    assert manager.error is not None
    assert manager.error.__traceback__ is None
