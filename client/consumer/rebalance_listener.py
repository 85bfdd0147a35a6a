"""What happens in a consumer when partitions come and go, and what its user wants to happen."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from .committer import Committer
from .fetcher import Fetcher
from .position_finder import PositionFinder
from .subscription import TopicPartition

RebalanceListener = Callable[[list[TopicPartition]], Awaitable[None]]


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
        """Await these from now on."""
        self._on_assigned, self._on_revoked, self._on_lost = on_assigned, on_revoked, on_lost

    async def commit_processed(self, places: list[TopicPartition]) -> None:
        """As `AssignmentListener.commit_processed`."""
        await self._committer.commit_before_revocation(places)

    async def on_revoked(self, places: list[TopicPartition]) -> None:
        """As `AssignmentListener.on_revoked`."""
        if self._on_revoked is not None:
            await self._on_revoked(places)

    async def on_lost(self, places: list[TopicPartition]) -> None:
        """As `AssignmentListener.on_lost`."""
        if self._on_lost is not None:
            await self._on_lost(places)

    async def on_assigned(self, places: list[TopicPartition]) -> None:
        """Look for the positions of new partitions, unless the user's listener seeks some."""
        self._fetcher.drop_stale()
        try:
            if self._on_assigned is not None:
                await self._on_assigned(places)
        finally:
            self._position_finder.wake()
            self._fetcher.wake()
