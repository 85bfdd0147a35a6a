"""Delayed fetches: requests that wait, up to ``max_wait_ms``, until ``min_bytes`` are available.

The cases in which a delayed fetch is answered (as in Kafka's DelayedFetch):

- Case A: as many bytes were appended to its partitions as were missing.
- Case B: one of its partitions changed in another way: it was deleted or truncated, its leader changed, its last
  stable offset moved, or its high watermark if that is not simply the log end offset.
- Case C: its deadline has passed; the answer has the available records.
- Case D: its client disconnected; there is no answer.
- Case E: the broker stops; the answer has the available records.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

import trio

from ...server.client_connection import ClientGoneError, Hangup
from ..partition import Partition
from .late_fetches import LateFetches


class Wake(Enum):
    """A case that completes a delayed fetch; a disconnect raises ClientGoneError instead."""

    ENOUGH_BYTES = "A"
    PARTITION_CHANGED = "B"
    DEADLINE = "C"
    STOPPING = "E"


class ParkedFetch:
    """A delayed fetch with a task, which waits for a disconnect in a cancel scope that all other cases cancel."""

    __slots__ = ("_missing_bytes", "_scope", "wake")

    def __init__(self, missing_bytes: int, deadline: float) -> None:
        self._missing_bytes = missing_bytes
        self._scope = trio.CancelScope(deadline=deadline)
        self.wake = Wake.DEADLINE

    def appended(self, size_bytes: int) -> None:
        self._missing_bytes -= size_bytes
        if self._missing_bytes <= 0:
            self._go_on(Wake.ENOUGH_BYTES)

    def changed(self) -> None:
        self._go_on(Wake.PARTITION_CHANGED)

    def stop(self) -> None:
        """Complete the fetch because the broker stops."""
        self._go_on(Wake.STOPPING)

    async def wait(self, hangup: Hangup) -> Wake:
        """Wait for the first of the cases and return it. Raises ClientGoneError in case D."""
        with self._scope:
            await hangup.wait()
            raise ClientGoneError("disconnected while its fetch was delayed")
        return self.wake

    def _go_on(self, wake: Wake) -> None:
        if not self._scope.cancel_called:
            self.wake = wake
            self._scope.cancel()


class Purgatory:
    """A registry of all delayed fetches of a broker."""

    def __init__(self) -> None:
        self.late = LateFetches()
        """Delayed fetches without a task."""
        self._parked: set[ParkedFetch] = set()
        self._stopping = False

    def __len__(self) -> int:
        return len(self._parked) + len(self.late)

    @property
    def is_stopping(self) -> bool:
        """Whether new fetches must not be delayed."""
        return self._stopping

    async def park(
        self,
        partitions: Iterable[Partition],
        *,
        missing_bytes: int,
        deadline: float,
        hangup: Hangup,
        is_follower: bool = False,
    ) -> Wake:
        """Wait until ``missing_bytes`` more are available in ``partitions``, or another case occurs.

        ``deadline`` is in trio's clock. A follower waits for appended records, a consumer for replicated ones. Raises
        ClientGoneError if the client hangs up.
        """
        if self._stopping:
            return Wake.STOPPING
        parked = ParkedFetch(missing_bytes, deadline)
        watched = list(partitions)
        for partition in watched:
            partition.watch(parked, is_follower=is_follower)
        self._parked.add(parked)
        try:
            return await parked.wait(hangup)
        finally:
            self._parked.discard(parked)
            for partition in watched:
                partition.unwatch(parked)

    def stop(self) -> None:
        """Answer all delayed fetches, and delay no more."""
        self._stopping = True
        for parked in list(self._parked):
            parked.stop()
        self.late.stop()
