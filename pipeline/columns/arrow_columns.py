"""Memory shared between a kernel and Arrow: numbers, byte strings, constants, lists.

Nothing here converts a Python object with `pa.array` or `pa.scalar`: PyArrow imports pandas for that, if it is
installed, which takes half a second of CPU and 50 MB in each of Spark's Python workers.
"""

from __future__ import annotations

from array import array
from functools import lru_cache
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from ...protocol.records.batching_cy import BytesRows
from ...protocol.records.columns_cy import BytesColumn
from ...protocol.records.compression import Codec
from .column_memory import ColumnMemory

_FORMATS: dict[pa.DataType, Literal["q", "i", "B"]] = {pa.int64(): "q", pa.int32(): "i", pa.uint8(): "B"}
_WIDTHS = {"q": 8, "i": 4, "B": 1}
_NO_ENDS = bytes(4)


class FixedColumn:
    """Memory for `rows` numbers of an Arrow type; the kernel writes to `view`.

    The memory is of `memory`, or else of Arrow.
    """

    __slots__ = ("_buffer", "_type", "_width", "view")

    def __init__(self, arrow_type: pa.DataType, rows: int, memory: ColumnMemory | None = None) -> None:
        code = _FORMATS[arrow_type]
        self._type = arrow_type
        self._width = _WIDTHS[code]
        size_bytes = max(rows, 1) * self._width
        # Not zeroed: only the rows that the kernel has written are used.
        self._buffer = pa.allocate_buffer(size_bytes) if memory is None else pa.py_buffer(memory.take(size_bytes))
        self.view = memoryview(self._buffer).cast("B").cast(code)

    def buffer(self, rows: int) -> pa.Buffer:
        """Return the memory of the first `rows` numbers."""
        return self._buffer.slice(0, rows * self._width)

    def array(self, rows: int, arrow_type: pa.DataType | None = None) -> pa.Array:
        """Return the first `rows` numbers, optionally as another type of the same width (a timestamp is an int64)."""
        return pa.Array.from_buffers(arrow_type or self._type, rows, [None, self.buffer(rows)])


class BytesStore:
    """Memory for `rows` nullable byte strings of `size_bytes` in all; the kernel appends to `column`."""

    __slots__ = ("_data", "_ends", "_valid", "column")

    def __init__(self, rows: int, size_bytes: int, memory: ColumnMemory | None = None) -> None:
        self._ends = FixedColumn(pa.int32(), rows + 1, memory)
        self._data = FixedColumn(pa.uint8(), size_bytes, memory)
        self._valid = FixedColumn(pa.uint8(), (rows + 7) // 8, memory)
        self.column = BytesColumn(self._ends.view, self._data.view, self._valid.view)

    def array(self, arrow_type: pa.DataType) -> pa.Array:
        """Return the appended values as binary or string."""
        column = self.column
        valid = self._valid.buffer((column.count + 7) // 8) if column.null_count else None
        buffers = [valid, self._ends.buffer(column.count + 1), self._data.buffer(column.size_bytes)]
        return pa.Array.from_buffers(arrow_type, column.count, buffers, column.null_count)


def fixed_rows(array: pa.Array) -> memoryview:
    """Return the numbers of an array without nulls, in the form that a kernel reads."""
    code = _FORMATS[array.type]
    return _elements(array.buffers()[1], code, array.offset, len(array))


def bytes_rows(array: pa.Array) -> BytesRows:
    """Return a binary or string array in the form that a kernel reads."""
    return _rows(array, array.buffers()[2])


def list_rows(array: pa.Array) -> BytesRows:
    """Return the element range of each list in `array.values`, in the form that a kernel reads."""
    return _rows(array, None)


def _rows(array: pa.Array, data: pa.Buffer | None) -> BytesRows:
    valid, ends = array.buffers()[:2]
    has_nulls = valid is not None and array.null_count
    return BytesRows(
        _elements(ends, "i", array.offset, len(array) + 1) if len(array) else memoryview(_NO_ENDS).cast("i"),
        memoryview(data or b"").cast("B"),
        memoryview(valid if has_nulls else b"").cast("B"),
        array.offset,
    )


def _elements(buffer: pa.Buffer, code: Literal["q", "i", "B"], first: int, count: int) -> memoryview:
    return memoryview(buffer).cast("B").cast(code)[first : first + count]


def constant(value: str | int | None, arrow_type: pa.DataType, rows: int) -> pa.Array:
    """Return a column with the same value in each row."""
    # Built for a power of two, so that few arrays are built in all; a slice costs nothing.
    return _repeated(value, arrow_type, 1 << max(rows - 1, 0).bit_length()).slice(0, rows)


def scalar(value: str | int, arrow_type: pa.DataType) -> pa.Scalar:
    """Return a value for functions of `pyarrow.compute`."""
    return constant(value, arrow_type, 1)[0]


@lru_cache(maxsize=64)
def _repeated(value: str | int | None, arrow_type: pa.DataType, rows: int) -> pa.Array:
    if value is None:
        return pa.nulls(rows, arrow_type)
    if isinstance(value, str):
        text = value.encode()
        ends = array("i", range(0, len(text) * (rows + 1), len(text)) if text else bytes(rows + 1))
        data = pa.py_buffer(text * rows)
        return pa.Array.from_buffers(arrow_type, rows, [None, pa.py_buffer(ends), data])
    return pa.Array.from_buffers(arrow_type, rows, [None, pa.py_buffer(array(_FORMATS[arrow_type], [value]) * rows)])


CODEC_NAMES = pa.concat_arrays(
    [constant(codec.name.lower(), pa.string(), 1) for codec in Codec] + [pa.nulls(8 - len(Codec), pa.string())]
)
"""The names by the codec number in a batch's attributes; null for numbers that Kafka does not define."""


def codec_names(codecs: pa.Array) -> pa.Array:
    """Convert codec ids to names."""
    ends = pc.min_max(codecs)
    if ends["min"] == ends["max"]:
        return constant(CODEC_NAMES[codecs[0].as_py()].as_py(), pa.string(), len(codecs))
    return CODEC_NAMES.take(codecs)
