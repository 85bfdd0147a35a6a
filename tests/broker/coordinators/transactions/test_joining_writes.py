"""A write that joins a transaction by itself: appended once the coordinator's followers have its record."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
from trio.testing import MockClock

from gregor.broker.api.services import Services
from gregor.broker.api.transaction_verification import TransactionSupport, join_transaction
from gregor.broker.coordinators.transactions.transaction import ProducerIdentity
from gregor.broker.server.pending import Pending
from gregor.protocol.errors import BrokerError, ErrorCode
from gregor.protocol.internal_topics import TRANSACTION_STATE

PRODUCER = ProducerIdentity(7, 0)


class Coordinator:
    """A coordinator that writes to a log whose followers catch up on demand, and its broker."""

    is_leader = True

    def __init__(self) -> None:
        self.log = SimpleNamespace(log_end_offset=0)
        self.copied: Pending[ErrorCode] = Pending()
        self.transactions = self
        self.node = SimpleNamespace(remote_transactions=None)
        self.config = SimpleNamespace(offsets_commit_timeout_ms=5_000)
        self.metadata = SimpleNamespace(topics={TRANSACTION_STATE: SimpleNamespace(partitions=[self])})
        self.partitions = SimpleNamespace(find=lambda topic, index: self)

    def add_partitions(self, *_: object, is_v2: bool) -> None:
        self.log.log_end_offset += 1

    def is_replicated(self, offset: int) -> bool:
        return False

    def replicated(self, offset: int, timeout_s: float) -> Pending[ErrorCode]:
        assert (offset, timeout_s) == (0, 5)
        return self.copied


async def join(coordinator: Coordinator) -> None:
    log = SimpleNamespace(producers=SimpleNamespace(producers={}))
    partition: Any = SimpleNamespace(topic="t", index=0, log=log)
    await join_transaction(cast(Services, coordinator), partition, "tx", PRODUCER, TransactionSupport.V2)


async def test_a_transactional_write_waits_until_its_added_partition_is_replicated(autojump_clock: MockClock) -> None:
    coordinator = Coordinator()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(join, coordinator)
        await trio.testing.wait_all_tasks_blocked()
        assert nursery.child_tasks
        coordinator.copied.complete(ErrorCode.NONE)


async def test_a_write_is_refused_if_its_transaction_state_is_not_replicated(autojump_clock: MockClock) -> None:
    coordinator = Coordinator()
    coordinator.copied.complete(ErrorCode.REQUEST_TIMED_OUT)
    with pytest.raises(BrokerError) as told:
        await join(coordinator)
    assert told.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
