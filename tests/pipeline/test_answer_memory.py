"""Memory of answers is reused, but never while a view of it exists."""

from __future__ import annotations

import pytest

pytest.importorskip("pyarrow", reason="the pipeline needs gregor-broker[spark]")

import pyarrow as pa

from gregor.pipeline.kafka.answer_memory import LEAST_BYTES, MOST_BLOCKS, AnswerMemory

SIZE = 2 * LEAST_BYTES + 5


def test_blocks_in_use_are_not_handed_out_again() -> None:
    memory = AnswerMemory()
    taken = [memory.take(SIZE) for _ in range(2 * MOST_BLOCKS)]
    for number, view in enumerate(taken):
        view[:] = bytes([number]) * SIZE
    slices = [view[10:20] for view in taken]
    arrow = [pa.py_buffer(view) for view in taken]
    del taken, view
    for _ in range(3):
        memory.take(SIZE)[:] = b"x" * SIZE
    assert [bytes(piece) for piece in slices] == [bytes([number]) * 10 for number in range(2 * MOST_BLOCKS)]
    assert [buffer.to_pybytes()[-1] for buffer in arrow] == list(range(2 * MOST_BLOCKS))


def test_released_blocks_are_used_again() -> None:
    memory = AnswerMemory()
    view = memory.take(SIZE)
    view[:4] = b"left"
    assert len(view) == SIZE
    del view
    again = memory.take(SIZE - 1)
    assert (bytes(again[:4]), len(again)) == (b"left", SIZE - 1)
    assert bytes(memory.take(SIZE)[:4]) == bytes(4)


def test_blocks_make_room_for_larger_ones() -> None:
    memory = AnswerMemory()
    for factor in range(1, 3 * MOST_BLOCKS):
        memory.take(factor * SIZE)[:1] = b"a"
    large = (3 * MOST_BLOCKS - 1) * SIZE
    assert bytes(memory.take(large)[:1]) == b"a"
    assert bytes(memory.take(10)) == bytes(10)
