"""Where a consumer begins: the first offset of each newly assigned partition, and a new one for those out of range."""

from __future__ import annotations

import logging

import trio

from ...protocol.errors import BrokerError, ErrorCode
from ..config import ConsumerConfig
from ..errors import ConnectionLostError, DeadlineExceededError
from ..wire.cluster import Cluster
from ..wire.group_offsets import fetch_committed
from ..wire.offset_lookup import EARLIEST, LATEST, list_offsets
from .fetcher import Fetcher
from .subscription import Subscription, TopicPartition

logger = logging.getLogger(__name__)


class PositionFinder:
    """Looks for what the group has committed, else for what `auto.offset.reset` says, whenever it is woken."""

    def __init__(self, cluster: Cluster, subscription: Subscription, fetcher: Fetcher, config: ConsumerConfig) -> None:
        self._cluster = cluster
        self._subscription = subscription
        self._fetcher = fetcher
        self._config = config
        self._wanted = trio.Event()

    def wake(self) -> None:
        """Have another look: partitions were assigned, or found to be out of range."""
        self._wanted.set()

    async def run(self) -> None:
        """Find positions until cancelled. Raises BrokerError for what will not change."""
        while True:
            self._wanted = trio.Event()
            try:
                await self._find_committed()
                await self._reset()
            except (ConnectionLostError, DeadlineExceededError) as failure:
                logger.info("positions not found yet: %s", failure)
                await trio.sleep(self._config.retry_backoff_ms / 1000)
                continue
            self._fetcher.wake()
            await self._wanted.wait()

    async def _find_committed(self) -> None:
        places = self._subscription.unpositioned()
        if self._config.group_id is None or not places:
            return
        timeout_ms = self._config.default_api_timeout_ms
        committed = await fetch_committed(
            self._cluster, self._config.group_id, places, self._config, timeout_ms=timeout_ms
        )
        for place, known in committed.items():
            self._settle(place, known.offset)

    async def _reset(self) -> None:
        """Give a position to those that have none yet or one that is out of range."""
        wanting = [*self._subscription.unpositioned(), *self._fetcher.resets]
        if not wanting:
            return
        if self._config.auto_offset_reset == "none":
            names = ", ".join(f"{topic}-{partition}" for topic, partition in wanting)
            raise BrokerError(ErrorCode.OFFSET_OUT_OF_RANGE, f"no valid position and no auto.offset.reset: {names}")
        target = EARLIEST if self._config.auto_offset_reset == "earliest" else LATEST
        found = await list_offsets(
            self._cluster,
            dict.fromkeys(wanting, target),
            self._config,
            timeout_ms=self._config.default_api_timeout_ms,
            read_committed=self._config.is_read_committed,
        )
        for place, entry in found.items():
            if place in self._fetcher.resets and place in self._subscription.positions:
                self._subscription.positions[place].offset = None
            self._fetcher.resets.discard(place)
            self._settle(place, entry.offset if entry is not None else 0)

    def _settle(self, place: TopicPartition, offset: int) -> None:
        """Give a partition its first offset, unless the user has sought one meanwhile, or it is gone."""
        position = self._subscription.positions.get(place)
        if position is not None and position.offset is None:
            position.offset = offset
