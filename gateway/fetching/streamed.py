"""An answer to Fetch that is passed on while it arrives, without being decoded.

Where both connections are plain sockets, records go from one to the other through a pipe (splice(2)): the gateway does
not copy them. Other bytes are read into one buffer and sent from there.
"""

from __future__ import annotations

import trio

from ...broker.server.connection import UnanswerableError
from ...broker.server.parts import Sink
from ...broker.server.transport import HAS_NO_PIPES, WOULD_BLOCK
from ..frames import CORRELATION_ID
from ..stream import LinkLostError, Stream
from .leader_hints import HintScanner
from .pipes import PIPE_BYTES, Pipes

PIECE_BYTES = 128 * 1024
"""Bytes that are read from a broker at a time."""
LEAST_PIPED_BYTES = 32 * 1024
"""The least that is worth a pipe: the system calls cost more than the copies of fewer bytes."""
HEAD_BYTES = 4 * 1024
"""Bytes that are read first where the structure of an answer is looked at: its records follow the first few."""
TURN_BYTES = 1024 * 1024
"""The bytes after which an answer that has not waited lets other tasks have their turn."""


class StreamMemory:
    """A buffer that all streams of a gateway use, whose content is sent or copied before a task waits, and pipes."""

    def __init__(self) -> None:
        self.space = memoryview(bytearray(PIECE_BYTES))
        self.pipes = Pipes()


class StreamedAnswer:
    """A part that sends a whole answer, as it comes from upstream, while it arrives."""

    __slots__ = ("_hints", "_memory", "_stream", "size")

    def __init__(self, stream: Stream, memory: StreamMemory, hints: HintScanner | None = None) -> None:
        """Send a stream; ``hints`` replaces the addresses of new leaders in an answer that may have some."""
        self._hints = hints
        self._stream = stream
        self._memory = memory
        self.size = stream.size

    async def send_to(self, sink: Sink) -> None:
        """Send the answer. Raises UnanswerableError if the broker ends the connection before its end."""
        stream, hints = self._stream, self._hints
        takes_pipes = stream.is_plain and sink.takes_pipes
        try:
            await sink.write(CORRELATION_ID.pack(stream.correlation_id))
            turn_end = stream.remaining - TURN_BYTES
            if hints is not None or stream.has_begun:
                await self._pass_piece(sink, HEAD_BYTES)
            while stream.remaining:
                unseen_bytes = stream.remaining if hints is None else hints.unseen_bytes
                if takes_pipes and unseen_bytes >= LEAST_PIPED_BYTES:
                    moved_bytes = await self._move(sink, unseen_bytes)
                    if hints is not None:
                        hints.pass_over(moved_bytes)
                    takes_pipes = moved_bytes == unseen_bytes
                else:
                    await self._pass_piece(sink, PIECE_BYTES)
                if 0 < stream.remaining < turn_end:
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
        space = self._memory.space
        count = await self._stream.read_into(space[:most_bytes])
        piece = space[:count] if self._hints is None else self._hints.pass_on(space[:count])
        await sink.write_borrowed(piece, _keep_nothing)

    async def _move(self, sink: Sink, size_bytes: int) -> int:
        """Send the next bytes without a copy; return their number, fewer if the system cannot do so."""
        stream, pipes = self._stream, self._memory.pipes
        pipe = pipes.take()
        if pipe is None:
            return 0
        left_bytes, turn_end = size_bytes, size_bytes - TURN_BYTES
        try:
            while left_bytes or pipe.held_bytes:
                if not pipe.held_bytes:
                    count = stream.move_now(pipe.write_end, min(left_bytes, PIPE_BYTES))
                    if count == WOULD_BLOCK:
                        await stream.wait_readable(left_bytes)
                        turn_end = left_bytes - TURN_BYTES
                        continue
                    if count == HAS_NO_PIPES:
                        pipes.are_usable = False
                        break
                    left_bytes -= count
                    pipe.held_bytes = count
                sent_bytes = sink.send_pipe_now(pipe.read_end, pipe.held_bytes)
                pipe.held_bytes -= sent_bytes
                if not sent_bytes:
                    await sink.wait_writable(stream.wait_alone)
                    turn_end = left_bytes - TURN_BYTES
                elif 0 < left_bytes < turn_end:
                    await trio.lowlevel.checkpoint()
                    turn_end = left_bytes - TURN_BYTES
        finally:
            pipes.give_back(pipe)
        return size_bytes - left_bytes


def _keep_nothing() -> None:
    """Do nothing: the buffer may be used by others once the unsent rest has been copied."""
