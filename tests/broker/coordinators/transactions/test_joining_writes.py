"""A write that joins a transaction by itself: nothing is appended before the coordinator's followers know of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
from trio.testing import MockClock

from gregor.broker.api.services import Services
from gregor.broker.api.transaction_verification import TransactionSupport, join_transaction
from gregor.broker.coordinators.internal_log.request_writes import note_written
from gregor.broker.coordinators.transactions.transaction import ProducerIdentity
from gregor.broker.replicas.partition import Partition
from gregor.protocol.errors import BrokerError, ErrorCode

PRODUCER = ProducerIdentity(7, 0)


class Coordinator:
    """One that writes into a log with followers, which have it all once told so; and the broker around it."""

    role = "leader"
    leader_epoch = 0

    def __init__(self) -> None:
        self.copied = trio.Event()
        self.transactions = self
        self.node = SimpleNamespace(remote_transactions=None)
        self.config = SimpleNamespace(offsets_commit_timeout_ms=5_000)

    def add_partitions(self, *_: object, is_v2: bool) -> None:
        note_written(cast(Partition, self), 0)

    async def replicated(self, offset: int, timeout_s: float) -> None:
        with trio.move_on_after(timeout_s):
            await self.copied.wait()
            return
        raise BrokerError(ErrorCode.REQUEST_TIMED_OUT)


async def join(coordinator: Coordinator) -> None:
    log = SimpleNamespace(producers=SimpleNamespace(producers={}))
    partition: Any = SimpleNamespace(topic="t", index=0, log=log)
    await join_transaction(cast(Services, coordinator), partition, "tx", PRODUCER, TransactionSupport.V2)


async def test_a_write_waits_until_the_coordinators_followers_know_its_partition(autojump_clock: MockClock) -> None:
    coordinator = Coordinator()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(join, coordinator)
        await trio.testing.wait_all_tasks_blocked()
        assert nursery.child_tasks
        coordinator.copied.set()


async def test_a_write_is_refused_whose_transaction_may_not_last(autojump_clock: MockClock) -> None:
    with pytest.raises(BrokerError) as told:
        await join(Coordinator())
    assert told.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
