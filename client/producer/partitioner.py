"""Which partition a record goes to: keyed records by murmur2, the others by KIP-794's uniform sticky partitioner.

The sticky partitioner stays with one partition until `batch.size` bytes went to it, as counted by the accumulator, and
then draws another. KIP-794 switches at that byte count whatever the state of the batch; doing just that cuts batches
short while they linger, which is why Kafka waits for up to twice the bytes, and so gives slow brokers more than their
share. Here a visit may likewise run on until the open batch is complete, but what it takes beyond `batch.size` is a
*debt* that shortens the partition's later visits. So batches are whole, and the long-run shares are uniform for slow
and fast brokers alike.
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
    """The partition that Kafka's Java producer would pick for this key."""
    if len(key) <= 64:
        return _positive_hash(key) % partition_count
    # Long keys stay out of the cache: it is bounded by entries, not by bytes.
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


def adaptive_weights(queue_sizes: Sequence[int]) -> list[float]:
    """KIP-794's odds for each partition: inverse to its number of waiting batches, plus one as queues may be empty."""
    return [1.0 / (size + 1) for size in queue_sizes]


class StickyPartitioner:
    """One topic's sticky choice for records that are not partitioned by key.

    The accumulator asks `is_due` before each append, calls `switch` when it says so, and adds to `produced_bytes` what
    the append took there: headers, overheads and the compression estimate included.
    Invariant: over a long run each visit of a partition is worth `batch_size` bytes, however long it really was.
    """

    __slots__ = ("_batch_size", "_debts", "_random", "finish_limit_bytes", "partition", "produced_bytes")

    def __init__(self, batch_size: int, random: Random) -> None:
        # batch.size may be 0, which means a batch for each record and a switch after each.
        self._batch_size = max(1, batch_size)
        self.finish_limit_bytes = 2 * self._batch_size
        """Below so many bytes a visit is never over while its batch can take more."""
        self._random = random
        self._debts: dict[int, float] = {}
        self.partition = -1
        self.produced_bytes = 0.0

    def is_due(self, next_bytes: float, fits_open_batch: bool) -> bool:
        """Whether to leave the current partition before appending `next_bytes` more.

        `fits_open_batch`: the record would join a batch that is already begun. Leaving then would strand that batch
        half full, so it is done only at twice the bytes (as in Kafka's BuiltInPartitioner, KAFKA-14156).
        """
        if self.partition < 0:
            return True
        if fits_open_batch:
            return self.produced_bytes >= self.finish_limit_bytes
        return self.produced_bytes + next_bytes > self._batch_size and self.produced_bytes > 0

    def switch(self, partitions: Sequence[int], weights: Sequence[float] | None = None) -> int:
        """Draw the next partition, uniformly or by `weights`, and return it.

        A partition whose debt covers a whole visit pays with it, and the draw is repeated. `partitions` is not empty.
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
