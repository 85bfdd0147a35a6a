"""The bytes of a connection, for plain sockets with fewer steps and copies than the streams of trio need."""

from __future__ import annotations

import os

import trio

from ...protocol.conversation import Conversation

READ_BYTES = 256 * 1024
CAN_USE_SYSTEM_CALLS = hasattr(os, "readv")
"""Whether the system reads and writes sockets as files, as all but Windows do."""


class ByteStream:
    """A trio stream that also sends without waiting, and receives into the memory of a conversation."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self._stream = stream
        is_socket = isinstance(stream, trio.SocketStream) and CAN_USE_SYSTEM_CALLS
        self._socket = stream.socket if is_socket and isinstance(stream, trio.SocketStream) else None

    async def receive_into(self, conversation: Conversation) -> int:
        """Wait for bytes and give them to the conversation; return their number, 0 at the end of the stream.

        Raises trio.BrokenResourceError, trio.ClosedResourceError, DecodeError.
        """
        if self._socket is None:
            data = await self._stream.receive_some(READ_BYTES)
            if data:
                conversation.feed(data)
            return len(data)
        while True:
            await trio.lowlevel.wait_readable(self._socket)
            with conversation.room() as room:
                try:
                    size = os.readv(self._socket.fileno(), [room])
                except BlockingIOError:
                    continue
                except OSError as failure:
                    raise trio.BrokenResourceError(str(failure)) from failure
                if size:
                    with room[:size] as received:
                        conversation.received(received)
                return size

    def send_now(self, data: bytes) -> int:
        """Send as many of the bytes as the system takes without waiting, and return their number.

        Returns 0 for streams that are no plain sockets, and for broken ones: `send_all` raises the error.
        """
        if self._socket is None:
            return 0
        try:
            return os.write(self._socket.fileno(), data)
        except OSError:
            return 0
