"""Large answers in the threads of `bulk_lane`: order, turns, slow clients, disconnects and cancellation."""

from __future__ import annotations

import os
import select
import socket
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import trio

from gregor.broker.server import bulk_lane
from gregor.broker.server.bulk_answer_cy import COMPILED
from gregor.broker.server.bulk_lane import BulkLane
from gregor.broker.server.bulk_sending import BulkSending, LargeAnswers
from gregor.broker.server.bulk_stop import BulkStop
from gregor.broker.server.parts import Answer
from gregor.broker.server.readiness import Readiness
from gregor.broker.server.transport import SocketTransport
from gregor.protocol.records.record import Record
from gregor.protocol.records.v2 import build_batch
from tests.broker.server.segment_answers import Segment, Settings
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.skipif(not COMPILED, reason="uncompiled brokers send large answers in the event loop's thread")


async def send(answer: Answer, ours: socket.socket, lane: BulkLane) -> None:
    """Send an answer as a connection does."""
    sending = LargeAnswers(SocketTransport(ours), lane, Readiness().call_soon).sending(answer)
    assert sending is not None
    await sending.finish()


async def received(theirs: socket.socket, size_bytes: int, pause_s: float) -> bytes:
    """Read ``size_bytes`` with pauses."""
    theirs.setblocking(False)
    data = bytearray()
    while len(data) < size_bytes:
        await trio.lowlevel.wait_readable(theirs)
        piece = theirs.recv(100_000)
        if not piece:
            break
        data += piece
        if pause_s:
            await trio.sleep(pause_s)
    return bytes(data)


async def test_more_clients_than_threads_get_their_answers(tmp_path: Path) -> None:
    segment = Segment(tmp_path / "segment")
    lane = BulkLane(Settings())
    pairs = [socket.socketpair() for _ in range(9)]
    got: dict[int, bytes] = {}

    async def read(number: int, theirs: socket.socket) -> None:
        got[number] = await received(theirs, len(segment.bytes), 0.001 * (number % 3))

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            for number, (ours, theirs) in enumerate(pairs):
                nursery.start_soon(read, number, theirs)
                nursery.start_soon(send, segment.answer(), ours, lane)
    assert all(got[number] == segment.bytes for number in range(len(pairs)))
    assert all(held.is_released for held in segment.slices)
    lane.close()
    for pair in pairs:
        for end in pair:
            end.close()


@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_answers_that_begin_together_have_their_first_bytes_before_threads_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_cancelled: bool
) -> None:
    segment = Segment(tmp_path / "segment")
    lane = BulkLane(Settings())
    pairs = [socket.socketpair() for _ in range(6)]
    with_bytes: list[int] = []
    given: list[Any] = []
    begin = lane._begin

    def note(queued: Any) -> None:
        with_bytes.append(len(select.select([theirs for _, theirs in pairs], [], [], 0)[0]))
        given.append(queued)

    monkeypatch.setattr(bulk_lane, "BEGINNING_S", 1e9)
    monkeypatch.setattr(lane, "_begin", note)
    got: dict[int, bytes] = {}

    async def read(number: int, theirs: socket.socket) -> None:
        got[number] = await received(theirs, len(segment.bytes), 0)

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            for ours, _ in pairs:
                nursery.start_soon(send, segment.answer(), ours, lane)
            while len(given) < len(pairs):
                await trio.lowlevel.checkpoint()
            monkeypatch.undo()
            if is_cancelled:
                nursery.cancel_scope.cancel()
            else:
                for number, (_, theirs) in enumerate(pairs):
                    nursery.start_soon(read, number, theirs)
            for queued in given:
                begin(queued)
    assert with_bytes == [len(pairs)] * len(pairs)
    assert all(held.is_released for held in segment.slices)
    assert is_cancelled or all(got[number] == segment.bytes for number in range(len(pairs)))
    lane.close()
    for pair in pairs:
        for end in pair:
            end.close()


async def test_an_answer_is_not_held_for_its_own_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    segment = Segment(tmp_path / "segment")
    lane = BulkLane(Settings())
    monkeypatch.setattr(bulk_lane, "BEGINNING_S", 1e9)
    monkeypatch.setattr(lane, "_hold", lambda queued: pytest.fail("no other client waits"))
    lane._latest_begun = (-1, -1e10)
    ours, theirs = socket.socketpair()
    with ours, theirs, trio.fail_after(60):
        for _ in range(3):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(send, segment.answer(), ours, lane)
                assert await received(theirs, len(segment.bytes), 0) == segment.bytes
    lane.close()


async def test_a_cancelled_answer_releases_its_file_and_its_thread(tmp_path: Path) -> None:
    segment = Segment(tmp_path / "segment")
    lane = BulkLane(Settings(num_network_threads=1))
    ours, theirs = socket.socketpair()
    with ours, theirs:
        with trio.move_on_after(0.05) as scope:
            await send(segment.answer(), ours, lane)
        assert scope.cancelled_caught
    assert segment.slices[0].is_released
    other, client = socket.socketpair()
    with other, client, trio.fail_after(60):
        segment = Segment(tmp_path / "another")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(send, segment.answer(), other, lane)
            assert await received(client, len(segment.bytes), 0) == segment.bytes
    lane.close()


async def test_a_client_that_disconnects_ends_its_answer(tmp_path: Path) -> None:
    segment = Segment(tmp_path / "segment")
    lane = BulkLane(Settings())
    ours, theirs = socket.socketpair()
    with ours, trio.fail_after(60):
        async with trio.open_nursery() as nursery:

            async def expect_an_error() -> None:
                with pytest.raises(OSError):
                    await send(segment.answer(), ours, lane)

            nursery.start_soon(expect_an_error)
            assert await received(theirs, 1000, 0)
            theirs.close()
    lane.close()


async def test_a_truncated_segment_ends_the_answer_with_an_error(tmp_path: Path) -> None:
    segment = Segment(tmp_path / "segment")
    os.truncate(tmp_path / "segment", 1_000_000)
    lane = BulkLane(Settings())
    ours, theirs = socket.socketpair()
    with ours, theirs, trio.fail_after(60):
        async with trio.open_nursery() as nursery:

            async def expect_an_error() -> None:
                with pytest.raises(EOFError):
                    await send(segment.answer(), ours, lane)

            nursery.start_soon(expect_an_error)
            nursery.start_soon(received, theirs, 1_000_003, 0)
    lane.close()


async def test_closing_ends_the_threads(tmp_path: Path) -> None:
    segment = Segment(tmp_path / "segment")
    lane = BulkLane(Settings())
    ours, theirs = socket.socketpair()
    with ours, theirs, trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(send, segment.answer(), ours, lane)
            await received(theirs, len(segment.bytes), 0)
        ours_of_lane = [thread for thread in threading.enumerate() if thread.name.startswith("gregor-network")]
        assert ours_of_lane
        lane.close()
        for thread in ours_of_lane:
            await trio.to_thread.run_sync(thread.join)


def test_answers_with_many_copied_bytes_are_not_sent_by_the_threads() -> None:
    lane = BulkLane(Settings())
    ours, theirs = socket.socketpair()
    with ours, theirs:
        transport = SocketTransport(ours)
        transport.gather(b"before")
        assert LargeAnswers(transport, lane, Readiness().call_soon).sending([bytes(300_000)]) is None
        assert transport.flush_now()
        assert theirs.recv(100) == b"before"


async def test_many_clients_that_do_not_read_hold_little_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk_lane, "HELD_CHUNKS", 2)
    settings = Settings(gregor_message_downconversion_chunk_bytes=128 * 1024)
    lane = BulkLane(settings)
    value = b"x" * 1_000
    batches = [build_batch([Record(first + n, 0, None, value) for n in range(10)]) for first in range(0, 2_000, 10)]
    stored = b"".join(batches)
    path = tmp_path / "segment"
    path.write_bytes(stored)
    answers = []
    with ExitStack() as stack:
        file = stack.enter_context(path.open("rb"))
        for _ in range(50):
            ours, _theirs = (stack.enter_context(end) for end in socket.socketpair())
            ours.setblocking(False)
            answers.append(lane.answer(ours.fileno()))
            answers[-1].rows.add_conversion(file.fileno(), 0, len(stored), len(stored), len(batches[0]), 1, 0)
            assert await lane.run(answers[-1], 0) == BulkStop.FULL
        assert 0 < lane.held_bytes == sum(answer.held_bytes for answer in answers)
        first_ones = 3 * 2 * settings.gregor_message_downconversion_chunk_bytes
        assert lane.held_bytes <= first_ones + len(answers) * bulk_lane.LEAST_AHEAD_BYTES
        for answer in answers:
            lane.forget(answer)
        assert lane.held_bytes == 0
    lane.close()


@pytest.mark.parametrize("is_configured", [False, True])
async def test_clients_that_share_the_threads_have_larger_send_buffers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_configured: bool
) -> None:
    segment = Segment(tmp_path / "segment")
    set_keys = frozenset(["socket.send.buffer.bytes"]) if is_configured else frozenset[str]()
    settings = Settings(num_network_threads=0, set_keys=set_keys)
    lane = BulkLane(settings)
    monkeypatch.setattr(lane, "is_busy", lambda: True)
    sendings: list[BulkSending] = []
    enlarged = []
    with ExitStack() as stack, trio.fail_after(PATIENCE_S):
        for _ in range(3):
            ours, _theirs = (stack.enter_context(end) for end in socket.socketpair())
            before = ours.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
            sending = LargeAnswers(SocketTransport(ours), lane, Readiness().call_soon).sending(segment.answer())
            assert sending is not None
            # The last one starts a thread.
            settings.num_network_threads = len(sendings) // 2
            assert sending.begin(lambda: None)
            sendings.append(sending)
            enlarged.append(ours.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) > before)
        for sending in sendings:
            await sending.stop()
    assert enlarged == ([False] * 3 if is_configured else [False, True, True])
    assert all(held.is_released for held in segment.slices)
    lane.close()
