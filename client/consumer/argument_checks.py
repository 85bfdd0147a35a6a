"""Checks of what a user passes to a consumer, made before a background task meets the value and ends over it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from ...protocol.topic_partition import AnyTopicPartition
from ..producer.record_checks import check_offset, check_partition, check_timestamp, check_topic


def check_places(places: Iterable[AnyTopicPartition]) -> list[AnyTopicPartition]:
    """Return the (topic, partition) pairs as tuples.

    Raises TypeError for what is no iterable of such pairs, InvalidTopicError for a name that no topic can have
    (Kafka's `Topic.validate`), ValueError for a negative partition.
    """
    if isinstance(places, str | bytes) or not isinstance(places, Iterable):
        raise TypeError(f"partitions must be (topic, partition) pairs, not {places!r}")
    return [_check_place(place) for place in places]


def _check_place(place: AnyTopicPartition) -> AnyTopicPartition:
    if not isinstance(place, Sequence) or isinstance(place, str | bytes) or len(place) != 2:
        raise TypeError(f"a partition must be a (topic, partition) pair, not {place!r}")
    topic, partition = place
    check_topic(topic)
    return topic, check_partition(partition)


def check_offsets(offsets: Mapping[AnyTopicPartition, int]) -> dict[AnyTopicPartition, int]:
    """Return the offset of each (topic, partition).

    Raises as `check_places`, and TypeError or ValueError for an offset that is none (Kafka's `OffsetAndMetadata`).
    """
    if not isinstance(offsets, Mapping):
        raise TypeError(f"offsets must be a mapping from (topic, partition) to an offset, not {offsets!r}")
    places = check_places(offsets)
    return {place: check_offset(offset) for place, offset in zip(places, offsets.values(), strict=True)}


def check_times(timestamps_ms: Mapping[AnyTopicPartition, int]) -> dict[AnyTopicPartition, int]:
    """Return the time of each (topic, partition), in ms.

    Raises as `check_places`, and TypeError or ValueError for a time that is none: in a request, negative numbers mean
    the ends of the log (Kafka's `Consumer.offsetsForTimes`).
    """
    if not isinstance(timestamps_ms, Mapping):
        raise TypeError(f"times must be a mapping from (topic, partition) to a time in ms, not {timestamps_ms!r}")
    places = check_places(timestamps_ms)
    return {place: check_timestamp(time) for place, time in zip(places, timestamps_ms.values(), strict=True)}


def check_record_count(count: int) -> int:
    """Return the largest number of records to return.

    Raises TypeError, or ValueError unless it is positive: with another number a poll would never return a record.
    """
    if isinstance(count, bool) or not isinstance(count, int):
        raise TypeError(f"max_records must be int, not {type(count).__name__}")
    if count < 1:
        raise ValueError(f"max_records must be at least 1, not {count}")
    return count


def check_topics(topics: Iterable[str] | re.Pattern[str]) -> frozenset[str] | re.Pattern[str]:
    """Return the names of topics as a set, or the pattern.

    Raises TypeError for a single name, which would be taken for an iterable of letters, and for a pattern of bytes;
    InvalidTopicError for a name that no topic can have, as Kafka's consumer does at its next poll.
    """
    if isinstance(topics, re.Pattern):
        if not isinstance(topics.pattern, str):
            raise TypeError("a pattern of topics must be compiled from str, not from bytes")
        return topics
    if isinstance(topics, str | bytes) or not isinstance(topics, Iterable):
        raise TypeError(f"topics must be an iterable of names or a compiled pattern, not {topics!r}")
    names = list(topics)
    for name in names:
        check_topic(name)
    return frozenset(names)
