"""Connections over real socket pairs: order, cut frames, coalesced answers, hang-ups, draining."""

from __future__ import annotations

import contextlib
import socket
import struct
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from gregor.broker.server import connection
from gregor.broker.server.answering_cy import MOST_PENDING
from gregor.broker.server.client_connection import ClientConnection, ClientGoneError, UnanswerableError
from gregor.broker.server.connection import Connection
from gregor.broker.server.outcome import Outcome
from gregor.broker.server.parts import Answer
from gregor.broker.server.pending import Pending
from gregor.broker.server.readiness import Readiness
from gregor.broker.server.transport import SocketTransport
from tests.waiting import PATIENCE_S

FRAME_LIMIT_BYTES = 1 << 20


def framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


class EchoResponder:
    """A responder that answers with the request, in the way that the request's first word selects.

    - ``fast`` is answered at once, and so are ``fast silence`` (with nothing) and ``fast bug`` (raises).
    - ``late`` and ``delayed`` are pending until `give`; ``delayed`` ends with its client.
    - ``fast``, ``late`` and ``task`` are pipelined; others wait for the answers before them.
    - ``plain`` is answered at once. All else needs a task; ``park`` waits for `release` or the client's hang-up,
      ``close`` refuses, ``bug`` raises.
    """

    plain_lane = None

    def __init__(self) -> None:
        self.release = trio.Event()
        self.begun: list[bytes] = []
        self.has_begun = trio.Event()
        self.hung_up = trio.Event()
        self.late: dict[bytes, Pending[Any]] = {}
        self.cancelled: list[bytes] = []

    def is_pipelined(self, frame: memoryview, client: ClientConnection) -> bool:
        return bytes(frame).startswith((b"fast", b"late", b"task"))

    def give(self, *requests: bytes) -> None:
        """Answer requests that are pending."""
        for request in requests:
            self.late[request].complete([request])

    def answer(self, frame: memoryview, client: ClientConnection) -> Outcome[Answer | None]:
        request = bytes(frame)
        if request == b"fast bug":
            raise RuntimeError("a fast bug")
        if request == b"fast silence":
            return None
        if request.startswith(b"fast"):
            return [request]
        if request.startswith((b"late", b"delayed")):
            self.late[request] = Pending(
                ends_with_client=request.startswith(b"delayed"), on_cancel=lambda: self.cancelled.append(request)
            )
            return self.late[request]
        self.begun.append(request)
        self.has_begun.set()
        if request.startswith(b"plain"):
            return [b"<", request, b">"]
        return self.answer_in_task(request, client)

    async def answer_in_task(self, request: bytes, client: ClientConnection) -> Answer | None:
        if request == b"close":
            raise UnanswerableError("asked to")
        if request == b"bug":
            raise RuntimeError("a bug")
        if request == b"silent":
            return None
        if request.startswith(b"park"):
            await self._park(request, client)
        return [b"<", request, b">"]

    async def _park(self, request: bytes, client: ClientConnection) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch, client, nursery.cancel_scope)
            await self.release.wait()
            nursery.cancel_scope.cancel()
        if self.hung_up.is_set():
            raise ClientGoneError(request)

    async def _watch(self, client: ClientConnection, scope: trio.CancelScope) -> None:
        await client.hangup.wait()
        self.hung_up.set()
        scope.cancel()


class Peer:
    """The client's end of a connection, with the connection that serves it."""

    def __init__(self, nursery: trio.Nursery) -> None:
        client_side, self.broker_side = socket.socketpair()
        self.stream = trio.SocketStream(trio.socket.from_stdlib_socket(client_side))
        self.responder = EchoResponder()
        readiness = Readiness()
        client = ClientConnection(("peer", 1), ("here", 2), "PLAINTEXT", "test-0", trio.Event())
        self.connection = Connection(
            SocketTransport(self.broker_side), self.responder, client, readiness, frame_limit_bytes=FRAME_LIMIT_BYTES
        )
        nursery.start_soon(readiness.run)
        nursery.start_soon(self.connection.run)

    async def send(self, *payloads: bytes) -> None:
        await self.stream.send_all(b"".join(map(framed, payloads)))

    async def receive(self, count: int) -> list[bytes]:
        return [await self._read(await self._length()) for _ in range(count)]

    async def _length(self) -> int:
        return int.from_bytes(await self._read(4), "big")

    async def _read(self, size_bytes: int) -> bytes:
        data = b""
        while len(data) < size_bytes:
            piece = await self.stream.receive_some(size_bytes - len(data))
            assert piece, "the broker closed the connection"
            data += bytes(piece)
        return data

    async def is_closed(self) -> bool:
        with trio.fail_after(PATIENCE_S), contextlib.suppress(trio.BrokenResourceError):
            return await self.stream.receive_some(1) == b""
        return True


@pytest.fixture(autouse=True)
def _both_builds(record_build: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run each test with the compiled and the pure build."""
    monkeypatch.setattr(connection, "REFUSALS", (*connection.REFUSALS, vars(connection)["InvalidFrameError"]))


@pytest.fixture
async def peer(nursery: trio.Nursery) -> AsyncIterator[Peer]:
    peer = Peer(nursery)
    yield peer
    await peer.stream.aclose()


async def test_answers_come_in_the_order_of_the_requests(peer: Peer) -> None:
    await peer.send(b"fast 1", b"slow 2", b"fast 3", b"silent", b"fast silence", b"plain 4", b"slow 5")
    expected = [b"fast 1", b"<slow 2>", b"fast 3", b"<plain 4>", b"<slow 5>"]
    assert await peer.receive(len(expected)) == expected


async def test_a_connection_with_many_requests_yields_to_other_tasks(
    peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules[vars(connection)["Answering"].__module__], "TURN_S", 0.0)
    await peer.send(*[b"plain"] * 40)
    await peer.responder.has_begun.wait()
    most_in_turn, seen = 0, 0
    while seen < 40:
        most_in_turn, seen = max(most_in_turn, len(peer.responder.begun) - seen), len(peer.responder.begun)
        await trio.lowlevel.checkpoint()
    # Between two runs of this task the connection has at most two turns, with one request before and one after a read.
    assert most_in_turn <= 4
    assert await peer.receive(40) == [b"<plain>"] * 40


async def test_a_request_that_exhausts_the_turn_is_still_answered_in_a_task(
    peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules[vars(connection)["Answering"].__module__], "TURN_S", 0.0)
    await wait_all_tasks_blocked()
    await peer.send(b"slow")
    with trio.fail_after(PATIENCE_S):
        assert await peer.receive(1) == [b"<slow>"]


async def test_pipelined_requests_behind_a_pending_one_are_answered_in_order(peer: Peer) -> None:
    await peer.send(b"late 1", b"fast 2", b"fast silence", b"late 3", b"fast 4")
    await wait_all_tasks_blocked()
    assert set(peer.responder.late) == {b"late 1", b"late 3"}
    peer.responder.give(b"late 3")
    await wait_all_tasks_blocked()
    with trio.move_on_after(0) as nothing:
        await peer.receive(1)
    assert nothing.cancelled_caught
    peer.responder.give(b"late 1")
    assert await peer.receive(4) == [b"late 1", b"fast 2", b"late 3", b"fast 4"]


@pytest.mark.parametrize("other", [b"slow 2", b"plain 2"])
async def test_requests_that_are_not_pipelined_wait_for_pending_answers(peer: Peer, other: bytes) -> None:
    await peer.send(b"late 1", other, b"fast 3")
    await wait_all_tasks_blocked()
    assert peer.responder.begun == []
    peer.responder.give(b"late 1")
    assert await peer.receive(3) == [b"late 1", b"<" + other + b">", b"fast 3"]


async def test_requests_behind_a_pending_one_that_is_not_pipelined_wait(peer: Peer) -> None:
    await peer.send(b"delayed 1", b"late 2")
    await wait_all_tasks_blocked()
    assert set(peer.responder.late) == {b"delayed 1"}
    await peer.send(b"late 3")
    peer.responder.give(b"delayed 1")
    assert await peer.receive(1) == [b"delayed 1"]
    await wait_all_tasks_blocked()
    peer.responder.give(b"late 3", b"late 2")
    assert await peer.receive(2) == [b"late 2", b"late 3"]


async def test_requests_after_a_coroutine_wait_until_the_coroutine_begins(peer: Peer) -> None:
    """A later request is not handled before the coroutine begins, since its records would come first."""
    await peer.send(b"late 1", b"task 2", b"late 3")
    await wait_all_tasks_blocked()
    assert peer.responder.begun == [b"task 2"]
    assert set(peer.responder.late) == {b"late 1"}
    peer.responder.give(b"late 1")
    assert await peer.receive(2) == [b"late 1", b"<task 2>"]
    await wait_all_tasks_blocked()
    peer.responder.give(b"late 3")
    assert await peer.receive(1) == [b"late 3"]


async def test_a_pending_answer_may_turn_out_to_need_a_task(peer: Peer) -> None:
    await peer.send(b"delayed", b"fast")
    await wait_all_tasks_blocked()
    peer.responder.late[b"delayed"].complete(peer.responder.answer_in_task(b"x", peer.connection.client))
    assert await peer.receive(2) == [b"<x>", b"fast"]


async def test_a_pending_answer_that_fails_closes_the_connection(peer: Peer) -> None:
    await peer.send(b"late 1", b"late 2")
    await wait_all_tasks_blocked()
    peer.responder.late[b"late 2"].fail(UnanswerableError("asked to"))
    peer.responder.give(b"late 1")
    assert await peer.receive(1) == [b"late 1"]
    assert await peer.is_closed()


@pytest.mark.parametrize("is_early", [False, True])
async def test_a_client_that_hangs_up_ends_its_delayed_requests(nursery: trio.Nursery, is_early: bool) -> None:
    peer = Peer(nursery)
    await peer.send(b"late", b"fast")
    await wait_all_tasks_blocked()
    if is_early:
        await peer.stream.aclose()
        assert peer.responder.cancelled == []
    else:
        peer.responder.give(b"late")
        await peer.send(b"delayed")
        await wait_all_tasks_blocked()
        await peer.stream.aclose()
        await wait_all_tasks_blocked()
        assert peer.responder.cancelled == [b"delayed"]


async def test_closing_a_connection_cancels_its_pending_answers(peer: Peer) -> None:
    await peer.send(b"late 1", b"task 2")
    await wait_all_tasks_blocked()
    peer.connection.disconnect()
    await wait_all_tasks_blocked()
    assert peer.responder.cancelled == [b"late 1"]
    peer.responder.give(b"late 1")
    assert await peer.is_closed()


async def test_not_too_many_answers_may_be_pending(peer: Peer) -> None:
    requests = [b"late %d" % number for number in range(MOST_PENDING + 3)]
    await peer.send(*requests)
    await wait_all_tasks_blocked()
    assert len(peer.responder.late) == MOST_PENDING
    peer.responder.give(*requests[:MOST_PENDING])
    assert await peer.receive(MOST_PENDING) == requests[:MOST_PENDING]
    await wait_all_tasks_blocked()
    peer.responder.give(*requests[MOST_PENDING:])
    assert await peer.receive(3) == requests[MOST_PENDING:]


async def test_a_client_that_half_closes_its_connection_gets_its_pending_answers(peer: Peer) -> None:
    await peer.send(b"late 1")
    await peer.stream.send_eof()
    await wait_all_tasks_blocked()
    peer.responder.give(b"late 1")
    assert await peer.receive(1) == [b"late 1"]
    assert await peer.is_closed()


async def test_an_answer_that_completes_after_a_disconnect_is_ignored(peer: Peer) -> None:
    await peer.send(b"late 1")
    await wait_all_tasks_blocked()
    peer.connection.disconnect()
    await wait_all_tasks_blocked()
    peer.responder.give(b"late 1")


async def test_frames_may_come_byte_by_byte(peer: Peer) -> None:
    for byte in framed(b"slow") + framed(b"fast"):
        await peer.stream.send_all(bytes([byte]))
        await wait_all_tasks_blocked()
    assert await peer.receive(2) == [b"<slow>", b"fast"]


async def test_pipelined_answers_leave_with_one_call(peer: Peer) -> None:
    await peer.send(*[b"fast %d" % i for i in range(100)])
    await wait_all_tasks_blocked()
    expected = b"".join(framed(b"fast %d" % i) for i in range(100))
    assert await peer.stream.receive_some(65536) == expected


async def test_a_slow_reader_stops_the_reading_of_requests_and_gets_all_answers(peer: Peer) -> None:
    count = 3000
    async with trio.open_nursery() as nursery:
        nursery.start_soon(peer.send, *[b"fast" + bytes(1000)] * count)
        await wait_all_tasks_blocked()
        assert not peer.connection.waits_for_input
        assert await peer.receive(count) == [b"fast" + bytes(1000)] * count


async def test_a_large_request_and_a_large_answer_pass(peer: Peer) -> None:
    large = b"slow" + bytes(FRAME_LIMIT_BYTES - 4)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(peer.send, large)
        assert await peer.receive(1) == [b"<" + large + b">"]


async def test_responses_after_a_pending_one_wait_and_earlier_ones_do_not(peer: Peer) -> None:
    await peer.send(b"fast 1", b"park", b"fast 2")
    assert await peer.receive(1) == [b"fast 1"]
    await wait_all_tasks_blocked()
    assert peer.responder.begun == [b"park"]
    peer.responder.release.set()
    assert await peer.receive(2) == [b"<park>", b"fast 2"]


@pytest.mark.parametrize("pipelined", [(), (b"fast behind",)])
async def test_a_parked_request_notices_that_its_client_hangs_up(
    nursery: trio.Nursery, pipelined: tuple[bytes, ...]
) -> None:
    peer = Peer(nursery)
    await peer.send(b"park", *pipelined)
    await wait_all_tasks_blocked()
    await peer.stream.aclose()
    with trio.fail_after(PATIENCE_S):
        await peer.responder.hung_up.wait()


async def test_a_refused_request_closes_the_connection_after_the_answers_before_it(peer: Peer) -> None:
    await peer.send(b"fast", b"slow", b"close", b"fast never")
    assert await peer.receive(2) == [b"fast", b"<slow>"]
    assert await peer.is_closed()


@pytest.mark.parametrize(("request_", "bug"), [(b"bug", "a bug"), (b"fast bug", "a fast bug")])
async def test_a_bug_closes_the_connection_and_says_where(
    peer: Peer, caplog: pytest.LogCaptureFixture, request_: bytes, bug: str
) -> None:
    await peer.send(request_)
    assert await peer.is_closed()
    assert f"RuntimeError: {bug}" in caplog.text


async def test_a_frame_over_the_limit_closes_the_connection_with_one_line(
    peer: Peer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    await peer.stream.send_all(struct.pack(">i", FRAME_LIMIT_BYTES + 1))
    assert await peer.is_closed()
    assert [record.levelname for record in caplog.records] == ["INFO"]


async def test_requests_received_before_a_half_close_are_answered(peer: Peer) -> None:
    await peer.send(b"slow 1", b"slow 2")
    await peer.stream.send_eof()
    assert await peer.receive(2) == [b"<slow 1>", b"<slow 2>"]
    assert await peer.is_closed()


async def test_draining_ends_an_idle_connection_at_once(peer: Peer) -> None:
    await wait_all_tasks_blocked()
    peer.connection.drain()
    assert await peer.is_closed()


async def test_draining_lets_a_request_in_flight_finish(peer: Peer) -> None:
    await peer.send(b"park")
    await wait_all_tasks_blocked()
    peer.connection.drain()
    await wait_all_tasks_blocked()
    peer.responder.release.set()
    assert await peer.receive(1) == [b"<park>"]
    assert await peer.is_closed()
