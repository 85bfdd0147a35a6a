"""Memory of columns is reused, but never while an Arrow array of it exists."""

from __future__ import annotations

import pytest

pytest.importorskip("pyarrow", reason="the pipeline needs gregor-broker[spark]")

import pyarrow as pa

from gregor.pipeline.columns import column_memory
from gregor.pipeline.columns.column_memory import LEAST_BYTES, MOST_BLOCKS, ColumnMemory
from gregor.pipeline.columns.record_batches import RecordBatches, RecordOptions
from gregor.pipeline.synthetic.synthetic import Recipe
from gregor.protocol.records.compression import Codec

SIZE = 2 * LEAST_BYTES + 5


def first_of_batch(memory: ColumnMemory, size_bytes: int) -> memoryview:
    memory.begin_batch()
    return memory.take(size_bytes)


def test_memory_of_an_array_is_not_handed_out_again() -> None:
    memory = ColumnMemory()
    arrays = []
    for number in range(3 * MOST_BLOCKS):
        view = first_of_batch(memory, SIZE)
        view[:] = bytes([number]) * SIZE
        arrays.append(pa.Array.from_buffers(pa.uint8(), 10, [None, pa.py_buffer(view)[5:15]]))
    del view
    for _ in range(3):
        first_of_batch(memory, SIZE)[:] = b"x" * SIZE
    assert [array.to_pylist() for array in arrays] == [[number] * 10 for number in range(3 * MOST_BLOCKS)]


def test_each_column_gets_its_own_memory_again() -> None:
    memory = ColumnMemory()
    for word in (b"key", b"value"):
        memory.take(SIZE)[: len(word)] = word
    memory.begin_batch()
    assert bytes(memory.take(SIZE + 1)[:3]) == b"key"
    assert bytes(memory.take(SIZE - 1)[:5]) == b"value"
    assert bytes(memory.take(SIZE)[:5]) == bytes(5)


@pytest.mark.parametrize("sizes", [(1, SIZE, 9 * SIZE), (9 * SIZE, SIZE, 1), (0, LEAST_BYTES - 1, LEAST_BYTES)])
def test_columns_have_the_size_that_was_asked_for(sizes: tuple[int, ...]) -> None:
    memory = ColumnMemory()
    for _ in range(3):
        for size_bytes in sizes:
            assert len(first_of_batch(memory, size_bytes)) == size_bytes


@pytest.fixture
def small_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(column_memory, "LEAST_BYTES", 1)


@pytest.mark.parametrize("kept", [0, 1, 1000])
def test_batches_that_a_reader_keeps_do_not_change(kept: int, small_columns: None) -> None:
    recipe = Recipe(seed=1, records=300, partitions=1, value_bytes=100, codec=Codec.LZ4)
    stored = memoryview(b"".join(recipe.batches(0)))
    expected = pa.Table.from_batches(RecordBatches("t", 0, RecordOptions()).read(stored)).to_pylist()
    reader = RecordBatches("t", 0, RecordOptions(batch_rows=70), memory=ColumnMemory())
    waiting: list[pa.RecordBatch] = []
    found = []
    for batch in reader.read(stored):
        waiting.append(batch)
        if len(waiting) > kept:
            found += waiting.pop(0).to_pylist()
    found += [row for batch in waiting for row in batch.to_pylist()]
    assert found == expected
