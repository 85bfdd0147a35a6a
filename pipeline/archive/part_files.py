"""The layout of rows in Parquet files: a folder for each date or hour, and for each value of chosen fields."""

from __future__ import annotations

import uuid
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from ..filesystems.files import open_output
from ..filesystems.locations import Location
from .description import Period
from .field_folders import NO_VALUE, by_fields

BUFFERED_BYTES = 64 << 20
"""The bytes that a task buffers before it writes the largest folder's rows as a row group."""
FILES_OPEN = 32
DAY_US = 86_400_000_000
HOUR_US = 3_600_000_000
UNKNOWN_PERIOD = -1
"""The number of the folder for rows without a time."""
CODEC = "zstd"


def part_name(folder: str, number: int) -> str:
    """Return a unique name for a file of batch `number`."""
    return f"{folder}/{number}-{uuid.uuid4().hex}.parquet"


class PartWriter:
    """A writer of a Parquet file with checksums, by which readers detect damage.

    The file of a writer that is not closed, as after an error, does not appear in a store.
    """

    def __init__(self, path: Location, schema: pa.Schema) -> None:
        self._output = open_output(path)
        self._rows = parquet.ParquetWriter(self._output, schema, compression=CODEC, write_page_checksum=True)

    def write_table(self, table: pa.Table) -> None:
        """Write a row group. Raises OSError."""
        self._rows.write_table(table)

    def close(self) -> None:
        """Complete the file. Raises OSError."""
        self._rows.close()
        self._output.close()


@dataclass(slots=True)
class _Part:
    """A file that is being written, and the rows of its next row group."""

    name: str
    writer: PartWriter
    waiting: list[pa.RecordBatch] = field(default_factory=list)
    waiting_bytes: int = 0

    def flush(self) -> None:
        if self.waiting:
            self.writer.write_table(pa.Table.from_batches(self.waiting))
        self.waiting, self.waiting_bytes = [], 0


class PartFiles:
    """A writer of one topic's rows under `root/folder`; the names of all files begin with the batch's number.

    A task that is run twice writes other files the second time; only those in its receipt are valid. With `period`
    None and without `fields` (see `field_folders`) all files are in the topic's folder.
    """

    def __init__(
        self,
        root: Location,
        folder: str,
        topic: str,
        number: int,
        schema: pa.Schema,
        period: Period | None,
        fields: Sequence[str] = (),
    ) -> None:
        self._root = root
        self._folder = f"{folder}/topic={topic}"
        self._number = number
        self._schema = schema
        self._period = period
        self._fields = fields
        self._open: OrderedDict[str, _Part] = OrderedDict()
        self._buffered = 0
        self.names: list[str] = []
        """The names of all files so far, relative to the root."""

    def add(self, rows: pa.RecordBatch) -> None:
        """Add rows of the schema, with `timestamp` and `timestampType` if there is a period. Raises OSError."""
        for number, period_rows in self._by_period(rows):
            for field_folder, part_rows in by_fields(period_rows, self._fields):
                part = self._part(self._period_folder(number) + field_folder)
                part.waiting.append(part_rows)
                part.waiting_bytes += part_rows.nbytes
                self._buffered += part_rows.nbytes
        while self._buffered > BUFFERED_BYTES:
            largest = max(self._open.values(), key=lambda part: part.waiting_bytes)
            self._buffered -= largest.waiting_bytes
            largest.flush()

    def close(self) -> list[str]:
        """Write the remaining rows; return the names of all files, relative to the root. Raises OSError."""
        while self._open:
            self._close_oldest()
        return self.names

    def _by_period(self, rows: pa.RecordBatch) -> list[tuple[int, pa.RecordBatch]]:
        if not rows.num_rows:
            return []
        if self._period is None:
            return [(UNKNOWN_PERIOD, rows)]
        numbers = self._numbers(rows)
        if (numbers == numbers[0]).all():
            return [(int(numbers[0]), rows)]
        return [(int(number), rows.filter(pa.array(numbers == number))) for number in np.unique(numbers)]

    def _numbers(self, rows: pa.RecordBatch) -> npt.NDArray[np.int64]:
        """Return the number of each row's folder: its period, counted from the epoch."""
        micros = rows.column("timestamp").view(pa.int64()).to_numpy()
        has_time = pc.greater_equal(rows.column("timestampType"), 0).to_numpy(zero_copy_only=False)
        periods = micros // (HOUR_US if self._period is Period.HOUR else DAY_US)
        numbers: npt.NDArray[np.int64] = np.where(has_time, periods, UNKNOWN_PERIOD)
        return numbers

    def _part(self, folder: str) -> _Part:
        part = self._open.get(folder)
        if part is not None:
            self._open.move_to_end(folder)
            return part
        if len(self._open) >= FILES_OPEN:
            self._close_oldest()
        name = part_name(f"{self._folder}{folder}", self._number)
        part = self._open[folder] = _Part(name, PartWriter(self._root / name, self._schema))
        self.names.append(name)
        return part

    def _period_folder(self, number: int) -> str:
        if self._period is None:
            return ""
        names = ["date", "hour"] if self._period is Period.HOUR else ["date"]
        if number == UNKNOWN_PERIOD:
            return "".join(f"/{name}={NO_VALUE}" for name in names)
        day, hour = divmod(number, 24) if self._period is Period.HOUR else (number, None)
        return f"/date={date_text(day)}" + (f"/hour={hour:02d}" if hour is not None else "")

    def _close_oldest(self) -> None:
        _, part = self._open.popitem(last=False)
        self._buffered -= part.waiting_bytes
        part.flush()
        part.writer.close()


def date_text(day: int) -> str:
    """Return the date of a day, counted from the epoch, as Spark parses it: with four digits of the year or more.

    Producers that count in microseconds make years beyond 9999, and others years before 1, which Python's dates lack.
    """
    text = str(np.datetime64(day, "D"))
    year, month_and_day = int(text[:-6]), text[-6:]
    return f"{'-' if year < 0 else ''}{abs(year):04d}{month_and_day}"
