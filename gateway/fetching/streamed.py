"""An answer to Fetch that is passed on while it arrives, without being decoded.

Where both connections are plain sockets, records go from one to the other through a pipe (splice(2)): the gateway does
not copy them. Other bytes are read into one buffer and sent from there.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import weakref

import trio

from ...broker.server.connection import UnanswerableError
from ...broker.server.parts import Sink
from ...broker.server.transport import HAS_NO_PIPES
from ..frames import CORRELATION_ID
from ..link import LinkLostError, Stream
from .leader_hints import HintScanner

PIECE_BYTES = 128 * 1024
"""Bytes that are read from a broker at a time."""
PIPE_BYTES = 256 * 1024
"""Bytes that are moved from a broker at a time, and so the most that a slow client makes a gateway keep."""
LEAST_PIPED_BYTES = 32 * 1024
"""The least that is worth a pipe: the system calls cost more than the copies of fewer bytes."""
HEAD_BYTES = 4 * 1024
"""Bytes that are read first where the structure of an answer is looked at: its records follow the first few."""
TURN_BYTES = 1024 * 1024
"""The bytes after which an answer lets other tasks have their turn."""


class PieceBuffer:
    """A buffer and a pipe that all streams of a gateway use; their content is sent or copied before a task waits."""

    def __init__(self) -> None:
        self.space = memoryview(bytearray(PIECE_BYTES))
        self.pipe: tuple[int, int] | None = None
        """The descriptors that are read from and written to; None if the system has no pipe for sockets."""
        with contextlib.suppress(OSError):
            self.pipe = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
            weakref.finalize(self, _close, *self.pipe)
            # A user's pipes are limited in size; a smaller one is of use too.
            fcntl.fcntl(self.pipe[1], fcntl.F_SETPIPE_SZ, PIPE_BYTES)


def _close(*descriptors: int) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


class StreamedAnswer:
    """A part that sends a whole answer, as it comes from upstream, while it arrives."""

    __slots__ = ("_buffer", "_hints", "_stream", "size")

    def __init__(self, stream: Stream, buffer: PieceBuffer, hints: HintScanner | None = None) -> None:
        """Send a stream; ``hints`` replaces the addresses of new leaders in an answer that may have some."""
        self._hints = hints
        self._stream = stream
        self._buffer = buffer
        self.size = stream.size

    async def send_to(self, sink: Sink) -> None:
        """Send the answer. Raises UnanswerableError if the broker ends the connection before its end."""
        stream, hints = self._stream, self._hints
        takes_pipes = stream.is_plain and sink.takes_pipes
        try:
            await sink.write(CORRELATION_ID.pack(stream.correlation_id))
            turn_end = stream.remaining - TURN_BYTES
            if hints is not None:
                await self._pass_piece(sink, HEAD_BYTES)
            while stream.remaining:
                unseen_bytes = stream.remaining if hints is None else hints.unseen_bytes
                if not (takes_pipes and unseen_bytes >= LEAST_PIPED_BYTES and await self._pipe(sink, unseen_bytes)):
                    await self._pass_piece(sink, PIECE_BYTES)
                if stream.remaining < turn_end:
                    await trio.lowlevel.checkpoint()
                    turn_end = stream.remaining - TURN_BYTES
            if hints is not None:
                await sink.write(hints.end())
        except LinkLostError as error:
            raise UnanswerableError(f"the answer to Fetch is incomplete: {error}") from error
        finally:
            stream.end()

    async def _pass_piece(self, sink: Sink, most_bytes: int) -> None:
        """Copy some of the answer."""
        space = self._buffer.space
        count = await self._stream.read_into(space[:most_bytes])
        piece = space[:count] if self._hints is None else self._hints.pass_on(space[:count])
        await sink.write_borrowed(piece, _keep_nothing)

    async def _pipe(self, sink: Sink, unseen_bytes: int) -> bool:
        """Send some of the answer without a copy; return whether the system can do so."""
        pipe = self._buffer.pipe
        if pipe is None:
            return False
        count = await self._stream.read_into_pipe(pipe[1], min(unseen_bytes, PIPE_BYTES))
        if count == HAS_NO_PIPES:
            self._buffer.pipe = None
            return False
        if self._hints is not None:
            self._hints.pass_over(count)
        await sink.send_pipe(pipe[0], count)
        return True


def _keep_nothing() -> None:
    """Do nothing: the buffer may be used by others once the unsent rest has been copied."""
