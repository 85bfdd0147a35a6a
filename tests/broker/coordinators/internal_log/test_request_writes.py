"""Answers wait for the followers of what their requests have written or tell of."""

from __future__ import annotations

from typing import Any, cast

import pytest
import trio
from trio.testing import MockClock

from gregor.broker.coordinators.internal_log.request_writes import NotReplicatedError, note_written, when_replicated
from gregor.broker.replicas.partition import Partition
from gregor.protocol.errors import BrokerError, ErrorCode


class Led:
    """A partition with followers that have everything once told so."""

    role = "leader"
    leader_epoch = 0

    def __init__(self) -> None:
        self.copied = trio.Event()

    async def replicated(self, offset: int, timeout_s: float) -> None:
        with trio.move_on_after(timeout_s):
            await self.copied.wait()
            return
        raise BrokerError(ErrorCode.REQUEST_TIMED_OUT)


async def serve(partition: Led, refusal: ErrorCode | None = None) -> str:
    note_written(cast(Partition, partition), 0)
    if refusal is not None:
        raise BrokerError(refusal)
    return "done"


@pytest.mark.parametrize("refusal", [None, ErrorCode.PRODUCER_FENCED])
async def test_an_answer_waits_a_refusal_too(autojump_clock: MockClock, refusal: ErrorCode | None) -> None:
    partition, outcomes = Led(), list[Any]()

    async def ask() -> None:
        try:
            outcomes.append(await when_replicated(serve(partition, refusal), 5))
        except BrokerError as error:
            outcomes.append(error.code)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await trio.testing.wait_all_tasks_blocked()
        assert outcomes == []
        partition.copied.set()
    assert outcomes == [refusal or "done"]


@pytest.mark.parametrize("refusal", [None, ErrorCode.PRODUCER_FENCED])
async def test_what_is_not_replicated_in_time_is_not_told(autojump_clock: MockClock, refusal: ErrorCode | None) -> None:
    with pytest.raises(NotReplicatedError) as told:
        await when_replicated(serve(Led(), refusal), 5)
    assert told.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
