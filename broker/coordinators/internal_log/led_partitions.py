"""The partitions of an internal topic that a coordinator leads, and whether they are loaded.

A lone broker leads all partitions. In a cluster, a coordinator is responsible for a partition from its election, when
it drops its state of the partition and loads it again, until another broker leads the partition.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

import trio

from ....protocol.errors import BrokerError, ErrorCode
from ...replicas.partition import Partition
from .coordinator_log import CoordinatorLog, Replayed

logger = logging.getLogger(__name__)


class Reading(Protocol):
    """A replay of one partition from its start to its end."""

    def replay(self, entries: Iterable[Replayed]) -> None:
        """Apply the next records."""

    def resume(self) -> None:
        """Finish the replay, and continue the previous coordinator's work."""


class LedPartitions:
    """A set of one coordinator's partitions; none is loaded unless `run` is running."""

    def __init__(
        self,
        log: CoordinatorLog,
        *,
        is_alone: bool,
        begin_reading: Callable[[int], Reading],
        forget: Callable[[int], None],
    ) -> None:
        """Load partitions with `begin_reading`; call `forget` with each partition whose state must be dropped."""
        self._log = log
        self._is_alone = is_alone
        self._led: set[int] = set()
        self._unread: dict[int, object] = {}
        """Partitions that are not loaded yet; each election has a new object."""
        self._news = trio.Event()
        self._begin_reading = begin_reading
        self._forget = forget

    @property
    def is_reading(self) -> bool:
        """Whether any partition is not loaded yet."""
        return bool(self._unread)

    def elected(self, index: int) -> None:
        """Drop the state of a partition and queue it for loading: this broker was elected, perhaps again."""
        self._forget(index)
        self._led.add(index)
        self._unread[index] = object()
        self._news.set()

    def resigned(self, index: int) -> None:
        """Drop a partition that this broker does not lead any more."""
        self._led.discard(index)
        self._unread.pop(index, None)
        self._forget(index)

    def check(self, key: str) -> None:
        """Raise BrokerError NOT_COORDINATOR or COORDINATOR_LOAD_IN_PROGRESS if ``key`` cannot be served here now."""
        if self._is_alone and not self._unread:
            return
        index = self._log.existing_partition_of(key)
        if not self._is_alone and index not in self._led:
            raise BrokerError(ErrorCode.NOT_COORDINATOR)
        if index in self._unread:
            raise BrokerError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    def serves(self, key: str) -> bool:
        """Return whether ``key`` is coordinated here and completely loaded."""
        try:
            self.check(key)
        except BrokerError:
            return False
        return True

    def is_unread(self, index: int) -> bool:
        """Return whether a partition is led here and not loaded completely: its present state may be outdated."""
        return index in self._unread

    async def run(self) -> None:
        """Load queued partitions, until cancelled."""
        while True:
            while not self._unread:
                self._news = trio.Event()
                await self._news.wait()
            await self._read(next(iter(self._unread)))

    async def _read(self, index: int) -> None:
        election = self._unread[index]
        reading = self._begin_reading(index)
        try:
            for entries in self._log.replay(index):
                reading.replay(entries)
                await trio.lowlevel.checkpoint()
                if self._unread.get(index) is not election:
                    return
        except BrokerError as error:
            logger.error("%s-%d is corrupt; the records after that are not loaded: %s", self._log.topic, index, error)
        del self._unread[index]
        reading.resume()


class LedTopic(Protocol):
    """One internal topic, of which a coordinator leads partitions."""

    def elected(self, index: int) -> None:
        """Load a partition: this broker leads the partition now."""

    def resigned(self, index: int) -> None:
        """Drop a partition that this broker does not lead any more."""


class Elections:
    """A listener that passes elections on to the coordinators (a `LeadershipListener`)."""

    def __init__(self, coordinators: Mapping[str, LedTopic]) -> None:
        """Notify ``coordinators``, given by the name of their internal topic."""
        self._coordinators = coordinators

    def elected(self, partition: Partition) -> None:
        """Notify the coordinator that this broker leads the partition."""
        coordinator = self._coordinators.get(partition.topic)
        if coordinator is not None:
            coordinator.elected(partition.index)

    def resigned(self, partition: Partition) -> None:
        """Notify the coordinator that this broker does not lead the partition any more."""
        coordinator = self._coordinators.get(partition.topic)
        if coordinator is not None:
            coordinator.resigned(partition.index)
