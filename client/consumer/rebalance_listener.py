"""The actions of a consumer and of its user on assignment and revocation."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from ...protocol.topic_partition import AnyTopicPartition
from .committer import Committer
from .fetcher import Fetcher
from .position_finder import PositionFinder

RebalanceListener = Callable[[list[AnyTopicPartition]], Awaitable[None]]


class UserListener:
    """An `AssignmentListener` that awaits the user's listeners, which run in the user's task."""

    def __init__(self, committer: Committer, fetcher: Fetcher, position_finder: PositionFinder) -> None:
        self._committer = committer
        self._fetcher = fetcher
        self._position_finder = position_finder
        self._on_assigned: RebalanceListener | None = None
        self._on_revoked: RebalanceListener | None = None
        self._on_lost: RebalanceListener | None = None

    def listen(
        self,
        on_assigned: RebalanceListener | None,
        on_revoked: RebalanceListener | None,
        on_lost: RebalanceListener | None,
    ) -> None:
        """Replace the user's listeners."""
        self._on_assigned, self._on_revoked, self._on_lost = on_assigned, on_revoked, on_lost

    async def commit_processed(self, places: list[AnyTopicPartition]) -> None:
        """Commit processed offsets, see `AssignmentListener.commit_processed`."""
        await self._committer.commit_before_revocation(places)

    async def on_revoked(self, places: list[AnyTopicPartition]) -> None:
        """Await the user's listener, see `AssignmentListener.on_revoked`."""
        if self._on_revoked is not None:
            await self._on_revoked(places)

    async def on_lost(self, places: list[AnyTopicPartition]) -> None:
        """Await the user's listener, see `AssignmentListener.on_lost`."""
        if self._on_lost is not None:
            await self._on_lost(places)

    async def on_assigned(self, places: list[AnyTopicPartition]) -> None:
        """Find the positions of new partitions, except those that the user's listener seeks."""
        self._fetcher.drop_stale()
        try:
            if self._on_assigned is not None:
                await self._on_assigned(places)
        finally:
            self._position_finder.wake()
            self._fetcher.wake()
