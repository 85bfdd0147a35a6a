"""The choice of a record's partition: murmur2 for keyed records, KIP-794's uniform sticky partitioner for the others.

The sticky partitioner keeps one partition until `batch.size` bytes were appended to it, as counted by the
accumulator, and then draws another. KIP-794 switches at that byte count whatever the state of the batch. That rule
alone closes lingering batches too early, so Kafka waits for up to twice the bytes, which gives slow brokers more
than their share. Here a visit may likewise continue until the open batch is complete, but the bytes beyond
`batch.size` are a *debt* that shortens the partition's later visits. So batches are complete, and the long-run
shares are uniform for slow and fast brokers alike.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from random import Random

from ...protocol.records.murmur2_cy import murmur2

Partitioner = Callable[[str, bytes | None, bytes | None, int], int]
"""A custom partitioner: (topic, key, value, partition count) -> partition."""


@lru_cache(maxsize=16_384)
def _positive_hash(key: bytes) -> int:
    return murmur2(key) & 0x7FFFFFFF


def partition_for_key(key: bytes, partition_count: int) -> int:
    """Return the partition that Kafka's Java producer would choose for this key."""
    if len(key) <= 64:
        return _positive_hash(key) % partition_count
    # Long keys are not cached: the cache is bounded by entries, not by bytes.
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


def adaptive_weights(queue_sizes: Sequence[int]) -> list[float]:
    """Return KIP-794's weight of each partition: the inverse of its number of queued batches plus one (a queue may be
    empty).
    """
    return [1.0 / (size + 1) for size in queue_sizes]


class StickyPartitioner:
    """The sticky choice of one topic for records that are not partitioned by key.

    The accumulator calls `is_due` before each append, calls `switch` when `is_due` returns True, and adds the
    appended bytes to `produced_bytes`: headers, overheads and the compression estimate included. Invariant: over a
    long run each visit of a partition counts `batch_size` bytes, however many it really had.
    """

    __slots__ = ("_batch_size", "_debts", "_random", "finish_limit_bytes", "partition", "produced_bytes")

    def __init__(self, batch_size: int, random: Random) -> None:
        # batch.size may be 0, which means one record per batch and a switch after each.
        self._batch_size = max(1, batch_size)
        self.finish_limit_bytes = 2 * self._batch_size
        """The bytes up to which a visit continues while the open batch can take more records."""
        self._random = random
        self._debts: dict[int, float] = {}
        self.partition = -1
        self.produced_bytes = 0.0

    def is_due(self, next_bytes: float, fits_open_batch: bool) -> bool:
        """Return whether to leave the current partition before appending `next_bytes` more.

        `fits_open_batch`: the record would be appended to a batch that is already started. Leaving then would leave
        that batch half full, so a visit ends there only at twice the bytes (as in Kafka's BuiltInPartitioner,
        KAFKA-14156).
        """
        if self.partition < 0:
            return True
        if fits_open_batch:
            return self.produced_bytes >= self.finish_limit_bytes
        return self.produced_bytes + next_bytes > self._batch_size and self.produced_bytes > 0

    def switch(self, partitions: Sequence[int], weights: Sequence[float] | None = None) -> int:
        """Draw the next partition, uniformly or by `weights`, and return it.

        When a partition's debt covers a whole visit, the debt is reduced by one visit and the draw is repeated.
        `partitions` is not empty.
        """
        if self.partition >= 0 and self.produced_bytes > self._batch_size:
            self._debts[self.partition] = self.produced_bytes - self._batch_size
        while True:
            chosen = self._draw(partitions, weights)
            debt = self._debts.pop(chosen, 0.0)
            if debt < self._batch_size or len(partitions) == 1:
                break
            if debt > self._batch_size:
                self._debts[chosen] = debt - self._batch_size
        self.partition = chosen
        self.produced_bytes = debt if len(partitions) > 1 else 0.0
        return chosen

    def _draw(self, partitions: Sequence[int], weights: Sequence[float] | None) -> int:
        if weights is None:
            return partitions[int(self._random.random() * len(partitions))]
        return self._random.choices(partitions, weights)[0]
