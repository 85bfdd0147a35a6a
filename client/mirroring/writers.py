"""What the mirror asks of whoever writes to the target."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ..consumer.fetched_partition import FetchedBatches
from ..consumer.subscription import TopicPartition


class MirrorWriter(Protocol):
    """Appends to the target, and knows from there alone how far it has come."""

    def topic_ready(self, topic: str, max_batch_bytes: int) -> None:
        """A topic is there at the target now, and takes batches of up to that size."""

    async def positions(self, places: Sequence[TopicPartition]) -> dict[TopicPartition, int | None]:
        """The next offset of the source for each, None where the copy begins; whatever happened before.

        Raises ClientError, BrokerError.
        """

    async def write(self, fetched: Sequence[FetchedBatches]) -> int:
        """Append all records of these, one entry for a partition; returns how many.

        After an exception only `positions` tells what was written. Raises ClientError, BrokerError.
        """

    async def settle(self) -> None:
        """Note how far the copy has come where others can see it. Raises ClientError, BrokerError."""
