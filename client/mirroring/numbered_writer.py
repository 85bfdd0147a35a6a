"""The writer to a Gregor broker with the source's offsets: the copy continues where the target's log ends."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from ...protocol.errors import ErrorCode
from ...protocol.messages.append_numbered import (
    AppendNumberedPartition,
    AppendNumberedPartitionResponse,
    AppendNumberedRequest,
    AppendNumberedResponse,
    AppendNumberedTopic,
)
from ...protocol.records.batches import iter_batches
from ..admin import Admin, raise_for
from ..consumer.fetched_partition import FetchedBatches
from ..consumer.subscription import TopicPartition
from ..wire.offset_lookup import EARLIEST, LATEST
from .errors import MirrorError
from .outgoing import with_offsets_kept

MAX_REQUEST_BYTES = 8 << 20


class NumberedWriter:
    """A `MirrorWriter` that needs no stored progress."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin

    def topic_ready(self, topic: str, max_batch_bytes: int) -> None:
        """Prepare for a topic, see `MirrorWriter.topic_ready`; batches that keep their offsets may have any size."""

    async def positions(self, places: Sequence[TopicPartition]) -> dict[TopicPartition, int | None]:
        """Return the next offsets to copy, see `MirrorWriter.positions`; an empty log may start at any offset."""
        ends = await self._admin.list_offsets(dict.fromkeys(places, LATEST))
        starts = await self._admin.list_offsets(dict.fromkeys(places, EARLIEST))
        found: dict[TopicPartition, int | None] = {}
        for place in places:
            start, end = starts[place], ends[place]
            assert start is not None, "EARLIEST has an offset in every log"
            assert end is not None, "LATEST has an offset in every log"
            found[place] = None if end.offset == start.offset == 0 else end.offset
        return found

    async def write(self, fetched: Sequence[FetchedBatches]) -> int:
        """Append batches, see `MirrorWriter.write`."""
        by_leader: defaultdict[int, list[FetchedBatches]] = defaultdict(list)
        for item in fetched:
            by_leader[await self._admin.leader(item.topic, item.partition)].append(item)
        for leader, items in by_leader.items():
            for records in _portions(items):
                await self._send(leader, records)
        return sum(batch.record_count or 1 for item in fetched for batch in item.batches)

    async def settle(self) -> None:
        """Do nothing, see `MirrorWriter.settle`: the ends of the logs are the progress."""

    async def _send(self, leader: int, records: Mapping[TopicPartition, bytes]) -> None:
        topics: dict[str, AppendNumberedTopic] = {}
        for (name, partition), data in records.items():
            wanted = topics.setdefault(name, AppendNumberedTopic(name=name))
            wanted.partitions.append(AppendNumberedPartition(index=partition, records=data))
        request = AppendNumberedRequest(topics=list(topics.values()))
        answer = await self._admin.ask(leader, request, AppendNumberedResponse, version=0)
        for topic in answer.topics:
            for part in topic.partitions:
                _check(topic.name, part, records[topic.name, part.index])


def _check(topic: str, part: AppendNumberedPartitionResponse, records: bytes) -> None:
    """Raise the error of an answer, or MirrorError if the log ends after the batches that were sent."""
    name = f"{topic}-{part.index}"
    *_, last = iter_batches(records)
    if part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE or part.log_end_offset > last.last_offset + 1:
        raise MirrorError(
            f"somebody else writes to {name} of the target: it ends at {part.log_end_offset} where the batch up to "
            f"offset {last.last_offset} should be the last"
        )
    raise_for(part.error_code, f"{name}: {part.error_message}")


def _portions(fetched: Sequence[FetchedBatches]) -> Iterator[dict[TopicPartition, bytes]]:
    """Yield all batches, in requests of a bounded size but of at least one batch; in order within a partition."""
    records: defaultdict[TopicPartition, bytearray] = defaultdict(bytearray)
    size = 0
    for item in fetched:
        for batch in item.batches:
            data = with_offsets_kept(batch, item.first_offset)
            if size and size + len(data) > MAX_REQUEST_BYTES:
                yield {place: bytes(data) for place, data in records.items()}
                records.clear()
                size = 0
            if data:
                records[item.topic, item.partition] += data
                size += len(data)
    if size:
        yield {place: bytes(data) for place, data in records.items()}
