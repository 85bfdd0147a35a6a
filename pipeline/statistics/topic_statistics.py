"""The statistics that the passes of `gregor pipeline stats` gather, by partition."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...protocol.topic_partition import AnyTopicPartition

if TYPE_CHECKING:
    from .batch_statistics import BatchStatistics, CompressionReplay, Latencies

"""A topic and a partition."""


@dataclass(slots=True)
class TopicStatistics:
    """The results of the passes, by (topic, partition)."""

    batches: dict[AnyTopicPartition, BatchStatistics]
    compression: dict[AnyTopicPartition, CompressionReplay] = field(default_factory=dict)
    latencies: dict[AnyTopicPartition, Latencies] = field(default_factory=dict)
