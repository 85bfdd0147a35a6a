"""Records that `gregor consume` prints without following a topic: the last ones, or one by its offset."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence

from ..client.consumer.consumer import Consumer
from ..client.consumer.consumer_record import ConsumerRecord
from ..protocol.topic_partition import AnyTopicPartition
from .asking import UsageError

POLL_MS = 1000
LONGEST_SILENCE_POLLS = 30
"""Polls without records after which the rest is taken to hold none, such as offsets of aborted transactions."""
WINDOW_GROWTH = 4


async def last_records(consumer: Consumer, places: Sequence[AnyTopicPartition], count: int) -> list[ConsumerRecord]:
    """Return the last ``count`` records of these partitions together, by their timestamps.

    Records of one partition stay in the order of their offsets. Offsets without records (compaction, markers of
    transactions) make the search begin further back. Raises BrokerError, ClientError.
    """
    starts, ends = await consumer.beginning_offsets(places), await consumer.end_offsets(places)
    filled = [place for place in places if starts[place] < ends[place]]
    if not filled or count < 1:
        return []
    window = count
    while True:
        consumer.assign(filled)
        for place in filled:
            consumer.seek(*place, max(starts[place], ends[place] - window))
        found = await _read_until(consumer, {place: ends[place] for place in filled}, count)
        is_whole = all(ends[place] - window <= starts[place] for place in filled)
        if sum(map(len, found.values())) >= count or is_whole:
            return list(heapq.merge(*found.values(), key=lambda record: record.timestamp))[-count:]
        window *= WINDOW_GROWTH


async def _read_until(
    consumer: Consumer, ends: dict[AnyTopicPartition, int], count: int
) -> dict[AnyTopicPartition, deque[ConsumerRecord]]:
    """Return the last ``count`` records of each partition up to its end offset."""
    found: dict[AnyTopicPartition, deque[ConsumerRecord]] = {place: deque(maxlen=count) for place in ends}
    remaining = set(ends)
    silent_polls = 0
    while remaining and silent_polls < LONGEST_SILENCE_POLLS:
        records = await consumer.poll(POLL_MS)
        silent_polls = 0 if records else silent_polls + 1
        for record in records:
            place = (record.topic, record.partition)
            if record.offset < ends[place]:
                found[place].append(record)
            if record.offset >= ends[place] - 1:
                remaining.discard(place)
        remaining = {place for place in remaining if (consumer.position(*place) or 0) < ends[place]}
    return found


async def record_at(consumer: Consumer, topic: str, text: str) -> ConsumerRecord:
    """Return the record at ``text``, PARTITION:OFFSET. Raises UsageError if there is none, BrokerError, ClientError."""
    partition, colon, offset = text.partition(":")
    if not colon or not partition.isdecimal() or not offset.isdecimal():
        raise UsageError(f"--record must look like PARTITION:OFFSET, not {text!r}")
    place = (topic, int(partition))
    count = len(await consumer.partitions_for(topic))
    if place[1] >= count:
        raise UsageError(f"{topic} has no partition {partition}: it has {count}, from 0 on")
    missing = UsageError(f"{topic}-{partition} has no record with offset {offset}")
    start, end = (await consumer.beginning_offsets([place]))[place], (await consumer.end_offsets([place]))[place]
    if not start <= int(offset) < end:
        raise missing
    consumer.assign([place])
    consumer.seek(*place, int(offset))
    for _ in range(LONGEST_SILENCE_POLLS):
        records = await consumer.poll(POLL_MS, max_records=1)
        if records and records[0].offset == int(offset):
            return records[0]
        if records or (consumer.position(*place) or 0) > int(offset):
            raise missing
    raise missing
