"""A link whose broker reads slowly: requests stay in order, and no two tasks wait for one socket."""

from __future__ import annotations

import socket

import pytest
import trio
import trio.testing

from gregor.broker.server.readiness import Readiness
from gregor.broker.server.transport import SocketTransport
from gregor.gateway.link import Link
from gregor.gateway.stream import LinkLostError

LARGE = 40_000


def framed(body: bytes) -> bytes:
    """Return the body with its length."""
    return len(body).to_bytes(4, "big") + body


async def read_frames(broker: trio.SocketStream, count: int) -> list[bytes]:
    """Return the next frames that a broker receives."""
    received = b""
    frames: list[bytes] = []
    while len(frames) < count:
        received += await broker.receive_some(65536)
        while len(received) >= 4 and len(received) >= 4 + (size := int.from_bytes(received[:4], "big")):
            frames.append(received[4 : 4 + size])
            received = received[4 + size :]
    return frames


async def test_a_request_is_sent_after_the_requests_passed_on_before_it(nursery: trio.Nursery) -> None:
    """The requests are those of a producer with acks=0 that then requests metadata, for a broker that reads slowly."""
    ours, theirs = socket.socketpair()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    readiness = Readiness()
    nursery.start_soon(readiness.run)
    lost: list[Link] = []
    link = Link(SocketTransport(ours), 1, {}, readiness, nursery, limit_bytes=1 << 20, on_lost=lost.append)
    bodies: list[bytes] = []
    while link.takes_requests_now:
        bodies.append(bytes([len(bodies)]) * LARGE)
        link.pass_on(bodies[-1], None)
    bodies.append(b"question" + bytes(LARGE))
    answers: list[bytes] = []

    async def ask() -> None:
        answers.append(await link.exchange(bodies[-1], trio.Event()))

    nursery.start_soon(ask)
    await trio.testing.wait_all_tasks_blocked()
    broker = trio.SocketStream(trio.socket.from_stdlib_socket(theirs))
    assert await read_frames(broker, len(bodies)) == bodies
    await broker.send_all(framed(b"answer"))
    await trio.testing.wait_all_tasks_blocked()
    assert answers == [b"answer"]
    await broker.aclose()
    await trio.testing.wait_all_tasks_blocked()
    assert lost == [link]
    with pytest.raises(LinkLostError):
        await link.exchange(b"more", trio.Event())
    nursery.cancel_scope.cancel()
