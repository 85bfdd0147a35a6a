"""The partitions and offsets that a query's filters leave to be read: Spark applies the filters again, so the result
may be too large.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, GreaterThanOrEqual, In, LessThan, LessThanOrEqual

from ..logs.log_files import ANY_TIME, MAX_INT64


@dataclass(frozen=True, slots=True)
class Pruning:
    """The requested topics and partitions (None: all), offsets (the end is exclusive), and the oldest time in ms."""

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    least_offset: int = 0
    end_offset: int = MAX_INT64
    least_timestamp: int = ANY_TIME

    def wants(self, topic: str, partition: int) -> bool:
        """Return whether any offset of a partition is requested."""
        return (self.topics is None or topic in self.topics) and (
            self.partitions is None or partition in self.partitions
        )


def pruning_of(filters: Iterable[Filter]) -> Pruning:
    """Return the pruning by filters (all must hold) on topic, partition, offset and timestamp."""
    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    least_offset, end_offset, least_timestamp = 0, MAX_INT64, ANY_TIME
    for item in filters:
        column = getattr(item, "attribute", None)
        if column == ("topic",):
            topics = _narrow(topics, item)
        elif column == ("partition",):
            partitions = _narrow(partitions, item)
        elif column == ("offset",):
            low, high = _interval(item)
            least_offset, end_offset = max(least_offset, low), min(end_offset, high)
        elif column == ("timestamp",):
            least_timestamp = max(least_timestamp, _least_millis(item))
    return Pruning(topics, partitions, least_offset, end_offset, least_timestamp)


def _narrow(known: frozenset[Any] | None, item: Filter) -> frozenset[Any] | None:
    if isinstance(item, EqualTo):
        wanted = frozenset([item.value])
    elif isinstance(item, In):
        wanted = frozenset(item.value)
    else:
        return known
    return wanted if known is None else known & wanted


def _interval(item: Filter) -> tuple[int, int]:
    """Return the offsets that pass a filter: the first, and the one after the last."""
    value = getattr(item, "value", None)
    if not isinstance(value, int):
        return 0, MAX_INT64
    if isinstance(item, EqualTo):
        return value, value + 1
    if isinstance(item, GreaterThanOrEqual):
        return value, MAX_INT64
    if isinstance(item, GreaterThan):
        return value + 1, MAX_INT64
    if isinstance(item, LessThan):
        return 0, value
    if isinstance(item, LessThanOrEqual):
        return 0, value + 1
    return 0, MAX_INT64


def _least_millis(item: Filter) -> int:
    value = getattr(item, "value", None)
    if isinstance(item, EqualTo | GreaterThan | GreaterThanOrEqual) and isinstance(value, datetime):
        moment = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        return math.floor(moment.timestamp() * 1000) - 1
    return ANY_TIME
