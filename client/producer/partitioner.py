"""The choice of a record's partition: murmur2 for keyed records, KIP-794's uniform sticky partitioner for the others.

The sticky partitioner keeps one partition until `batch.size` bytes were appended to it, as counted by the
accumulator, and then chooses another. KIP-794 switches at that byte count whatever the state of the batch. That rule
alone closes lingering batches too early, so Kafka waits for up to twice the bytes, which gives slow brokers more
than their share. Here a visit may likewise continue until the open batch is complete, but each visit is charged to
the partition by its bytes. So batches are complete, and the long-run shares are those of the weights for slow and
fast brokers alike.

The choice is not drawn by lot as in Kafka, but made by credits: with each switch every partition earns its weight's
share, and the one with the most credit is chosen. The shares are those of the lot on average, but differ from them by a
few batches instead of by the square root of the number of batches. Credits begin at random, so that producers do not
visit the partitions in one order.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from random import Random

from ...protocol.records.murmur2_cy import murmur2

Partitioner = Callable[[str, bytes | None, bytes | None, int], int]
"""A custom partitioner: (topic, key, value, partition count) -> partition."""


FASTEST_SECONDS = 0.001
SLOWEST = 20.0
CREDIT_LIMIT = 8.0
"""The visits up to which a partition is owed records, or owes them."""


@lru_cache(maxsize=16_384)
def _positive_hash(key: bytes) -> int:
    return murmur2(key) & 0x7FFFFFFF


def partition_for_key(key: bytes, partition_count: int) -> int:
    """Return the partition that Kafka's Java producer would choose for this key."""
    if len(key) <= 64:
        return _positive_hash(key) % partition_count
    # Long keys are not cached: the cache is bounded by entries, not by bytes.
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


def adaptive_weights(queued_batches: Sequence[float], answer_seconds: Sequence[float]) -> list[float]:
    """Return the weight of each partition: the inverse of the time after which its queue would be sent.

    `queued_batches`: the bytes in its queue in units of `batch.size`; `answer_seconds`: how long its broker takes to
    answer a request, 0.0 if that is not known. KIP-794 has the inverse of the number of queued batches plus one,
    whatever the broker needs for each. As there, partitions with empty queues have equal weights: a broker that is
    slow but not overloaded keeps its share.
    """
    fastest = min((seconds for seconds in answer_seconds if seconds > 0), default=0.0)
    return [
        1.0 / (1.0 + size * _slowness(seconds, fastest))
        for size, seconds in zip(queued_batches, answer_seconds, strict=True)
    ]


def _slowness(seconds: float, fastest: float) -> float:
    """Return how many times as long as the fastest broker a broker takes for an answer.

    Differences of less than a millisecond do not count, and no broker counts as more than SLOWEST times as slow.
    """
    if seconds <= 0 or fastest <= 0:
        return 1.0
    return min(max(seconds, FASTEST_SECONDS) / max(fastest, FASTEST_SECONDS), SLOWEST)


class StickyPartitioner:
    """The sticky choice of one topic for records that are not partitioned by key.

    The accumulator calls `is_due` before each append, calls `switch` when `is_due` returns True, and adds the
    appended bytes to `produced_bytes`: headers, overheads and the compression estimate included. Invariant: the
    credits of all partitions change by 0 in sum with each switch and the visit that follows, so that over a long run
    the bytes of each partition are those that its weights gave it.
    """

    __slots__ = ("_batch_size", "_credits", "_random", "finish_limit_bytes", "partition", "produced_bytes")

    def __init__(self, batch_size: int, random: Random) -> None:
        # batch.size may be 0, which means one record per batch and a switch after each.
        self._batch_size = max(1, batch_size)
        self.finish_limit_bytes = 2 * self._batch_size
        """The bytes up to which a visit continues while the open batch can take more records."""
        self._random = random
        self._credits: dict[int, float] = {}
        """The visits, in units of `batch.size`, by which a partition has had fewer than its share."""
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
        """Choose the next partition, uniformly or by `weights`, and return it. `partitions` is not empty."""
        if len(partitions) == 1 and partitions[0] == self.partition:
            # The visit would be charged to the partition, and credited to it again.
            self.produced_bytes = 0.0
            return self.partition
        if self.partition >= 0:
            self._charge(partitions, weights)
        self.produced_bytes = 0.0
        if not self._credits:
            self._credits = {partition: self._random.random() for partition in partitions}
        self.partition = max(partitions, key=lambda partition: self._credits.get(partition, 0.0))
        return self.partition

    def _charge(self, partitions: Sequence[int], weights: Sequence[float] | None) -> None:
        """Charge the visit that ends to its partition, and share its credit among `partitions` by their weights."""
        visits = self.produced_bytes / self._batch_size
        # A partition that had no leader for long must not get all records afterwards.
        limit = CREDIT_LIMIT * max(visits, 1.0)
        self._credits[self.partition] = self._credits.get(self.partition, 0.0) - visits
        total = len(partitions) if weights is None else sum(weights)
        for index, partition in enumerate(partitions):
            share = (1.0 if weights is None else weights[index]) / total
            known = self._credits.get(partition)
            credit = (self._random.random() if known is None else known) + visits * share
            self._credits[partition] = min(max(credit, -limit), limit)
