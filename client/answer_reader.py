"""Length-prefixed answers out of a byte stream. Sans-IO."""

from ..protocol.errors import DecodeError

LENGTH_SIZE = 4


class AnswerReader:
    """Cuts what a broker sends into answers.

    Each answer has memory of its own, so that the records of a fetch can be views into it for as long as they are used.
    """

    def __init__(self) -> None:
        self._received = bytearray()
        self._position = 0

    def feed(self, data: bytes | bytearray) -> None:
        """Take in bytes as they arrive."""
        if self._position == len(self._received):
            self._received = bytearray()
            self._position = 0
        self._received += data

    def next_frame(self) -> memoryview | None:
        """The next whole answer without its length, or None until more bytes come. Raises DecodeError."""
        start = self._position + LENGTH_SIZE
        if len(self._received) < start:
            return None
        size = int.from_bytes(self._received[self._position : start], "big", signed=True)
        if size < LENGTH_SIZE:
            raise DecodeError(f"an answer of {size} bytes")
        if len(self._received) < start + size:
            self._drop_consumed()
            return None
        if start == LENGTH_SIZE and len(self._received) == start + size:
            # The usual case: one answer has filled the buffer, which goes away with it.
            frame = memoryview(self._received)[start:]
            self._received = bytearray()
            self._position = 0
            return frame
        self._position = start + size
        return memoryview(bytes(memoryview(self._received)[start : start + size]))

    def _drop_consumed(self) -> None:
        if self._position:
            del self._received[: self._position]
            self._position = 0
