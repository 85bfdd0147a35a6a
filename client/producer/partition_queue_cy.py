"""The queues of batches of a topic's partitions, which the accumulator fills and drains.

Ordinary Python that is also compiled, as ``appending_cy.py`` is: ``partition_queue_cy.pxd`` gives the C types.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import zip_longest

try:
    import cython
except ImportError:
    from ...protocol.records import cython_stand_in as cython

if not cython.compiled:
    from .batch_cy import ProducerBatch
    from .sequences_cy import PartitionSequence

from .partitioner import StickyPartitioner


class PartitionQueue:
    """A queue of the batches of one partition, oldest first.

    Only the last batch may be open; `open_batch` is that batch.
    """

    __slots__ = ("batches", "leader", "open_batch", "partition", "sequence", "topic", "under_way")

    def __init__(self, topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.leader: int | None = None
        self.batches: deque[ProducerBatch] = deque()
        self.open_batch: ProducerBatch | None = None
        self.sequence = PartitionSequence()
        self.under_way: list[ProducerBatch] = []


class TopicQueues:
    """The queues of one topic's partitions, and the sticky choice among them."""

    __slots__ = ("available", "queues", "sticky", "topic")

    def __init__(self, topic: str, sticky: StickyPartitioner) -> None:
        self.topic = topic
        self.sticky = sticky
        self.queues: list[PartitionQueue] = []
        self.available: list[int] = []

    def update(self, leaders: Sequence[int | None]) -> None:
        """Set the leaders of all partitions, by index; None for a partition without a leader.

        Partitions are never removed.
        """
        for partition in range(len(self.queues), len(leaders)):
            self.queues.append(PartitionQueue(self.topic, partition))
        for queue, leader in zip_longest(self.queues, leaders):
            # A topic that was deleted and created again may have fewer partitions: the missing partitions have no
            # leader.
            queue.leader = leader
        self.available = [queue.partition for queue in self.queues if queue.leader is not None]
