"""The division of offset ranges into tasks, and the number of offsets of one micro-batch of a stream."""

from __future__ import annotations

from collections.abc import Mapping
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
    """Return a range for each partition that has offsets, split evenly into at least `min_partitions` ranges in all,
    and at most `max_records` offsets each.

    Source: Spark `KafkaOffsetRangeCalculator`.
    """
    sizes = {place: end[place] - start[place] for place in sorted(end) if end[place] > start.get(place, 0)}
    total = sum(sizes.values())
    ranges = []
    for place, size in sizes.items():
        parts = 1
        if max_records is not None:
            parts = -(-size // max_records)
        if min_partitions is not None and len(sizes) < min_partitions:
            parts = max(parts, round(size / total * min_partitions))
        parts = min(max(parts, 1), size)
        borders = [start[place] + size * number // parts for number in range(parts + 1)]
        ranges += [FetchRange(*place, first, last) for first, last in pairwise(borders)]
    return ranges


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
