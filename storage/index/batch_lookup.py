"""The last steps of a look-up by offset: from batch to batch, by the first bytes of each batch."""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from struct import error as struct_error
from typing import NamedTuple

from ...protocol.records import v0, v2
from ...protocol.records.batches import MAGIC_AT

READ_AHEAD_BYTES = 8192
"""The number of bytes that a look-up reads at once: two index intervals."""

_PLACE = Struct(">qi4xB6xi")
"""The number of first bytes of a batch that contain offset, size, magic and, for v2, the last offset's delta."""
_SHORT_PLACE = Struct(">qi")
_LEAST_BATCH_BYTES = v0.LOG_OVERHEAD + v0.MIN_MESSAGE_SIZE


class Place(NamedTuple):
    """The place of a batch in its segment."""

    position: int
    size_bytes: int
    last_offset: int


class SegmentDamagedError(Exception):
    """Invalid bytes at the start of a batch; such bytes are never served."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(f"damaged at position {position}: {reason}")
        self.position = position


def first_batch_to(offset: int, read_at: Callable[[int, int], bytes], position: int, end: int) -> Place | None:
    """Return the place of the first batch from `position` on that ends at or after `offset`; None if there is none.

    The search ends at `end`. `read_at` returns a number of bytes from a position. Raises OSError, and
    SegmentDamagedError if the bytes before the batch are damaged.
    """
    window, start = b"", position
    try:
        while position < end:
            at = position - start
            if at + _PLACE.size > len(window):
                window, start, at = read_at(READ_AHEAD_BYTES, position), position, 0
            if window[at + MAGIC_AT] == v2.MAGIC:
                last_offset, size, _, delta = _PLACE.unpack_from(window, at)
                last_offset += delta
            else:
                last_offset, size = _SHORT_PLACE.unpack_from(window, at)
            size += v0.LOG_OVERHEAD
            if size < _LEAST_BATCH_BYTES or position + size > end:
                break
            if last_offset >= offset:
                return Place(position, size, last_offset)
            position += size
        else:
            return None
    except (IndexError, struct_error):
        pass
    raise SegmentDamagedError(position, "no batch begins here")
