"""The partitions of an internal topic that a coordinator looks after: whose they are, and whether they are read yet.

A broker that is a cluster of its own looks after all of them. Else a partition is a coordinator's from its election on,
when all that it remembers of it is forgotten and read anew, until another broker leads it.
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
    """One partition being read from its start to its end."""

    def replay(self, entries: Iterable[Replayed]) -> None:
        """Take in some more of it."""

    def resume(self) -> None:
        """That was all: go on where the coordinator before has stopped."""


class LedPartitions:
    """One coordinator's partitions. `run` must be running for any to be read."""

    def __init__(
        self,
        log: CoordinatorLog,
        *,
        is_alone: bool,
        begin_reading: Callable[[int], Reading],
        forget: Callable[[int], None],
    ) -> None:
        """Read partitions by `begin_reading`; call `forget` with a partition whose state is to be dropped."""
        self._log = log
        self._is_alone = is_alone
        self._led: set[int] = set()
        self._unread: dict[int, object] = {}
        """Those that requests must wait for; another object for each election."""
        self._news = trio.Event()
        self._begin_reading = begin_reading
        self._forget = forget

    @property
    def is_reading(self) -> bool:
        """Whether any partition is not read yet."""
        return bool(self._unread)

    def elected(self, index: int) -> None:
        """This broker leads the partition, maybe once more: what is remembered of it may not be what was kept."""
        self._forget(index)
        self._led.add(index)
        self._unread[index] = object()
        self._news.set()

    def resigned(self, index: int) -> None:
        """Another broker leads it, or none."""
        self._led.discard(index)
        self._unread.pop(index, None)
        self._forget(index)

    def check(self, key: str) -> None:
        """Raise BrokerError NOT_COORDINATOR or COORDINATOR_LOAD_IN_PROGRESS where ``key`` cannot be served here now."""
        if self._is_alone and not self._unread:
            return
        index = self._log.existing_partition_of(key)
        if not self._is_alone and index not in self._led:
            raise BrokerError(ErrorCode.NOT_COORDINATOR)
        if index in self._unread:
            raise BrokerError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    async def run(self) -> None:
        """Read what is to be read, until cancelled."""
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
            logger.error("%s-%d is damaged; what follows is not loaded: %s", self._log.topic, index, error)
        del self._unread[index]
        reading.resume()


class Elections:
    """Tells coordinators of the elections that concern them (a `LeadershipListener`)."""

    def __init__(self, coordinators: Mapping[str, LedPartitions]) -> None:
        """Coordinators by the topic in which they remember."""
        self._coordinators = coordinators

    def elected(self, partition: Partition) -> None:
        """This broker leads the partition."""
        coordinator = self._coordinators.get(partition.topic)
        if coordinator is not None:
            coordinator.elected(partition.index)

    def resigned(self, partition: Partition) -> None:
        """It leads it no more."""
        coordinator = self._coordinators.get(partition.topic)
        if coordinator is not None:
            coordinator.resigned(partition.index)
