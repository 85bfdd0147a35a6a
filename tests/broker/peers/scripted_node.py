"""A scripted node for tests of connections: it has one action for each request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

from gregor.broker.peers.peer_connection import Address
from gregor.protocol.framing import LENGTH

OnRequest = Callable[[trio.SocketStream, bytes], Awaitable[None]]


async def listening(nursery: trio.Nursery, on_request: OnRequest) -> tuple[Address, list[trio.SocketStream]]:
    """Return the address of a node that does ``on_request`` with each frame, and a list that gets its connections."""
    connections: list[trio.SocketStream] = []

    async def serve(stream: trio.SocketStream) -> None:
        connections.append(stream)
        async with stream:
            while head := bytes(await stream.receive_some(LENGTH.size)):
                (size,) = LENGTH.unpack(head)
                frame = b""
                while len(frame) < size:
                    frame += bytes(await stream.receive_some(size - len(frame)))
                await on_request(stream, frame)

    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    nursery.start_soon(trio.serve_listeners, serve, [listener])
    return listener.socket.getsockname(), connections
