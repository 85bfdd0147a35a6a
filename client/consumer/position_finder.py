"""The first offset of each newly assigned partition, and a new offset for a position that is out of range."""

from __future__ import annotations

import logging

import trio

from ...protocol.errors import BrokerError, ErrorCode
from ...protocol.topic_partition import AnyTopicPartition
from ..config import ConsumerConfig
from ..errors import ClientError, is_retriable
from ..wire.cluster import Cluster
from ..wire.group_offsets import CommittedOffset, fetch_committed
from ..wire.offset_lookup import EARLIEST, LATEST, OffsetAndTimestamp, list_offsets
from .fetcher import Fetcher
from .poll_boundary import PollBoundary
from .subscription import PartitionPosition, Subscription

logger = logging.getLogger(__name__)

Positions = dict[AnyTopicPartition, PartitionPosition]


class PositionFinder:
    """The task that finds positions, when woken: the committed offset, else the one by `auto.offset.reset`."""

    def __init__(
        self,
        cluster: Cluster,
        subscription: Subscription,
        fetcher: Fetcher,
        config: ConsumerConfig,
        boundary: PollBoundary,
    ) -> None:
        self._cluster = cluster
        self._boundary = boundary
        self._subscription = subscription
        self._fetcher = fetcher
        self._config = config
        self._wanted = trio.Event()

    def wake(self) -> None:
        """Check for missing positions again: partitions were assigned, or positions found to be out of range."""
        self._wanted.set()

    async def run(self) -> None:
        """Find positions until cancelled. The user's next poll raises permanent failures."""
        while True:
            self._wanted = trio.Event()
            try:
                await self._reset(await self._find_committed())
            except (BrokerError, ClientError) as failure:
                if isinstance(failure, BrokerError) and not is_retriable(failure):
                    await self._boundary.tell(failure)
                else:
                    logger.warning("positions not found yet: %s", failure)
                    await trio.sleep(self._config.retry_backoff_ms / 1000)
                continue
            self._fetcher.wake()
            await self._wanted.wait()

    async def _find_committed(self) -> Positions:
        """Set the positions of partitions with committed offsets; return the partitions that need another position.

        A partition that is assigned while this call waits for an answer is not returned: the next call handles it.
        """
        positions = self._subscription.positions
        wanted = {place: positions[place] for place in self._subscription.unpositioned()}
        if wanted and self._config.group_id is not None:
            timeout_ms = self._config.default_api_timeout_ms
            committed = await fetch_committed(
                self._cluster, self._config.group_id, wanted, self._config, timeout_ms=timeout_ms
            )
            for place, position in list(wanted.items()):
                offset = _place_to_go_on(committed.get(place), position)
                if offset is not None:
                    self._settle(place, wanted.pop(place), offset)
            # Now: the other partitions may wait long, or for ever, for a position.
            self._fetcher.wake()
        for place in self._fetcher.resets & positions.keys():
            wanted[place] = positions[place]
        return wanted

    async def _reset(self, wanted: Positions) -> None:
        """Set these positions by `auto.offset.reset`: they are missing, or out of range."""
        if not wanted:
            return
        if self._config.auto_offset_reset == "none":
            names = ", ".join(f"{topic}-{partition}" for topic, partition in wanted)
            raise BrokerError(ErrorCode.OFFSET_OUT_OF_RANGE, f"no valid position and no auto.offset.reset: {names}")
        target = EARLIEST if self._config.auto_offset_reset == "earliest" else LATEST

        def settle(place: AnyTopicPartition, entry: OffsetAndTimestamp | None) -> None:
            if place in self._fetcher.resets and self._subscription.positions.get(place) is wanted[place]:
                wanted[place].offset = None
                self._fetcher.resets.discard(place)
            self._settle(place, wanted[place], entry.offset if entry is not None else 0)
            self._fetcher.wake()

        await list_offsets(
            self._cluster,
            dict.fromkeys(wanted, target),
            self._config,
            timeout_ms=self._config.default_api_timeout_ms,
            read_committed=self._config.is_read_committed,
            on_found=settle,
        )

    def _settle(self, place: AnyTopicPartition, position: PartitionPosition, offset: int) -> None:
        """Set a partition's first offset, unless the user has sought meanwhile, or the partition was revoked.

        A partition that was revoked and assigned again has another position object: the offset found for the former
        one is stale.
        """
        if self._subscription.positions.get(place) is position and position.offset is None:
            position.seek(offset)


def _place_to_go_on(known: CommittedOffset | None, position: PartitionPosition) -> int | None:
    """Return the offset to continue at by the committed offset; None without one."""
    doubtful = position.on_unknown_outcome
    if doubtful is None:
        return None if known is None else known.offset
    # The transaction has committed exactly its end, or nothing.
    return doubtful.end if known is not None and known.offset == doubtful.end else doubtful.start
