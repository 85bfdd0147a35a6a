"""Stored bytes that a conversion looks at through windows, so that they need not be in memory all at once."""

from __future__ import annotations

from typing import Protocol

from . import v0


class Stretch(Protocol):
    """Consecutive bytes of a log: whole batches, but the last may be cut short."""

    @property
    def size_bytes(self) -> int:
        """Return the number of bytes."""

    def window(self, position: int, size_bytes: int) -> memoryview:
        """Return `size_bytes` bytes from `position` on, fewer at the end; valid until the next call.

        A caller that lets other tasks run in between requests the same bytes again.
        """


class HeldStretch:
    """A stretch that lies in memory."""

    __slots__ = ("_stored",)

    def __init__(self, stored: memoryview) -> None:
        self._stored = stored

    @property
    def size_bytes(self) -> int:
        return len(self._stored)

    def window(self, position: int, size_bytes: int) -> memoryview:
        return self._stored[position : position + size_bytes]


class StretchHead:
    """The first `size_bytes` of another stretch."""

    __slots__ = ("_whole", "size_bytes")

    def __init__(self, whole: Stretch, size_bytes: int) -> None:
        self._whole = whole
        self.size_bytes = size_bytes

    def window(self, position: int, size_bytes: int) -> memoryview:
        return self._whole.window(position, min(size_bytes, self.size_bytes - position))


def as_stretch(stored: memoryview | Stretch) -> Stretch:
    """Wrap bytes in memory as a stretch."""
    return HeldStretch(stored) if isinstance(stored, memoryview) else stored


def window_with_batch(stretch: Stretch, position: int, least_bytes: int) -> memoryview:
    """Return a window of `least_bytes` at `position`, or one that holds the first batch there completely."""
    window = stretch.window(position, max(least_bytes, v0.OFFSET_AND_SIZE.size))
    if len(window) < v0.OFFSET_AND_SIZE.size:
        return window
    _, size = v0.OFFSET_AND_SIZE.unpack_from(window)
    whole_bytes = v0.OFFSET_AND_SIZE.size + size
    if len(window) < whole_bytes <= stretch.size_bytes - position:
        return stretch.window(position, whole_bytes)
    return window
