"""Where the pieces of a conversion lie while they are sent."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from .convert import Converted
from .record import Buffer

COPIED_BYTES = 128 * 1024
"""How much of a converted batch that is larger than the buffer is copied for each piece."""


class ConversionOutput:
    """A buffer that is filled again and again, and one converted batch that is larger than it.

    Whoever drives the conversion may take both away between two pieces (`clear`), and give it another buffer before it
    asks for the next piece. A batch that was taken away is converted again.
    """

    __slots__ = ("batch", "buffer", "may_recompress")

    def __init__(self, buffer: Buffer = b"", *, may_recompress: bool = True) -> None:
        self.buffer = memoryview(buffer)
        self.batch: Buffer | None = None
        self.may_recompress = may_recompress
        """Whether the next piece may take milliseconds or seconds."""

    def clear(self) -> None:
        """Let go of all memory."""
        self.buffer = memoryview(b"")
        self.batch = None

    def pieces_of_batch(self, size_bytes: int, convert: Callable[[], Converted]) -> Iterator[bytes]:
        """Return copies of `batch`, piece by piece; if the batch was removed, ``convert`` makes it again.

        Raises what ``convert`` raises, and ValueError if that does not return ``size_bytes`` bytes again.
        """
        for start in range(0, size_bytes, COPIED_BYTES):
            if self.batch is None:
                self.batch = convert().data
                if len(self.batch) != size_bytes:
                    raise ValueError(f"a batch became {size_bytes} bytes, and {len(self.batch)} when converted again")
            # No name of this frame holds the batch while a piece is sent: `clear` sets its memory free.
            yield bytes(memoryview(self.batch)[start : start + COPIED_BYTES])
        self.batch = None
