"""The check whether stored batches can be sent to a client unchanged."""

from __future__ import annotations

from . import kernel_cy, v0
from .batches import MAGIC_AT
from .compression import Codec
from .lazy import DEFAULT_CHUNK_BYTES
from .stretch import Stretch, as_stretch, window_with_batch

MUST_CONVERT = 1
"""The bit of `kernel_cy.survey` for a batch that must be converted."""


def needs_conversion(stored: memoryview | Stretch, to_magic: int, *, reads_zstd: bool = True) -> bool:
    """Return whether readers of `to_magic` need a conversion of any complete batch of `stored`.

    Readers of 0 and 1 need a conversion of batches of a newer format, and of v0 or v1 wrappers that are to be numbered
    by index; readers of 2 need a conversion of batches of an older format and, unless `reads_zstd`, of zstd.
    """
    needed = MUST_CONVERT if reads_zstd else MUST_CONVERT | 1 << Codec.ZSTD
    stretch = as_stretch(stored)
    position = 0
    while True:
        window = window_with_batch(stretch, position, DEFAULT_CHUNK_BYTES)
        size_bytes, work = kernel_cy.survey(window, 0, len(window), len(window), to_magic)
        if work & needed or size_bytes == 0:
            return work & needed != 0
        position += size_bytes


def readable_bytes(stored: memoryview | Stretch, to_magic: int) -> int:
    """Count the bytes of `stored` before the first batch of a format newer than `to_magic`; all if there is none."""
    stretch = as_stretch(stored)
    begin = 0
    while True:
        window = window_with_batch(stretch, begin, DEFAULT_CHUNK_BYTES)
        position = 0
        while position + MAGIC_AT < len(window):
            if window[position + MAGIC_AT] > to_magic:
                return begin + position
            _, size = v0.OFFSET_AND_SIZE.unpack_from(window, position)
            end = position + v0.OFFSET_AND_SIZE.size + max(size, 0)
            if end > len(window):
                break
            position = end
        if position == 0:
            return stretch.size_bytes
        begin += position
