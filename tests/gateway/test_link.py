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
from gregor.gateway.upstream_session import Ask, UpstreamSession

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


class EndingSession(UpstreamSession):
    """A SASL session that the test lets come near its end; its login has two requests."""

    def __init__(self) -> None:
        self.is_near_end = False

    @property
    def ends_soon(self) -> bool:
        return self.is_near_end

    async def renew(self, ask: Ask) -> None:
        assert await ask(b"handshake") == b"go on"
        assert await ask(b"authenticate") == b"welcome"
        self.is_near_end = False


async def test_no_request_is_sent_in_the_middle_of_a_login(nursery: trio.Nursery) -> None:
    """Requests wait for a slow broker, and the session comes near its end meanwhile; brokers refuse them in a login."""
    ours, theirs = socket.socketpair()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    readiness = Readiness()
    nursery.start_soon(readiness.run)
    session = EndingSession()
    transport, lost = SocketTransport(ours), list[Link]()
    link = Link(transport, 1, {}, readiness, nursery, limit_bytes=1 << 20, on_lost=lost.append, session=session)
    produced = 0
    while link.takes_requests_now:
        link.pass_on(bytes(LARGE), None)
        produced += 1
    answers: dict[bytes, bytes] = {}

    async def ask(question: bytes) -> None:
        answers[question] = await link.exchange(question, trio.Event())

    questions = [b"question %d" % number for number in range(4)]
    for question in questions[:3]:
        nursery.start_soon(ask, question)
    await trio.testing.wait_all_tasks_blocked()
    session.is_near_end = True
    nursery.start_soon(ask, questions[3])
    await trio.testing.wait_all_tasks_blocked()
    broker = trio.SocketStream(trio.socket.from_stdlib_socket(theirs))
    await read_frames(broker, produced)
    for request, answer in (b"handshake", b"go on"), (b"authenticate", b"welcome"):
        await trio.testing.wait_all_tasks_blocked()
        assert await read_frames(broker, 1) == [request]
        await trio.testing.wait_all_tasks_blocked()
        assert not link.takes_requests_now
        await broker.send_all(framed(answer))
    asked = await read_frames(broker, len(questions))
    assert sorted(asked) == questions
    await broker.send_all(b"".join(framed(b"to " + question) for question in asked))
    await trio.testing.wait_all_tasks_blocked()
    assert answers == {question: b"to " + question for question in questions}
    assert not lost
    assert link.takes_requests_now
    link.close()
    await broker.aclose()
    nursery.cancel_scope.cancel()
