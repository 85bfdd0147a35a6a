"""The rows of a large answer: `BulkRows`, the table of numbers that the compiled loop of `bulk_answer_cy` reads."""

from __future__ import annotations

from array import array

from ...protocol.records.record import Buffer

BYTES, FILE, CONVERSION = 0, 1, 2
"""The kinds of rows."""
COLUMNS = 11
KIND, SIZE, DESCRIPTOR, POSITION, STORED, FIRST_END, TO_MAGIC, FIRST_OFFSET = 0, 1, 2, 3, 4, 5, 6, 7
"""The columns of a row."""
CONVERTED, TEMPORARY, CPU = 8, 9, 10
"""The columns with the results of a conversion: records, bytes in memory, and CPU time in nanoseconds."""


class BulkRows:
    """A table with a row for each part of an answer, and the bytes of those parts that are in memory already.

    `count` is the number of rows. `begins_converted` tells whether the first row that is not bytes is a conversion that
    begins quickly.
    """

    def __init__(self) -> None:
        self.heads = bytearray()
        self.count = 0
        self.begins_converted = False
        self._has_first = False
        self._columns: list[int] = []
        """The columns of all rows, one after the other."""
        self._table: array[int] | None = None

    @property
    def table(self) -> array[int]:
        """The columns of all rows, one after the other. No rows may be added from now on."""
        if self._table is None:
            self._table = array("q", self._columns)
        return self._table

    def add_bytes(self, data: Buffer) -> None:
        """Add a copy of ``data``."""
        self._columns += (BYTES, len(data), 0, len(self.heads), 0, 0, 0, 0, 0, 0, 0)
        self.heads += data
        self.count += 1

    def add_file(self, descriptor: int, position: int, size_bytes: int) -> None:
        """Add a range of an open file."""
        self._has_first = True
        self._columns += (FILE, size_bytes, descriptor, position, 0, 0, 0, 0, 0, 0, 0)
        self.count += 1

    def add_conversion(
        self,
        descriptor: int,
        position: int,
        stored_bytes: int,
        size_bytes: int,
        first_end: int,
        to_magic: int,
        first_offset: int,
        takes_long: bool = False,
    ) -> None:
        """Add the conversion to ``to_magic`` (0 or 1) of a range of an open file, which becomes ``size_bytes``.

        The first chunk ends at ``first_end``, others have as many batches as fit (`lazy.converted_chunks`). With
        ``takes_long`` it is not for the event loop's thread.
        """
        self.begins_converted = self.begins_converted or not (self._has_first or takes_long)
        self._has_first = True
        range_columns = (CONVERSION, size_bytes, descriptor, position, stored_bytes)
        self._columns += (*range_columns, first_end, to_magic, first_offset, 0, 0, 0)
        self.count += 1

    def counted(self, row: int) -> tuple[int, int, int]:
        """Return the records, the temporary bytes and the CPU time in nanoseconds of a row's conversion."""
        base = row * COLUMNS
        return self.table[base + CONVERTED], self.table[base + TEMPORARY], self.table[base + CPU]
