"""The receive buffer: frames arrive whole from pieces of any size, and announced lengths allocate nothing."""

from __future__ import annotations

import struct

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gregor.broker.server.receive_buffer_cy import INITIAL_BYTES, KEPT_BYTES, InvalidFrameError, ReceiveBuffer

LIMIT_BYTES = 8 << 20
both_builds = settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


@pytest.fixture(autouse=True)
def _both_builds(record_build: str) -> None:
    """Run each test with both builds."""


def framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def put(buffer: ReceiveBuffer, data: bytes) -> int:
    """Give the buffer as much of ``data`` as it has room for; returns how much that was."""
    space = buffer.space()
    count = min(len(space), len(data))
    space[:count] = data[:count]
    buffer.received(count)
    return count


def frames_of(buffer: ReceiveBuffer) -> list[bytes]:
    frames = []
    while (frame := buffer.next_frame()) is not None:
        frames.append(bytes(frame))
    return frames


@both_builds
@given(
    payloads=st.lists(st.binary(max_size=9000), max_size=8),
    cuts=st.lists(st.integers(1, 5000), min_size=1, max_size=20),
)
def test_frames_come_out_whole_however_they_were_cut(payloads: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(map(framed, payloads))
    buffer = ReceiveBuffer(LIMIT_BYTES)
    found: list[bytes] = []
    turn = 0
    while stream:
        count = put(buffer, stream[: cuts[turn % len(cuts)]])
        stream = stream[count:]
        found += frames_of(buffer)
        turn += 1
    assert found == payloads
    assert buffer.is_empty()


def test_an_announced_frame_length_allocates_no_memory() -> None:
    buffer = ReceiveBuffer(100 << 20)
    put(buffer, struct.pack(">i", 100_000_000) + b"a few bytes")
    assert buffer.next_frame() is None
    assert len(buffer.space()) > 0
    assert buffer.capacity_bytes == INITIAL_BYTES


def test_the_buffer_is_at_most_twice_as_large_as_the_received_bytes() -> None:
    buffer = ReceiveBuffer(LIMIT_BYTES)
    stream = framed(bytes(5_000_000))
    arrived = 0
    while arrived < len(stream):
        arrived += put(buffer, stream[arrived:])
        assert buffer.capacity_bytes <= max(INITIAL_BYTES, 2 * arrived)
    assert [len(frame) for frame in frames_of(buffer)] == [5_000_000]


def test_a_large_buffer_shrinks_to_its_initial_size_once_empty() -> None:
    buffer = ReceiveBuffer(LIMIT_BYTES)
    stream = framed(bytes(3_000_000))
    while stream:
        stream = stream[put(buffer, stream) :]
    assert frames_of(buffer)
    assert buffer.capacity_bytes > KEPT_BYTES
    buffer.space()
    assert buffer.capacity_bytes == INITIAL_BYTES


def test_shrink_resets_the_buffer_of_an_idle_client() -> None:
    buffer = ReceiveBuffer(LIMIT_BYTES)
    stream = framed(bytes(300_000))
    while stream:
        stream = stream[put(buffer, stream) :]
    frames_of(buffer)
    buffer.shrink()
    assert buffer.capacity_bytes == INITIAL_BYTES


def test_shrinking_keeps_a_frame_that_has_begun() -> None:
    buffer = ReceiveBuffer(LIMIT_BYTES)
    put(buffer, framed(b"abc")[:5])
    buffer.shrink()
    put(buffer, framed(b"abc")[5:])
    assert frames_of(buffer) == [b"abc"]


@pytest.mark.parametrize("size_bytes", [-1, -(2**31), LIMIT_BYTES + 1, 2**31 - 1])
def test_impossible_lengths_are_refused_at_once(size_bytes: int) -> None:
    buffer = ReceiveBuffer(LIMIT_BYTES)
    put(buffer, struct.pack(">i", size_bytes))
    with pytest.raises(InvalidFrameError):
        buffer.next_frame()
