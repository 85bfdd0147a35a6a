"""The interface of a mirror's writers to the target."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ...protocol.topic_partition import AnyTopicPartition
from ..consumer.fetched_partition import FetchedBatches


class MirrorWriter(Protocol):
    """A writer that appends to the target, and reads the progress of the copy from the target alone."""

    def topic_ready(self, topic: str, max_batch_bytes: int) -> None:
        """Prepare for a topic that exists at the target now, and accepts batches of up to `max_batch_bytes`."""

    async def positions(self, places: Sequence[AnyTopicPartition]) -> dict[AnyTopicPartition, int | None]:
        """Return the next source offset of each partition, None where the copy starts, also after a crash.

        Raises ClientError, BrokerError.
        """

    async def write(self, fetched: Sequence[FetchedBatches]) -> int:
        """Append all records of these entries, one entry per partition; return the number of records.

        After an exception only `positions` returns what was written. Raises ClientError, BrokerError.
        """

    async def settle(self) -> None:
        """Store the progress of the copy so that others can read it. Raises ClientError, BrokerError."""
