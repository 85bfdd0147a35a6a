"""Parked fetches: requests that wait, up to ``max_wait_ms``, for ``min_bytes`` to come together.

Why a parked fetch answers now (in the spirit of Kafka's DelayedFetch):

- Case A: as many bytes were appended to its partitions as were missing.
- Case B: one of its partitions changed in another way: it was deleted or truncated, its leader changed, its last
  stable offset moved, or its high watermark where that is not simply the log's end.
- Case C: its deadline has come; the answer holds what there is.
- Case D: its client hung up; there is no answer.
- Case E: the broker stops; the answer holds what there is.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

import trio

from ...server.client_connection import ClientGoneError, Hangup
from ..partition import Partition
from .late_fetches import LateFetches


class Wake(Enum):
    """The case in which a parked fetch went on; a hang-up raises ClientGoneError instead."""

    ENOUGH_BYTES = "A"
    PARTITION_CHANGED = "B"
    DEADLINE = "C"
    STOPPING = "E"


class ParkedFetch:
    """One waiting request. It waits for its client's hang-up in a cancel scope, through which all else wakes it."""

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
        """The broker stops."""
        self._go_on(Wake.STOPPING)

    async def wait(self, hangup: Hangup) -> Wake:
        """Wait for the first of the cases. Raises ClientGoneError in case D."""
        with self._scope:
            await hangup.wait()
            raise ClientGoneError("hung up while its fetch was parked")
        return self.wake

    def _go_on(self, wake: Wake) -> None:
        if not self._scope.cancel_called:
            self.wake = wake
            self._scope.cancel()


class Purgatory:
    """All parked fetches of a broker."""

    def __init__(self) -> None:
        self.late = LateFetches()
        """Those that wait without a task."""
        self._parked: set[ParkedFetch] = set()
        self._stopping = False

    def __len__(self) -> int:
        return len(self._parked) + len(self.late)

    @property
    def is_stopping(self) -> bool:
        """Whether no more fetches are to be parked."""
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
        """Wait until ``missing_bytes`` more are in ``partitions``, or another case comes first.

        ``deadline`` is in trio's clock. A follower waits for what was appended, others for what is replicated. Raises
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
        """Let all parked fetches answer, and park no more."""
        self._stopping = True
        for parked in list(self._parked):
            parked.stop()
        self.late.stop()
