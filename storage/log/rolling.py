"""The rules for a new segment: `segment.bytes`, `segment.ms` with its jitter, and the offset range of a segment."""

from __future__ import annotations

import random

from ...protocol.errors import BrokerError, ErrorCode
from ..clock import Clock
from ..index.index_format import NO_RECEIPT
from ..index.offset_index import OffsetIndex
from ..recovery.recovery import MAX_RELATIVE_OFFSET
from .log_config import LogConfig
from .segment import Segment


class RollingRules:
    """The rules of one log; each change of its configuration replaces them (Kafka `LogSegment.shouldRoll`)."""

    __slots__ = ("_clock", "roll_after_ms", "segment_bytes")

    def __init__(self, config: LogConfig, clock: Clock) -> None:
        self._clock = clock
        self.segment_bytes = config.segment_bytes
        jitter_ms = (
            min(random.randint(0, config.segment_jitter_ms), config.segment_ms) if config.segment_jitter_ms else 0
        )
        # The active segment is never compacted, so its records must not exceed the compaction lag (KIP-354).
        longest_ms = min(config.segment_ms, config.max_compaction_lag_ms) if config.is_compacted else config.segment_ms
        self.roll_after_ms = longest_ms - jitter_ms
        """The age, in milliseconds, that a segment may reach."""

    def check_fits_a_segment(self, size_bytes: int) -> None:
        """Raise BrokerError RECORD_LIST_TOO_LARGE if an append has more bytes than `segment.bytes` (Kafka
        `UnifiedLog.append`).
        """
        if size_bytes > self.segment_bytes:
            raise BrokerError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"Message batch size is {size_bytes} bytes which exceeds the maximum configured segment size of "
                f"{self.segment_bytes}.",
            )

    def asks_for_new(self, active: Segment, size_bytes: int, last_offset: int, timestamp_ms: int) -> bool:
        """Return whether a batch of that size, last offset and time belongs into a new segment.

        The active segment is full, or has reached the age of `segment.ms`: by the times of its records, of which
        `timestamp_ms` is the next, or by the clock since the first receipt if the records have no times. An empty
        segment has no age. Raises OSError.
        """
        filled = active.size_bytes
        if size_bytes > self.segment_bytes - filled or last_offset - active.base_offset > MAX_RELATIVE_OFFSET:
            return True
        if not filled:
            return False
        if active.is_suspect and not active.tail_is_good():
            return True
        first = active.first_timestamp
        if first >= 0:
            return timestamp_ms - first > self.roll_after_ms
        # When the process opened the segment says nothing of the age of the records (KAFKA-881).
        receipt_ms = active.looked_up(OffsetIndex.first_receipt_ms)
        began_ms = active.created_ms if receipt_ms == NO_RECEIPT else receipt_ms
        return self._clock.now_ms() - began_ms > self.roll_after_ms
