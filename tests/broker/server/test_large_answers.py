"""Large answers of a connection: begun where requests are answered, sent by threads, ended by the connection's task."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from gregor.broker.server.bulk_answer_cy import COMPILED
from gregor.broker.server.bulk_lane import BulkLane
from gregor.broker.server.client_connection import ClientConnection
from gregor.broker.server.connection import Connection
from gregor.broker.server.outcome import Outcome
from gregor.broker.server.parts import Answer
from gregor.broker.server.pending import Pending
from gregor.broker.server.readiness import Readiness
from gregor.broker.server.transport import SocketTransport
from tests.broker.server.segment_answers import Segment, Settings
from tests.waiting import PATIENCE_S, eventually

pytestmark = pytest.mark.skipif(not COMPILED, reason="uncompiled brokers send large answers in the event loop's thread")


class Records:
    """A responder that answers ``large`` with a range of a file, ``task`` with the same from a task, ``late`` when it
    is told to; all else with the request itself.
    """

    plain_lane = None

    def __init__(self, segment: Segment) -> None:
        self.segment = segment
        self.late: list[Pending[Any]] = []

    def is_pipelined(self, frame: memoryview, client: ClientConnection) -> bool:
        return bytes(frame) == b"late"

    def answer(self, frame: memoryview, client: ClientConnection) -> Outcome[Answer | None]:
        request = bytes(frame)
        if request == b"large":
            return self.segment.answer()
        if request == b"task":
            return self._in_task()
        if request == b"late":
            self.late.append(Pending())
            return self.late[-1]
        return [request]

    async def _in_task(self) -> Answer:
        await trio.lowlevel.checkpoint()
        return self.segment.answer()


class Served:
    """A connection with its client's end."""

    def __init__(self, path: Path) -> None:
        self.segment = Segment(path)
        self.lane = BulkLane(Settings())
        self.readiness = Readiness()
        self.responder = Records(self.segment)
        self.theirs, ours = socket.socketpair()
        self.theirs.setblocking(False)
        client = ClientConnection(("peer", 1), ("here", 2), "PLAINTEXT", "test-0", trio.Event())
        self.connection = Connection(
            SocketTransport(ours), self.responder, client, self.readiness, frame_limit_bytes=1000, lane=self.lane
        )
        self.has_ended = trio.Event()

    async def run(self) -> None:
        """Serve the connection until it ends."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.readiness.run)
            await self.connection.run()
            self.has_ended.set()
            nursery.cancel_scope.cancel()

    async def request(self, *requests: bytes) -> None:
        """Send requests at once."""
        await trio.lowlevel.checkpoint()
        self.theirs.send(b"".join(struct.pack(">i", len(request)) + request for request in requests))

    async def read(self, size_bytes: int, piece_bytes: int = 1 << 20) -> bytes:
        """Read so many bytes, or all that there are before the end."""
        data = bytearray()
        while len(data) < size_bytes:
            await trio.lowlevel.wait_readable(self.theirs)
            piece = self.theirs.recv(min(piece_bytes, size_bytes - len(data)))
            if not piece:
                break
            data += piece
        return bytes(data)

    async def expect(self, *answers: bytes) -> None:
        """Read answers and compare them; a large one is named ``large``."""
        expected = b"".join(
            self.segment.bytes if answer == b"large" else struct.pack(">i", len(answer)) + answer for answer in answers
        )
        assert await self.read(len(expected)) == expected

    def check_all_is_released(self) -> None:
        """Check that no file is open, and that the lane counts no bytes."""
        assert all(held.is_released for held in self.segment.slices)
        assert self.lane.held_bytes == 0


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    one = Served(tmp_path / "segment")
    with trio.fail_after(PATIENCE_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(one.run)
            yield one
            one.theirs.close()
            await one.has_ended.wait()
    one.check_all_is_released()
    one.lane.close()


@pytest.mark.parametrize("first", [b"large", b"task", b"small"])
@pytest.mark.parametrize("last", [b"large", b"task", b"small"])
async def test_answers_come_in_the_order_of_their_requests(served: Served, first: bytes, last: bytes) -> None:
    requests = (first, b"small", b"large", b"large", b"a", b"b", last)
    await served.request(*requests)
    await served.expect(*(b"large" if request == b"task" else request for request in requests))
    # The connection reads again.
    for request in requests:
        await served.request(request)
        await served.expect(b"large" if request == b"task" else request)


async def test_a_large_answer_waits_for_a_pending_one(served: Served) -> None:
    await served.request(b"late", b"late", b"large", b"small")
    await wait_all_tasks_blocked()
    served.responder.late[1].complete([b"two"])
    await wait_all_tasks_blocked()
    assert not served.segment.slices
    served.responder.late[0].complete(served.segment.answer())
    await served.expect(b"large", b"two", b"large", b"small")


async def test_a_client_that_pauses_gets_the_rest(served: Served) -> None:
    await served.request(b"large", b"small")
    head = await served.read(100_000)
    # Threads wait for the client for some time, then the connection's task does.
    await eventually(lambda: not served.lane.is_busy())
    await wait_all_tasks_blocked()
    rest = await served.read(len(served.segment.bytes) - len(head), 10_000)
    assert head + rest == served.segment.bytes
    await served.expect(b"small")


@pytest.mark.parametrize("read_bytes", [0, 1_000_000])
async def test_a_client_that_disconnects_ends_the_connection(served: Served, read_bytes: int) -> None:
    await served.request(b"large", b"large")
    await served.read(read_bytes)
    served.theirs.close()
    await served.has_ended.wait()


@pytest.mark.parametrize("read_bytes", [0, 1_000_000])
async def test_a_connection_that_the_broker_ends_releases_its_files(served: Served, read_bytes: int) -> None:
    await served.request(b"large", b"large")
    await served.read(max(read_bytes, 1))
    served.connection.disconnect()
    await served.has_ended.wait()


async def test_a_half_closed_and_a_drained_connection_send_all(served: Served) -> None:
    await served.request(b"large", b"large")
    first = await served.read(1)
    served.theirs.shutdown(socket.SHUT_WR)
    served.connection.drain()
    both = first + await served.read(len(2 * served.segment.bytes))
    assert both == 2 * served.segment.bytes
    assert await served.read(1) == b""
    await served.has_ended.wait()


async def test_a_truncated_segment_ends_the_connection(served: Served, tmp_path: Path) -> None:
    os.truncate(tmp_path / "segment", 1_000_000)
    await served.request(b"large")
    assert await served.read(len(served.segment.bytes)) == served.segment.bytes[: 1_000_000 + 3]
    await served.has_ended.wait()


async def test_a_cancelled_server_ends_while_threads_send(tmp_path: Path) -> None:
    served = Served(tmp_path / "segment")
    with trio.fail_after(PATIENCE_S), served.theirs:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(served.run)
            await served.request(b"large")
            await served.read(1)
            nursery.cancel_scope.cancel()
    served.check_all_is_released()
    served.lane.close()


async def test_calls_from_threads_come_in_the_task_of_the_sockets() -> None:
    readiness = Readiness()
    names: list[str] = []
    readiness.call_soon(lambda: names.append(trio.lowlevel.current_task().name))
    with trio.fail_after(PATIENCE_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(readiness.run, name="sockets")
            while not names:
                await trio.lowlevel.checkpoint()
            has_come = trio.Event()
            await trio.to_thread.run_sync(readiness.call_soon, has_come.set)
            await has_come.wait()
            nursery.cancel_scope.cancel()
    readiness.call_soon(lambda: names.append("after the end"))
    assert names == ["sockets"]
