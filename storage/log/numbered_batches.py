"""Checks of batches that already have offsets, from a leader's log or from the source of a mirror."""

from __future__ import annotations

from dataclasses import dataclass

from ...protocol.errors import BrokerError, ErrorCode
from ...protocol.records import v2
from ...protocol.records.batches import BatchView, iter_batches
from ...protocol.records.compression import Codec
from ...protocol.records.produced_cy import ProducedBatch
from ...protocol.records.record import Buffer
from ...protocol.records.tag_runs import NO_COUNT, NO_TAG_RUNS, TagRun, TagRuns
from ..index.batch_tags import tags_inside
from ..index.index_format import NO_RECEIPT, NON_KEYED


@dataclass(slots=True)
class NumberedBatch:
    """A batch with its offsets, or a run of uncompressed v0 or v1 messages with consecutive offsets.

    `data` has all of its bytes; `view` is its header, None for a run. `has_gap_before`: offsets are missing between
    the batch before and this one. `receipt_is_known`: the receipt time is that of the other log. The messages of a run
    have one receipt time.
    """

    data: memoryview
    batch: ProducedBatch
    view: BatchView | None
    leader_epoch: int
    receipt_ms: int
    receipt_is_known: bool
    has_gap_before: bool


def read_numbered(
    records: Buffer, next_offset: int, latest_epoch: int, now_ms: int, tags: TagRuns = NO_TAG_RUNS
) -> list[NumberedBatch]:
    """Check and return the whole batches of `records` for a log that ends at `next_offset`.

    `tags` are those of the other log by position in `records`; `now_ms` is the receipt time of batches without one. A
    batch with tags is not decompressed, nor is any v2 batch: without tags it counts as keyed, which is always safe.
    Raises BrokerError: OFFSET_OUT_OF_RANGE if the first batch begins below `next_offset`, CORRUPT_MESSAGE for a damaged
    batch, or if offset and leader epoch do not rise from batch to batch.
    """
    data = memoryview(records)
    numbered: list[NumberedBatch] = []
    for view in iter_batches(records):
        _check_bytes(view)
        run = tags.of(view)
        is_known = run is not None and run.receipt_ms > NO_RECEIPT
        receipt_ms = run.receipt_ms if run is not None and is_known else now_ms
        batch = _described(view, run)
        if batch.base_offset < next_offset:
            code = ErrorCode.CORRUPT_MESSAGE if numbered else ErrorCode.OFFSET_OUT_OF_RANGE
            raise BrokerError(code, f"A batch begins at offset {batch.base_offset} where {next_offset} is the least")
        if view.magic == v2.MAGIC and view.leader_epoch < latest_epoch:
            raise BrokerError(
                ErrorCode.CORRUPT_MESSAGE,
                f"The batch at offset {batch.base_offset} is of leader epoch {view.leader_epoch}, after {latest_epoch}",
            )
        has_gap = batch.base_offset > next_offset
        if numbered and not has_gap and _continues_run(numbered[-1], view, receipt_ms):
            _extend(numbered[-1], view, data)
        else:
            piece = data[view.position : view.end]
            is_run = view.magic < v2.MAGIC and not view.is_compressed
            numbered.append(
                NumberedBatch(piece, batch, None if is_run else view, view.leader_epoch, receipt_ms, is_known, has_gap)
            )
        next_offset = batch.last_offset + 1
        latest_epoch = max(latest_epoch, view.leader_epoch)
    return numbered


def _check_bytes(view: BatchView) -> None:
    if not view.crc_is_valid:
        raise BrokerError(ErrorCode.CORRUPT_MESSAGE, f"Record is corrupt (stored crc = {view.crc})")
    if view.stored_offset < 0 or view.last_offset < view.stored_offset:
        raise BrokerError(
            ErrorCode.CORRUPT_MESSAGE, f"Offsets {view.stored_offset} to {view.last_offset} in the header of a batch"
        )


def _described(view: BatchView, run: TagRun | None) -> ProducedBatch:
    batch = ProducedBatch(
        position=view.position,
        size_bytes=view.size_bytes,
        magic=view.magic,
        codec=view.codec,
        record_count=1 if view.record_count is None else view.record_count,
        max_timestamp=view.max_timestamp,
        keyed=run is None or run.keyed,
        is_transactional=view.is_transactional,
        is_control=view.is_control,
        base_offset=view.stored_offset,
        last_offset=view.last_offset,
    )
    if view.magic < v2.MAGIC and view.is_compressed:
        if run is not None and run.num_messages != NO_COUNT:
            batch.base_offset, batch.record_count = run.first_offset, run.num_messages
        else:
            tags = tags_inside(view, NO_RECEIPT)
            batch.base_offset = tags.first_offset
            batch.record_count = tags.num_messages
            batch.keyed = tags.flags != NON_KEYED
        batch.relative_offsets_honoured = not view.is_numbered_by_index
    return batch


def _continues_run(item: NumberedBatch, view: BatchView, receipt_ms: int) -> bool:
    return (
        item.view is None
        and item.batch.magic == view.magic
        and view.codec is Codec.NONE
        and item.receipt_ms == receipt_ms
    )


def _extend(item: NumberedBatch, view: BatchView, data: memoryview) -> None:
    run = item.batch
    run.size_bytes += view.size_bytes
    run.record_count += 1
    run.last_offset = view.last_offset
    run.max_timestamp = max(run.max_timestamp, view.max_timestamp)
    item.data = data[run.position : view.end]
