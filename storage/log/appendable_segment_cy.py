"""The part of a segment that appends: the sizes and times that change with each batch.

This is ordinary Python that is also compiled: ``appendable_segment_cy.pxd`` has the C types.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

try:
    import cython
except ImportError:
    from ...protocol.records import cython_stand_in as cython

if not cython.compiled:
    from ...protocol.records.produced_cy import ProducedBatch

if TYPE_CHECKING:
    from ..disk.files import Buffer
    from ..disk.open_files import SharedFile
    from ..index.offset_index import OffsetIndex


class AppendableSegment:
    """A segment without its readers; `Segment` adds them and sets all fields."""

    __slots__ = (
        "_file",
        "base_offset",
        "created_ms",
        "first_timestamp",
        "index",
        "is_suspect",
        "magics",
        "max_timestamp",
        "max_timestamp_offset",
        "next_offset",
        "recently_used",
        "size_bytes",
    )

    _file: SharedFile | None
    base_offset: int
    created_ms: int
    first_timestamp: int
    index: OffsetIndex
    is_suspect: bool
    magics: int
    max_timestamp: int
    max_timestamp_offset: int
    next_offset: int
    recently_used: bool
    size_bytes: int

    @property
    def file(self) -> SharedFile:
        """Open the file; see `Segment`."""
        raise NotImplementedError

    def _write_rest(self, data: Buffer, position: int, written: int) -> None:
        raise NotImplementedError

    def _take_back(self, position: int) -> None:
        raise NotImplementedError

    def _index_append(self, data: Buffer, batch: ProducedBatch, position: int, receipt_ms: int, is_exact: bool) -> None:
        raise NotImplementedError

    def append(self, data: Buffer, batch: ProducedBatch, receipt_ms: int = -1, is_exact: bool = False) -> None:
        """Append one batch with offsets (or a run of v0 or v1 messages): all of `data`.

        `receipt_ms`, required for v0, is rounded for v1 and v2 unless `is_exact`. Raises OSError, and appends nothing.
        """
        position = self.size_bytes
        size_bytes = len(data)
        written = (self._file or self.file).write_at(data, position)
        if written != size_bytes:
            self._write_rest(data, position, written)
        self.recently_used = True
        magic = batch.magic
        index = self.index
        is_usual = position < index.next_entry_position and receipt_ms < index.next_receipt_ms
        if is_usual and magic == 2 and not batch.codec and (not is_exact or receipt_ms == index.receipt_ms):
            # The common case of `_index_append`, inlined because this is the hot path.
            self.magics |= 4
            timestamp = batch.max_timestamp
            if timestamp > self.max_timestamp:
                self.max_timestamp = timestamp
                self.max_timestamp_offset = batch.last_offset
            if self.first_timestamp < 0:
                self.first_timestamp = timestamp
        else:
            try:
                self._index_append(data, batch, position, receipt_ms, is_exact or magic == 0)
            except OSError:
                self._take_back(position)
                raise
        self.size_bytes = position + size_bytes
        self.next_offset = batch.last_offset + 1
