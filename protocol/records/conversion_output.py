"""The buffers of a conversion's pieces while they are sent."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from .convert import Converted
from .record import Buffer

COPIED_BYTES = 128 * 1024
"""The size of the pieces of a converted batch that is larger than the buffer."""


class ConversionOutput:
    """A reusable buffer, and at most one converted batch that is larger than the buffer.

    The caller of the conversion may remove both between two pieces (`clear`), and set another buffer before it requests
    the next piece. A removed batch is converted again.
    """

    __slots__ = ("batch", "buffer", "may_recompress")

    def __init__(self, buffer: Buffer = b"", *, may_recompress: bool = True) -> None:
        self.buffer = memoryview(buffer)
        self.batch: Buffer | None = None
        self.may_recompress = may_recompress
        """Whether the next piece may take milliseconds or seconds."""

    def clear(self) -> None:
        """Release all memory."""
        self.buffer = memoryview(b"")
        self.batch = None

    def pieces_of_batch(self, size_bytes: int, convert: Callable[[], Converted]) -> Iterator[bytes]:
        """Yield copies of `batch`, piece by piece; a batch that was removed is converted again with ``convert``.

        Raises the errors of ``convert``, and ValueError if its result does not have ``size_bytes`` bytes again.
        """
        for start in range(0, size_bytes, COPIED_BYTES):
            if self.batch is None:
                self.batch = convert().data
                if len(self.batch) != size_bytes:
                    raise ValueError(f"a batch became {size_bytes} bytes, and {len(self.batch)} when converted again")
            # No local variable refers to the batch while a piece is sent, so that `clear` frees its memory.
            yield bytes(memoryview(self.batch)[start : start + COPIED_BYTES])
        self.batch = None
