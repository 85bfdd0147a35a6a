"""The writer to a Gregor broker with the source's offsets: the copy continues where the target's log ends.

If the source is a Gregor broker too, the copy has the source's receipt times.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ...protocol.errors import ErrorCode
from ...protocol.messages.append_numbered import (
    AppendNumberedPartition,
    AppendNumberedPartitionResponse,
    AppendNumberedRequest,
    AppendNumberedResponse,
    AppendNumberedTopic,
)
from ...protocol.records.batches import BatchView, iter_batches
from ...protocol.records.tag_runs import TagRun, TagRuns
from ...protocol.topic_partition import AnyTopicPartition
from ..admin import Admin, raise_for
from ..consumer.fetched_partition import FetchedBatches
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

    async def positions(self, places: Sequence[AnyTopicPartition]) -> dict[AnyTopicPartition, int | None]:
        """Return the next offsets to copy, see `MirrorWriter.positions`; an empty log may start at any offset."""
        ends = await self._admin.list_offsets(dict.fromkeys(places, LATEST))
        starts = await self._admin.list_offsets(dict.fromkeys(places, EARLIEST))
        found: dict[AnyTopicPartition, int | None] = {}
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
            for portion in _portions(items):
                await self._send(leader, portion)
        return sum(batch.record_count or 1 for item in fetched for batch in item.batches)

    async def settle(self) -> None:
        """Do nothing, see `MirrorWriter.settle`: the ends of the logs are the progress."""

    async def _send(self, leader: int, portion: dict[AnyTopicPartition, _Numbered]) -> None:
        topics: dict[str, AppendNumberedTopic] = {}
        for (name, partition), numbered in portion.items():
            wanted = topics.setdefault(name, AppendNumberedTopic(name=name))
            tag_runs = TagRuns(numbered.runs).encode() if numbered.runs else None
            wanted.partitions.append(
                AppendNumberedPartition(index=partition, records=bytes(numbered.data), tag_runs=tag_runs)
            )
        request = AppendNumberedRequest(topics=list(topics.values()))
        answer = await self._admin.ask(leader, request, AppendNumberedResponse, version=0)
        for topic in answer.topics:
            for part in topic.partitions:
                _check(topic.name, part, portion[topic.name, part.index].data)


def _check(topic: str, part: AppendNumberedPartitionResponse, records: bytearray) -> None:
    """Raise the error of an answer, or MirrorError if the log ends after the batches that were sent."""
    name = f"{topic}-{part.index}"
    *_, last = iter_batches(records)
    if part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE or part.log_end_offset > last.last_offset + 1:
        raise MirrorError(
            f"another client writes to {name} of the target: its log ends at offset {part.log_end_offset}, "
            f"and the last batch of the mirror at offset {last.last_offset}"
        )
    raise_for(part.error_code, f"{name}: {part.error_message}")


@dataclass(slots=True)
class _Numbered:
    """The batches for one partition, and their receipt times by position."""

    data: bytearray = field(default_factory=bytearray)
    runs: list[TagRun] = field(default_factory=list)

    def add(self, data: bytes, batch: BatchView, tags: TagRuns) -> None:
        """Add the bytes to send for a batch of the source."""
        run = tags.of(batch)
        if run is not None and (not self.runs or run.receipt_ms != self.runs[-1].receipt_ms):
            self.runs.append(TagRun(len(self.data), run.receipt_ms))
        self.data += data


def _portions(fetched: Sequence[FetchedBatches]) -> Iterator[dict[AnyTopicPartition, _Numbered]]:
    """Yield all batches, in requests of a bounded size but of at least one batch; in order within a partition."""
    portion: defaultdict[AnyTopicPartition, _Numbered] = defaultdict(_Numbered)
    size = 0
    for item in fetched:
        for batch in item.batches:
            data = with_offsets_kept(batch, item.first_offset, item.tag_runs)
            if size and size + len(data) > MAX_REQUEST_BYTES:
                yield portion
                portion = defaultdict(_Numbered)
                size = 0
            if data:
                portion[item.topic, item.partition].add(data, batch, item.tag_runs)
                size += len(data)
    if size:
        yield portion
