"""An answer to Fetch that is passed on while it arrives, without being decoded."""

from __future__ import annotations

from ...broker.server.connection import UnanswerableError
from ...broker.server.parts import Sink
from ..frames import CORRELATION_ID
from ..link import LinkLostError, Stream
from .leader_hints import HintScanner

PIECE_BYTES = 128 * 1024
"""Bytes that are read from a broker at a time, and so the most that a slow client makes a gateway keep."""


class PieceBuffer:
    """A buffer that all streams of a gateway read into; its content is sent or copied before a task waits."""

    def __init__(self) -> None:
        self.space = memoryview(bytearray(PIECE_BYTES))


class StreamedAnswer:
    """A part that sends a whole answer, as it comes from upstream, while it arrives."""

    __slots__ = ("_buffer", "_hints", "_stream", "size")

    def __init__(self, stream: Stream, buffer: PieceBuffer, hints: HintScanner | None = None) -> None:
        """Send a stream; ``hints`` removes the addresses of new leaders from an answer that may have some."""
        self._hints = hints
        self._stream = stream
        self._buffer = buffer
        self.size = stream.size

    async def send_to(self, sink: Sink) -> None:
        """Send the answer. Raises UnanswerableError if the broker ends the connection before its end."""
        stream, space = self._stream, self._buffer.space
        try:
            await sink.write(CORRELATION_ID.pack(stream.correlation_id))
            while count := await stream.read_into(space):
                piece = space[:count] if self._hints is None else self._hints.pass_on(space[:count])
                await sink.write_borrowed(piece, _keep_nothing)
            if self._hints is not None:
                await sink.write(self._hints.end())
        except LinkLostError as error:
            raise UnanswerableError(f"the answer to Fetch is incomplete: {error}") from error
        finally:
            stream.end()


def _keep_nothing() -> None:
    """Do nothing: the buffer may be used by others once the unsent rest has been copied."""
