"""A scan for the valid end of a segment that checks all bytes, also those that no CRC covers."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ...protocol.errors import BrokerError
from ...protocol.records import v2
from ...protocol.records.batches import BatchView, Buffer, read_batch
from ...protocol.records.v2 import NO_LEADER_EPOCH
from ..log.leader_epochs import UNDEFINED_EPOCH, LeaderEpochs

MAX_RELATIVE_OFFSET = 2**31 - 1
"""The largest offset range of one segment (Kafka: an int32 relative to the base offset)."""


class ScanResult(NamedTuple):
    """The result of a scan: number and size of valid batches, the offset after them, and why the scan ended there.

    `reason` is None if the buffer ended with the last valid batch.
    """

    batch_count: int
    valid_bytes: int
    next_offset: int
    reason: str | None


class ScanRules(NamedTuple):
    """The facts about a segment that its bytes must agree with.

    `base_offset`: the base offset of the segment. `first_offset`: the least offset of the first batch, None for any.
    `has_gaps`: whether offsets may be missing, as in a compacted log. `epochs`: the leader epoch checkpoint, or None.
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
    """Check the batches from `position` on in order, and call `visit` with each valid one.

    The scan ends before the first batch that begins at or after `stop`.

    A batch is valid if it is complete, its CRC matches, and its offsets and leader epoch follow those of the batch
    before. Offset and leader epoch are outside the CRC, so a batch is accepted only once the next batch does not
    contradict it: if the next batch is valid but has a lower offset or epoch, the earlier batch is the invalid one,
    unless the checkpoint of leader epochs confirms it.
    """
    scanner = _Scanner(buffer, rules, visit, position)
    while (stop is None or scanner.position < stop) and scanner.advance():
        pass
    return scanner.result()


class _Scanner:
    """The state of a scan: the sequence before and after the batch that awaits its confirmation by the next one."""

    def __init__(
        self, buffer: Buffer, rules: ScanRules, visit: Callable[[BatchView], None] | None, position: int
    ) -> None:
        self._buffer = buffer
        self._rules = rules
        self._visit = visit
        self._count = 0
        self._reason: str | None = None
        self._unconfirmed: BatchView | None = None
        self._sequence = self._sequence_before = _Sequence(rules.first_offset, NO_LEADER_EPOCH)
        self.position = position

    def advance(self) -> bool:
        """Check the batch at `position` and advance to the next one; return False at the end of the valid batches."""
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
        self._unconfirmed, self._sequence_before = batch, self._sequence
        self._sequence = _Sequence(batch.last_offset + 1, max(self._sequence.leader_epoch, batch.leader_epoch))
        self.position = batch.end
        return True

    def _fault_in_sequence(self, batch: BatchView) -> str | None:
        fault = _fault_after(self._sequence, batch, self._rules)
        unconfirmed = self._unconfirmed
        if fault is None or unconfirmed is None or not self._had_jumped_ahead_of(batch, unconfirmed):
            return fault
        self.position, self._sequence, self._unconfirmed = unconfirmed.position, self._sequence_before, None
        return f"the batch to offset {unconfirmed.last_offset} does not fit the batch after it ({fault})"

    def _had_jumped_ahead_of(self, batch: BatchView, unconfirmed: BatchView) -> bool:
        """Return whether `batch` lies below the batch accepted before it, but not below the batches before both."""
        now, before, epochs = self._sequence, self._sequence_before, self._rules.epochs
        if batch.magic == v2.MAGIC and before.leader_epoch <= batch.leader_epoch < now.leader_epoch:
            return epochs is None or epochs.epoch_for_offset(unconfirmed.last_offset) != now.leader_epoch
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
        return f"leader epoch {epoch} is above the latest one ({epochs.latest})"

    def _settle(self) -> None:
        if self._unconfirmed is not None:
            self._count += 1
            if self._visit is not None:
                self._visit(self._unconfirmed)

    def result(self) -> ScanResult:
        """Accept the last batch too, and return the result of the scan."""
        self._settle()
        self._unconfirmed = None
        next_offset = self._sequence.next_offset
        return ScanResult(
            self._count, self.position, self._rules.base_offset if next_offset is None else next_offset, self._reason
        )


class _Sequence(NamedTuple):
    """The offset and leader epoch that the next batch must follow."""

    next_offset: int | None
    leader_epoch: int


def _fault_inside(batch: BatchView, rules: ScanRules) -> str | None:
    if not batch.crc_is_valid:
        return "its CRC does not match its bytes"
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
    # v0 and v1 wrappers store their last offset; their first one costs a decompression, needed only without gaps.
    begins_at = batch.stored_offset if batch.magic == v2.MAGIC or rules.has_gaps else batch.base_offset
    if begins_at < next_offset:
        return f"offset {begins_at} after {next_offset - 1}"
    if begins_at > next_offset and not rules.has_gaps:
        return f"offset {begins_at} where {next_offset} must follow"
    return None
