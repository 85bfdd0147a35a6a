"""Where the truth in a segment ends: a scan that believes nothing, not even the bytes that no CRC covers."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ...protocol.errors import BrokerError
from ...protocol.records import v2
from ...protocol.records.batches import BatchView, Buffer, read_batch
from ...protocol.records.v2 import NO_LEADER_EPOCH
from ..log.leader_epochs import UNDEFINED_EPOCH, LeaderEpochs

MAX_RELATIVE_OFFSET = 2**31 - 1
"""Offsets of one segment span no more than this (Kafka: an int32 relative to the base offset)."""


class ScanResult(NamedTuple):
    """How far a scan came: whole good batches, bytes that they take, the offset after them, why it ended there.

    `reason` is None if the buffer ended with the last good batch.
    """

    batch_count: int
    valid_bytes: int
    next_offset: int
    reason: str | None


class ScanRules(NamedTuple):
    """What is known of a segment beyond its bytes.

    `base_offset`: the segment's. `first_offset`: the least that the first batch may have, None for any. `has_gaps`:
    whether offsets may be missing, as in a compacted log. `epochs`: the log's checkpoint of them, None if unknown.
    """

    base_offset: int
    first_offset: int | None
    has_gaps: bool = True
    epochs: LeaderEpochs | None = None


def scan(
    buffer: Buffer,
    rules: ScanRules,
    visit: Callable[[BatchView], None] | None = None,
    *,
    position: int = 0,
    stop: int | None = None,
) -> ScanResult:
    """Check batch after batch from `position` on, and call `visit` with each good one, in order.

    Batches that begin at `stop` or after it are left alone.

    A batch is good if it is whole, has the CRC of its bytes and of its format, and offsets and leader epochs that
    follow those before. Offset and leader epoch are outside the CRC, so a batch is only believed once the next one
    does not contradict it: if that one is good but lies lower, the one that had jumped ahead is the bad one, unless the
    checkpoint of leader epochs bears it out.
    """
    scanner = _Scanner(buffer, rules, visit, position)
    while (stop is None or scanner.position < stop) and scanner.advance():
        pass
    return scanner.result()


class _Scanner:
    """The state of a scan: what is known of the sequence before and after the batch that is believed for now."""

    def __init__(
        self, buffer: Buffer, rules: ScanRules, visit: Callable[[BatchView], None] | None, position: int
    ) -> None:
        self._buffer = buffer
        self._rules = rules
        self._visit = visit
        self._count = 0
        self._reason: str | None = None
        self._believed: BatchView | None = None
        self._sequence = self._sequence_before = _Sequence(rules.first_offset, NO_LEADER_EPOCH)
        self.position = position

    def advance(self) -> bool:
        """Check the batch at `position` and go on behind it; False where the good ones end."""
        try:
            batch = read_batch(self._buffer, self.position)
            if batch is None:
                rest_bytes = len(self._buffer) - self.position
                self._reason = f"{rest_bytes} bytes of an incomplete batch" if rest_bytes else None
                return False
            self._reason = (
                _fault_inside(batch, self._rules) or self._fault_in_sequence(batch) or self._fault_of_epoch(batch)
            )
        except BrokerError as fault:
            self._reason = fault.message or fault.code.name
            return False
        if self._reason is not None:
            return False
        self._settle()
        self._believed, self._sequence_before = batch, self._sequence
        self._sequence = _Sequence(batch.last_offset + 1, max(self._sequence.leader_epoch, batch.leader_epoch))
        self.position = batch.end
        return True

    def _fault_in_sequence(self, batch: BatchView) -> str | None:
        fault = _fault_after(self._sequence, batch, self._rules)
        believed = self._believed
        if fault is None or believed is None or not self._had_jumped_ahead_of(batch, believed):
            return fault
        self.position, self._sequence, self._believed = believed.position, self._sequence_before, None
        return f"the batch to offset {believed.last_offset} is contradicted by the next one ({fault})"

    def _had_jumped_ahead_of(self, batch: BatchView, believed: BatchView) -> bool:
        """Return whether `batch` lies below the batch accepted before it, but not below the batches before both."""
        now, before, epochs = self._sequence, self._sequence_before, self._rules.epochs
        if batch.magic == v2.MAGIC and before.leader_epoch <= batch.leader_epoch < now.leader_epoch:
            return epochs is None or epochs.epoch_for_offset(believed.last_offset) != now.leader_epoch
        if not self._rules.has_gaps or now.next_offset is None or before.next_offset is None:
            return False
        return before.next_offset <= batch.stored_offset < now.next_offset

    def _fault_of_epoch(self, batch: BatchView) -> str | None:
        """Return the fault of a batch whose epoch is neither in the checkpoint nor that of a neighbour, else None."""
        epochs, epoch = self._rules.epochs, batch.leader_epoch
        if epochs is None or not UNDEFINED_EPOCH < epochs.latest < epoch or epoch == self._sequence.leader_epoch:
            return None
        following = read_batch(self._buffer, batch.end)
        if following is not None and following.leader_epoch >= epoch and following.crc_is_valid:
            return None
        return f"leader epoch {epoch} that is still to come (latest is {epochs.latest})"

    def _settle(self) -> None:
        if self._believed is not None:
            self._count += 1
            if self._visit is not None:
                self._visit(self._believed)

    def result(self) -> ScanResult:
        """Accept the last batch too, and return how far the scan came."""
        self._settle()
        self._believed = None
        next_offset = self._sequence.next_offset
        return ScanResult(
            self._count, self.position, self._rules.base_offset if next_offset is None else next_offset, self._reason
        )


class _Sequence(NamedTuple):
    """What the next batch must follow."""

    next_offset: int | None
    leader_epoch: int


def _fault_inside(batch: BatchView, rules: ScanRules) -> str | None:
    if not batch.crc_is_valid:
        return "a CRC that does not fit its bytes"
    if batch.last_offset < batch.stored_offset:
        return f"a last offset {batch.last_offset} below the base offset {batch.stored_offset}"
    if batch.last_offset - rules.base_offset > MAX_RELATIVE_OFFSET:
        return f"offset {batch.last_offset} too far from the segment's base offset {rules.base_offset}"
    return None


def _fault_after(sequence: _Sequence, batch: BatchView, rules: ScanRules) -> str | None:
    next_offset, epoch = sequence
    if batch.magic == v2.MAGIC and batch.leader_epoch < epoch:
        return f"leader epoch {batch.leader_epoch} after {epoch}"
    if next_offset is None:
        return None
    # v0 and v1 wrappers store their last offset; where they begin costs a decompression, needed only without gaps.
    begins_at = batch.stored_offset if batch.magic == v2.MAGIC or rules.has_gaps else batch.base_offset
    if begins_at < next_offset:
        return f"offset {begins_at} after {next_offset - 1}"
    if begins_at > next_offset and not rules.has_gaps:
        return f"offset {begins_at} where {next_offset} must follow"
    return None
