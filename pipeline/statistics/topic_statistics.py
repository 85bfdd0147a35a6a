"""The statistics that the passes of `gregor pipeline stats` gather, by partition."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from .batch_statistics import BatchStatistics, CompressionReplay, Latencies

Place: TypeAlias = tuple[str, int]
"""A topic and a partition."""


@dataclass(slots=True)
class TopicStatistics:
    """The results of the passes, by (topic, partition)."""

    batches: dict[Place, BatchStatistics]
    compression: dict[Place, CompressionReplay] = field(default_factory=dict)
    latencies: dict[Place, Latencies] = field(default_factory=dict)
