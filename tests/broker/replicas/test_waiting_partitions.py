"""Operations that wait for replicas fail at their deadlines, and cost nothing while there are none."""

from __future__ import annotations

import trio

from gregor.broker.replicas.partition_registry import PartitionRegistry
from gregor.protocol.errors import ErrorCode
from tests.broker.replicas.replication.test_leadership import LEADER, SECOND, Led


async def test_operations_fail_at_their_deadlines(autojump_clock: trio.testing.MockClock) -> None:
    led = Led([LEADER, SECOND])
    registry = PartitionRegistry([led.partition])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(registry.waiting.run)
        for _ in range(2):
            # The second round begins after the check of deadlines has ended.
            late, timely = (led.partition.replicated(led.append(), timeout_s) for timeout_s in (1, 60))
            await trio.sleep(2)
            assert (late.result(), timely.is_complete) == (ErrorCode.REQUEST_TIMED_OUT, False)
            led.fetched(SECOND, led.log.log_end_offset)
            assert timely.result() is ErrorCode.NONE
            led.log.advance_log_start(1)
            deleted = led.partition.deleted_everywhere(1, 1)
            await trio.sleep(2)
            assert deleted.result() is ErrorCode.REQUEST_TIMED_OUT
            assert len(registry.waiting) == 0
        nursery.cancel_scope.cancel()


async def test_deadlines_are_not_checked_while_no_operation_waits(autojump_clock: trio.testing.MockClock) -> None:
    led = Led([LEADER, SECOND])
    registry = PartitionRegistry([led.partition])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(registry.waiting.run)
        await trio.testing.wait_all_tasks_blocked()
        assert trio.lowlevel.current_statistics().seconds_to_next_deadline == float("inf")
        outcome = led.partition.replicated(led.append(), 1)
        registry.remove(led.partition.topic, led.partition.index)
        assert outcome.result() is ErrorCode.NOT_LEADER_OR_FOLLOWER
        await trio.sleep(2)
        assert len(registry.waiting) == 0
        nursery.cancel_scope.cancel()
