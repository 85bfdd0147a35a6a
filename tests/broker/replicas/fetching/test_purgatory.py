"""Parked fetches, by the letters of `gregor.broker.replicas.fetching.purgatory`."""

from __future__ import annotations

from typing import cast

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from gregor.broker.replicas.fetching.purgatory import Purgatory, Wake
from gregor.broker.replicas.partition import Partition, PartitionWaiter
from gregor.broker.server.client_connection import ClientGoneError


class WatchedPartition:
    """The half of a partition that the purgatory sees."""

    def __init__(self) -> None:
        self.waiters: list[PartitionWaiter] = []

    def watch(self, waiter: PartitionWaiter, *, is_follower: bool = False) -> None:
        self.waiters.append(waiter)

    def unwatch(self, waiter: PartitionWaiter) -> None:
        self.waiters.remove(waiter)


class Parking:
    """One fetch for 100 bytes or 30 seconds, parked in a task of its own."""

    def __init__(self) -> None:
        self.purgatory = Purgatory()
        self.partitions = [WatchedPartition(), WatchedPartition()]
        self.hangup = trio.Event()
        self.outcome: Wake | None = None
        self.is_gone = False

    async def run(self) -> None:
        try:
            self.outcome = await self.purgatory.park(
                cast(list[Partition], self.partitions),
                missing_bytes=100,
                deadline=trio.current_time() + 30,
                hangup=self.hangup,
            )
        except ClientGoneError:
            self.is_gone = True

    @property
    def is_over(self) -> bool:
        return self.outcome is not None or self.is_gone

    def assert_left_nothing(self) -> None:
        assert len(self.purgatory) == 0
        assert not any(partition.waiters for partition in self.partitions)


@pytest.fixture
async def parking(nursery: trio.Nursery, autojump_clock: MockClock) -> Parking:
    autojump_clock.autojump_threshold = float("inf")
    parking = Parking()
    nursery.start_soon(parking.run)
    await wait_all_tasks_blocked()
    assert len(parking.purgatory) == 1
    return parking


async def test_case_a_enough_bytes_over_all_partitions(parking: Parking) -> None:
    parking.partitions[0].waiters[0].appended(60)
    await wait_all_tasks_blocked()
    assert not parking.is_over
    parking.partitions[1].waiters[0].appended(40)
    await wait_all_tasks_blocked()
    assert parking.outcome is Wake.ENOUGH_BYTES
    parking.assert_left_nothing()


async def test_case_b_a_partition_changed(parking: Parking) -> None:
    parking.partitions[1].waiters[0].changed()
    await wait_all_tasks_blocked()
    assert parking.outcome is Wake.PARTITION_CHANGED
    parking.assert_left_nothing()


async def test_case_c_deadline(parking: Parking, autojump_clock: MockClock) -> None:
    autojump_clock.jump(29.9)
    await wait_all_tasks_blocked()
    assert not parking.is_over
    autojump_clock.jump(0.2)
    await wait_all_tasks_blocked()
    assert parking.outcome is Wake.DEADLINE
    parking.assert_left_nothing()


async def test_case_d_hangup(parking: Parking) -> None:
    parking.hangup.set()
    await wait_all_tasks_blocked()
    assert parking.is_gone
    parking.assert_left_nothing()


async def test_case_e_the_broker_stops_and_parks_no_more(parking: Parking) -> None:
    parking.purgatory.stop()
    await wait_all_tasks_blocked()
    assert parking.outcome is Wake.STOPPING
    parking.assert_left_nothing()
    await parking.run()
    assert parking.outcome is Wake.STOPPING
