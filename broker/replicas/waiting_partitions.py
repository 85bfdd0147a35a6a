"""The partitions with operations that wait for replicas, whose deadlines are checked while there are any."""

from __future__ import annotations

import trio

from .partition import Partition

TIMEOUT_CHECK_S = 0.2
"""Largest delay of the timeout error for acks=all."""


class WaitingPartitions:
    """A set of partitions with waiting operations: a broker with thousands of idle partitions checks none of them."""

    def __init__(self) -> None:
        self._partitions: set[Partition] = set()
        self._checking = trio.lowlevel.ParkingLot()

    def __len__(self) -> int:
        return len(self._partitions)

    def add(self, partition: Partition) -> None:
        """Check the partition's operations from now on, until none of them waits."""
        if not self._partitions:
            self._checking.unpark_all()
        self._partitions.add(partition)

    async def run(self) -> None:
        """Fail operations whose deadline has passed, until cancelled."""
        while True:
            if not self._partitions:
                await self._checking.park()
            await trio.sleep(TIMEOUT_CHECK_S)
            now = trio.current_time()
            for partition in list(self._partitions):
                partition.give_up_late(now)
                if not partition.has_waiting_operations:
                    self._partitions.discard(partition)
