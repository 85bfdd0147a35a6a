"""Where the truth in a segment ends: a scan that believes nothing, not even the bytes that no CRC covers."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ..protocol.errors import BrokerError
from ..protocol.records.batches import BatchView, Buffer, read_batch
from ..protocol.records.v2 import NO_LEADER_EPOCH

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

    `base_offset`: the segment's. `first_offset`: the least that the first batch may have, None for any. `has_gaps`: whether offsets
    may be missing, as in a compacted log. `max_leader_epoch`: the latest epoch there has been, None if unknown.
    """

    base_offset: int
    first_offset: int | None
    has_gaps: bool = True
    max_leader_epoch: int | None = None


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
    does not contradict it: if that one is good but lies lower, the one that had jumped ahead is the bad one.
    """
    count, next_offset, epoch = 0, rules.first_offset, NO_LEADER_EPOCH
    reason: str | None = None
    believed: BatchView | None = None
    before = (next_offset, epoch)
    while stop is None or position < stop:
        try:
            batch = read_batch(buffer, position)
            if batch is None:
                reason = f"{len(buffer) - position} bytes of an incomplete batch" if position < len(buffer) else None
                break
            reason = _fault_inside(batch, rules) or _fault_in_sequence(batch, rules, next_offset, epoch)
            if (
                reason
                and believed
                and not _fault_inside(batch, rules)
                and not _fault_in_sequence(batch, rules, *before)
            ):
                reason = f"the batch to offset {believed.last_offset} jumps ahead of the one that follows it"
                position, (next_offset, epoch), believed = believed.position, before, None
        except BrokerError as fault:
            reason = fault.message
        if reason:
            break
        if believed is not None:
            count += 1
            if visit is not None:
                visit(believed)
        believed, before = batch, (next_offset, epoch)
        next_offset, epoch = batch.last_offset + 1, max(epoch, batch.leader_epoch)
        position = batch.end
    if believed is not None:
        count += 1
        if visit is not None:
            visit(believed)
    return ScanResult(count, position, rules.base_offset if next_offset is None else next_offset, reason)


def _fault_inside(batch: BatchView, rules: ScanRules) -> str | None:
    if not batch.crc_is_valid:
        return "a CRC that does not fit its bytes"
    if batch.last_offset < batch.stored_offset:
        return f"a last offset {batch.last_offset} below the base offset {batch.stored_offset}"
    if batch.last_offset - rules.base_offset > MAX_RELATIVE_OFFSET:
        return f"offset {batch.last_offset} too far from the segment's base offset {rules.base_offset}"
    if rules.max_leader_epoch is not None and batch.leader_epoch > rules.max_leader_epoch:
        return f"leader epoch {batch.leader_epoch} that is still to come (latest is {rules.max_leader_epoch})"
    return None


def _fault_in_sequence(batch: BatchView, rules: ScanRules, next_offset: int | None, epoch: int) -> str | None:
    if next_offset is None:
        return None
    if batch.last_offset < next_offset:
        return f"offset {batch.last_offset} after {next_offset - 1}"
    # Only formats that store the first offset, or a log without gaps, allow to say where a batch must begin.
    if batch.magic == 2 and batch.stored_offset < next_offset:
        return f"offset {batch.stored_offset} after {next_offset - 1}"
    if not rules.has_gaps and batch.base_offset != next_offset:
        return f"offset {batch.base_offset} where {next_offset} must follow"
    if batch.magic == 2 and batch.leader_epoch < epoch:
        return f"leader epoch {batch.leader_epoch} after {epoch}"
    return None
