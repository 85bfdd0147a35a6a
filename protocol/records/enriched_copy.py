"""Copies of stored batches as messages of the enriched layout, with all of their metadata.

A compressed batch becomes one compressed message, an uncompressed batch one message for each record. The layout has no
fields for record headers, producer ids and sequences.
"""

from __future__ import annotations

from collections.abc import Iterator

from .batches import BatchView, iter_records
from .compression import DEFAULT_LIMIT_BYTES
from .control import ControlType, control_type
from .enriched import ControlMessage, EnrichedMessage, KafkaTags, build_compressed_message, seconds_of
from .record import NO_TIMESTAMP, Record

_CONTROL_MESSAGES = {
    ControlType.LEADER_CHANGE: ControlMessage.LEADER_EPOCH,
    ControlType.COMMIT: ControlMessage.COMMIT_TRANSACTION,
    ControlType.ABORT: ControlMessage.ABORT_TRANSACTION,
}


def enriched_copies(
    batch: BatchView, tags: KafkaTags, *, limit_bytes: int = DEFAULT_LIMIT_BYTES
) -> Iterator[EnrichedMessage]:
    """Convert a batch and its `tags` to messages of this layout; none for a batch without records.

    Offsets are kept. Control records without a type in the layout are skipped. Raises BrokerError as
    `batches.iter_records`.
    """
    records = iter_records(batch, limit_bytes=limit_bytes)
    if batch.is_control:
        for record in records:
            control = _CONTROL_MESSAGES.get(control_type(record.key))
            if control is not None:
                yield _message(record, int(control), tags)
    elif batch.is_compressed:
        kept = list(records)
        if kept:
            yield build_compressed_message(
                kept,
                batch.codec,
                received_ms=batch.max_timestamp if tags.timestamp_ms is None else tags.timestamp_ms,
                relative_offsets_honoured=tags.relative_offsets_honoured is not False,
            )
    else:
        for record in records:
            yield _message(record, 0, tags)


def _message(record: Record, message_type: int, tags: KafkaTags) -> EnrichedMessage:
    """Build the message of one record, with its timestamp as receipt time; v0 has a receipt time only as a tag."""
    timestamp_ms = tags.timestamp_ms if record.timestamp == NO_TIMESTAMP else record.timestamp
    if timestamp_ms is None or timestamp_ms < 0:
        return EnrichedMessage(record.offset, message_type, key=record.key, value=record.value)
    return EnrichedMessage(
        record.offset,
        message_type,
        seconds_of(timestamp_ms),
        KafkaTags(timestamp_ms=timestamp_ms),
        record.key,
        record.value,
    )
