"""New partitions whose logs are created a few in each turn of the event loop.

The creation of a log takes half a millisecond to four, and one request creates up to 10,000 of them. A partition
without its log is answered with NOT_LEADER_OR_FOLLOWER, as in Kafka while a broker has not applied the metadata.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from uuid import UUID

import trio

from ...metadata.state import PartitionState, TopicState

MADE_AT_ONCE = 64
"""Logs that are created before the event loop serves other requests; an internal topic has 50."""
MADE_IN_A_TURN = 10
RETRY_S = 1.0
"""Time in seconds until the next attempt to create a log."""


class LaterLogs:
    """A queue of (topic id, partition), with the tasks that wait until a topic has left the queue."""

    def __init__(self) -> None:
        self._queue: deque[tuple[UUID, int]] = deque()
        self._counts: Counter[UUID] = Counter()
        self._made = 0
        """The number of logs created in this turn of the event loop."""
        self._is_running = False
        self._is_failing = False
        self._work = trio.Event()
        self._made_some = trio.lowlevel.ParkingLot()

    def rest_of(self, topic: TopicState, states: Sequence[PartitionState]) -> list[PartitionState]:
        """Queue the partitions that are too many for this turn, and return those whose logs must be created at once.

        These are all partitions as long as no task waits in `turn`.
        """
        if not self._is_running:
            return list(states)
        now = list(states[: max(0, MADE_AT_ONCE - self._made)])
        self._made += len(now)
        later = states[len(now) :]
        self._queue.extend((topic.topic_id, state.index) for state in later)
        if later:
            self._counts[topic.topic_id] += len(later)
        # The task in `turn` continues in the next turn of the event loop, which has a new limit.
        self._work.set()
        return now

    async def turn(self) -> None:
        """Wait for the next turn of the event loop in which there are logs to create."""
        self._is_running, self._made = True, 0
        if self._is_failing:
            self._is_failing = False
            await trio.sleep(RETRY_S)
        elif self._queue:
            await trio.lowlevel.checkpoint()
        else:
            self._work = trio.Event()
            await self._work.wait()
        self._made = 0

    def take(self) -> list[tuple[UUID, int]]:
        """Remove the partitions of one turn from the queue and return them."""
        taken = [self._queue.popleft() for _ in range(min(MADE_IN_A_TURN, len(self._queue)))]
        for topic_id, _ in taken:
            self._counts[topic_id] -= 1
            if not self._counts[topic_id]:
                del self._counts[topic_id]
        self._made_some.unpark_all()
        return taken

    def try_again(self, topic_id: UUID, index: int) -> None:
        """Queue a partition again whose log could not be created."""
        self._queue.append((topic_id, index))
        self._counts[topic_id] += 1
        self._is_failing = True
        self._work.set()

    async def wait_for(self, topic_id: UUID) -> None:
        """Wait until no partition of the topic is in the queue."""
        while self._counts[topic_id]:
            await self._made_some.park()
