"""Frames out of a stream that arrives in any pieces."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gregor.protocol.errors import DecodeError
from gregor.protocol.framing import FrameReader


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


@given(st.lists(st.binary(max_size=40)), st.lists(st.integers(1, 30)))
def test_every_whole_frame_is_returned_for_any_stream_pieces(bodies: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(map(framed, bodies))
    ends = [sum(len(framed(body)) for body in bodies[: count + 1]) for count in range(len(bodies))]
    reader = FrameReader(limit_bytes=100)
    frames: list[memoryview] = []
    received = consumed = 0
    for cut in [*cuts, len(stream)]:
        reader.feed(stream[received : received + cut])
        received = min(received + cut, len(stream))
        complete = max((end for end in ends if end <= received), default=0)
        while (frame := reader.next_frame()) is not None:
            frames.append(frame)
            consumed += 4 + len(frame)
            assert consumed <= complete <= received
        assert consumed == complete, "every whole frame was returned"
    assert [bytes(frame) for frame in frames] == bodies, "earlier frames are unchanged"


@given(
    st.lists(st.sampled_from([0, 1, 100, 5_000, 70_000, 300_000]), min_size=1, max_size=8),
    st.lists(st.integers(1, 200_000), min_size=1, max_size=20),
)
def test_frames_are_the_same_if_bytes_are_received_into_the_memory_of_the_reader(
    sizes: list[int], cuts: list[int]
) -> None:
    bodies = [bytes([number + 1]) * size for number, size in enumerate(sizes)]
    stream = b"".join(map(framed, bodies))
    reader = FrameReader(limit_bytes=1 << 20)
    frames: list[memoryview] = []
    received = 0
    while received < len(stream):
        piece = cuts[received % len(cuts)]
        with reader.room() as room:
            assert len(room) > 0
            data = stream[received : received + min(piece, len(room))]
            room[: len(data)] = data
        reader.received(len(data))
        received += len(data)
        while (frame := reader.next_frame()) is not None:
            frames.append(frame)
    assert [bytes(frame) for frame in frames] == bodies, "earlier frames are unchanged"


def test_room_grows_with_the_bytes_received_and_not_with_the_announced_length() -> None:
    reader = FrameReader(limit_bytes=1 << 30)
    with reader.room() as room:
        room[:4] = (1 << 30).to_bytes(4, "big")
        first = len(room)
    reader.received(4)
    received = 4
    for _ in range(8):
        with reader.room() as room:
            assert len(room) <= max(4 * received, first)
            size = len(room)
        reader.received(size)
        received += size
        assert reader.next_frame() is None


def test_an_invalid_length_is_malformed_when_room_is_asked_for() -> None:
    reader = FrameReader(limit_bytes=100)
    with reader.room() as room:
        room[:4] = b"\xff\xff\xff\xff"
        size = len(room)
    reader.received(size)
    with pytest.raises(DecodeError, match="-1"):
        reader.room()


@pytest.mark.parametrize("length", [-1, -(2**31), 101, 2**31 - 1])
def test_a_length_outside_the_limit_is_malformed(length: int) -> None:
    reader = FrameReader(limit_bytes=100)
    reader.feed(length.to_bytes(4, "big", signed=True))
    with pytest.raises(DecodeError, match=str(length)):
        reader.next_frame()


def test_a_frame_at_the_limit_is_read() -> None:
    reader = FrameReader(limit_bytes=100)
    reader.feed(framed(bytes(100)))
    assert bytes(reader.next_frame() or b"") == bytes(100)


def test_an_announced_frame_costs_nothing_before_it_arrives() -> None:
    reader = FrameReader(limit_bytes=1 << 30)
    tracemalloc.start()
    try:
        reader.feed((1 << 30).to_bytes(4, "big"))
        assert reader.next_frame() is None
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 10_000
