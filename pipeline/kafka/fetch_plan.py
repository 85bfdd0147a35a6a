"""The division of offset ranges into tasks, and the number of offsets of one micro-batch of a stream."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from ...client.errors import ConnectionLostError
from ...protocol.errors import BrokerError
from ...protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ...protocol.records.headers_cy import seek
from ...protocol.topic_partition import AnyTopicPartition
from .cluster_view import ClusterView
from .fetching import ANY_TIME, MAX_INT64, FetchRange

PROBE_BYTES = 64 << 10
"""The bytes fetched of a partition to estimate the size of its next records."""


def split_ranges(
    start: Mapping[AnyTopicPartition, int],
    end: Mapping[AnyTopicPartition, int],
    *,
    min_partitions: int | None = None,
    max_records: int | None = None,
) -> list[FetchRange]:
    """Return ranges of the offsets of each partition: of at most `max_records` offsets each, and if these are fewer
    than `min_partitions`, then split again into about that many by their sizes.

    Source: Spark `KafkaOffsetRangeCalculator.getRanges`.
    """
    ranges = [FetchRange(*place, start.get(place, 0), end[place]) for place in sorted(end)]
    ranges = [each for each in ranges if _size(each) > 0]
    if max_records is not None:
        ranges = [part for each in ranges for part in _split(each, -(-_size(each) // max_records))]
    if min_partitions is None or len(ranges) >= min_partitions:
        return ranges
    total = sum(map(_size, ranges))
    small = [each for each in ranges if _share_of_tasks(_size(each), total, min_partitions) == 1]
    tasks_left = max(min_partitions - len(small), 1)
    total -= sum(map(_size, small))
    alone = set(small)
    return [
        part
        for each in ranges
        for part in _split(each, 1 if each in alone else _share_of_tasks(_size(each), total, tasks_left))
    ]


def even_ranges(
    start: Mapping[AnyTopicPartition, int], end: Mapping[AnyTopicPartition, int], *, tasks: int
) -> list[FetchRange]:
    """Return ranges none of which has more than its share of all offsets, if `tasks` run at a time.

    A partition that is far larger than the others is read by several tasks, so that no single task delays the end.
    """
    total = sum(max(0, end[place] - start.get(place, 0)) for place in end)
    return split_ranges(start, end, min_partitions=tasks, max_records=max(1, -(-total // tasks)))


def shared_evenly(ranges: Sequence[FetchRange], *, tasks: int) -> list[FetchRange]:
    """Return the same offsets in the ranges of `even_ranges`; each partition has one range."""
    places: list[AnyTopicPartition] = [(each.topic, each.partition) for each in ranges]
    start = {place: each.first_offset for place, each in zip(places, ranges, strict=True)}
    end = {place: each.end_offset for place, each in zip(places, ranges, strict=True)}
    return even_ranges(start, end, tasks=tasks)


def _size(fetch_range: FetchRange) -> int:
    return fetch_range.end_offset - fetch_range.first_offset


def _share_of_tasks(size: int, total: int, tasks: int) -> int:
    """Return the number of tasks for `size` of `total` offsets; at least one, halves rounded up as by Java."""
    return max(math.floor(size / total * tasks + 0.5), 1)


def _split(fetch_range: FetchRange, parts: int) -> list[FetchRange]:
    first, size = fetch_range.first_offset, _size(fetch_range)
    parts = min(parts, size)
    borders = [first + size * number // parts for number in range(parts + 1)]
    return [replace(fetch_range, first_offset=low, end_offset=high) for low, high in pairwise(borders)]


def limit_rows(
    start: Mapping[AnyTopicPartition, int], end: Mapping[AnyTopicPartition, int], max_rows: int
) -> dict[AnyTopicPartition, int]:
    """Return end offsets that take `max_rows` offsets in all, from each partition in proportion to its available
    offsets.

    A partition with available offsets advances by one offset at least, so that none starves. Source: Spark
    `KafkaMicroBatchStream.rateLimit`.
    """
    return _share(start, end, max_rows, dict.fromkeys(end, 1.0))


def limit_bytes(
    cluster: ClusterView, start: Mapping[AnyTopicPartition, int], end: Mapping[AnyTopicPartition, int], max_bytes: int
) -> dict[AnyTopicPartition, int]:
    """Return end offsets that take about `max_bytes` of stored batches in all, by the size of each partition's next
    batches.
    """
    waiting = [place for place in end if end[place] > start[place]]
    return _share(start, end, max_bytes, {place: bytes_per_offset(cluster, place, start[place]) for place in waiting})


def bytes_per_offset(cluster: ClusterView, place: AnyTopicPartition, offset: int) -> float:
    """Return the mean stored size of the records from `offset` on, by a fetch of the next PROBE_BYTES."""
    topic, partition = place
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=PROBE_BYTES,
        topics=[
            FetchTopic(
                topic=topic,
                partitions=[FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=PROBE_BYTES)],
            )
        ],
    )
    try:
        answer = cluster.leader(topic, partition).request(request, FetchResponse)
    except (BrokerError, ConnectionLostError):
        # The task that reads the partition will report the failure.
        return 1.0
    for described in answer.responses:
        for data in described.partitions:
            stored = memoryview(data.records or b"")  # type: ignore[arg-type]
            end, next_offset = seek(stored, 0, len(stored), MAX_INT64, ANY_TIME)
            if next_offset > offset:
                return end / (next_offset - offset)
    return 1.0


def _share(
    start: Mapping[AnyTopicPartition, int],
    end: Mapping[AnyTopicPartition, int],
    budget: int,
    weights: Mapping[AnyTopicPartition, float],
) -> dict[AnyTopicPartition, int]:
    """Return end offsets whose weighted offsets sum up to `budget`, in proportion to the available offsets."""
    waiting = {place: (end[place] - start[place]) * weights[place] for place in end if end[place] > start[place]}
    total = sum(waiting.values())
    if total <= budget:
        return dict(end)
    shared = dict(end)
    for place, amount in waiting.items():
        offsets = max(1, int(budget * (amount / total) / weights[place]))
        shared[place] = min(end[place], start[place] + offsets)
    return shared
