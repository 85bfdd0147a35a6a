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
