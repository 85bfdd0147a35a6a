"""The fetched batches of one partition, decoded or passed on when the consumer returns them."""

from __future__ import annotations

from typing import NamedTuple

from ...protocol.errors import BrokerError, ErrorCode
from ...protocol.messages.fetch import PartitionData
from ...protocol.records.aborted import AbortedFilter
from ...protocol.records.batches import BatchView, read_batch
from ...protocol.records.tag_runs import TagRuns
from ...protocol.records.tagged_batches import TaggedBatch, decode_tagged_batches
from ...protocol.topic_partition import AnyTopicPartition
from ..config import ConsumerConfig
from .consumer_record import ConsumerRecord, decode_batch, decode_plain
from .subscription import PartitionPosition


class FetchedBatches(NamedTuple):
    """The batches of one partition in `Consumer.poll_batches`; the next batches begin at `next_offset`.

    The first batch may hold records before `first_offset`, which were not requested.
    """

    topic: str
    partition: int
    first_offset: int
    batches: list[BatchView]
    next_offset: int
    tags: list[TaggedBatch]
    """The enriched tags of all stored batches that were fetched, with `fetch_batch_tags` from a Gregor broker."""
    tag_runs: TagRuns
    """The tags that the source's index has for `batches`, with `fetch_as_stored` from a Gregor broker."""


class FetchedPartition:
    """The answer of one Fetch for one partition, as far as it is not yet returned to the user."""

    __slots__ = (
        "_aborted",
        "_at",
        "_bytes",
        "_check_crcs",
        "_end_offset",
        "_hides_aborted",
        "_next",
        "_records",
        "_tag_runs",
        "_tags",
        "place",
        "position",
    )

    def __init__(
        self, place: AnyTopicPartition, position: PartitionPosition, data: PartitionData, config: ConsumerConfig
    ) -> None:
        self.place = place
        self.position = position
        self._bytes = memoryview(data.records or b"")  # type: ignore[arg-type]
        self._at = 0
        """The position in `_bytes` of the next batch."""
        self._records: list[ConsumerRecord] = []
        self._next = 0
        self._end_offset = 0
        self._check_crcs = config.check_crcs
        self._hides_aborted = config.is_read_committed
        self._tags = data.gregor_batch_tags or b""
        self._tag_runs = data.gregor_tag_runs or b""
        aborted = sorted(data.aborted_transactions or (), key=lambda item: item.first_offset)
        self._aborted = AbortedFilter([(item.first_offset, item.producer_id) for item in aborted])

    @property
    def is_open(self) -> bool:
        """Whether the open batch has records left to return."""
        return self._next < len(self._records)

    def has_records(self) -> bool:
        """Return whether there are records to return; open the next batch if necessary.

        Raises BrokerError for a damaged batch.
        """
        while self._next == len(self._records):
            # The offset after the batch, whose last records compaction may have removed.
            self.position.offset = max(self.position.offset or 0, self._end_offset)
            if not self._open_next():
                return False
        return True

    def take(self, count: int) -> list[ConsumerRecord]:
        """Return up to `count` records of the open batch."""
        taken = self._records[self._next : self._next + count]
        self._next += len(taken)
        return taken

    def take_one(self) -> ConsumerRecord:
        """Return the next record of the open batch."""
        record = self._records[self._next]
        self._next += 1
        return record

    def take_batches(self) -> list[BatchView]:
        """Return the remaining batches, and move the position behind them.

        Raises BrokerError for a damaged first one.
        """
        taken: list[BatchView] = []
        try:
            while (batch := read_batch(self._bytes, self._at)) is not None:
                if self._is_visible(batch):
                    taken.append(batch)
                self._at = batch.end
                self.position.offset = batch.last_offset + 1
        except BrokerError:
            # The intact batches are returned first; the damaged one is fetched again, and raised at the next call.
            if not taken:
                raise
        return taken

    def tags(self) -> list[TaggedBatch]:
        """Return the enriched tags that were fetched with the batches. Raises BrokerError if they cannot be decoded."""
        return decode_tagged_batches(self._tags)

    def tag_runs(self) -> TagRuns:
        """Return the tags of the source's index. Raises BrokerError if they cannot be decoded."""
        return TagRuns.decode(self._tag_runs)

    def _open_next(self) -> bool:
        """Open the next batch, or skip it; return whether there was one. Raises BrokerError for a damaged batch."""
        from_offset = self.position.offset or 0
        topic, partition = self.place
        plain = decode_plain(topic, partition, self._bytes, self._at, from_offset, checks_crc=self._check_crcs)
        if plain is not None:
            self._records, self._at, self._end_offset = plain
            self._next = 0
            return True
        batch = read_batch(self._bytes, self._at)
        if batch is None:
            return False
        is_visible = self._is_visible(batch)
        self._records = decode_batch(topic, partition, batch, from_offset) if is_visible else []
        self._next = 0
        self._at = batch.end
        self._end_offset = batch.last_offset + 1
        return True

    def _is_visible(self, batch: BatchView) -> bool:
        """Return whether the batch has records from the position on, and is neither a marker nor of an aborted
        transaction.
        """
        if self._check_crcs and not batch.crc_is_valid:
            raise BrokerError(ErrorCode.CORRUPT_MESSAGE, f"{batch!r} of {self.place} has a wrong CRC")
        if batch.is_control:
            self._aborted.pass_marker(batch)
            return False
        return batch.last_offset >= (self.position.offset or 0) and not (
            self._hides_aborted and self._aborted.hides(batch)
        )
