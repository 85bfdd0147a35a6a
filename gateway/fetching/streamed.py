"""An answer to Fetch that is passed on while it arrives, without being decoded.

Where both connections are plain sockets, records go from one to the other through a pipe (splice(2)): the gateway does
not copy them. Other bytes are read into one buffer and sent from there.
"""

from __future__ import annotations

import os
from socket import MSG_MORE

import trio

from ...broker.server.client_connection import UnanswerableError
from ...broker.server.parts import Sink, SocketOutlet
from ...broker.server.relay_cy import Relay, RelayStop
from ..frames import CORRELATION_ID
from ..stream import LinkLostError, Stream
from .leader_hints import HintScanner
from .pipes import PIPE_BYTES, UNSUPPORTED, Pipes

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
        socket = sink.socket if stream.descriptor is not None else None
        try:
            await sink.write(CORRELATION_ID.pack(stream.correlation_id))
            turn_end = stream.remaining - TURN_BYTES
            if hints is not None or stream.has_begun:
                await self._pass_piece(sink, HEAD_BYTES)
            while stream.remaining:
                unseen_bytes = stream.remaining if hints is None else hints.unseen_bytes
                if socket is not None and unseen_bytes >= LEAST_PIPED_BYTES and not stream.has_begun:
                    moved_bytes = await self._move(sink, socket, unseen_bytes)
                    if hints is not None:
                        hints.pass_over(moved_bytes)
                    if moved_bytes < unseen_bytes:
                        socket = None
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

    async def _move(self, sink: Sink, socket: SocketOutlet, size_bytes: int) -> int:
        """Send the next bytes without a copy; return their number, fewer if the system cannot do so."""
        stream, pipes = self._stream, self._memory.pipes
        pipe = pipes.take()
        if pipe is None or stream.descriptor is None:
            return 0
        relay = Relay(stream.descriptor, socket.descriptor, (pipe.read_end, pipe.write_end), PIPE_BYTES, size_bytes)
        try:
            # The records that follow fill the segment.
            while not socket.flush_now(MSG_MORE):
                await socket.wait_writable()
            stop = RelayStop.TURN
            while stop is not RelayStop.MOVED:
                before = relay.left_bytes + relay.held_bytes, relay.left_bytes
                stop = RelayStop(relay.run(*stream.readiness.quiet()))
                sink.wrote(before[0] - relay.left_bytes - relay.held_bytes)
                stream.took(before[1] - relay.left_bytes)
                if stop is RelayStop.NEEDS_INPUT:
                    await stream.wait_readable(relay.left_bytes)
                elif stop is RelayStop.FULL:
                    await socket.wait_writable()
                elif stop is RelayStop.TURN:
                    await trio.lowlevel.checkpoint()
                elif stop is RelayStop.SOURCE_HAS_FAILED and relay.error not in UNSUPPORTED:
                    raise stream.lost(os.strerror(relay.error) if relay.error else "closed the connection")
                elif stop is RelayStop.TARGET_HAS_FAILED and relay.error not in UNSUPPORTED:
                    raise OSError(relay.error, os.strerror(relay.error))
                elif stop is not RelayStop.MOVED:
                    pipes.are_usable = False
                    if relay.held_bytes:
                        await sink.write(os.read(pipe.read_end, relay.held_bytes))
                    break
        finally:
            pipes.give_back(pipe, is_empty=not relay.held_bytes)
        return size_bytes - relay.left_bytes


def _keep_nothing() -> None:
    """Do nothing: the buffer may be used by others once the unsent rest has been copied."""
