"""The options of a read that are the same for a broker and for a log directory."""

from __future__ import annotations

from dataclasses import dataclass

from .schemas import Mode


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The options of a read: rows and their batch size. `least_timestamp` in ms leaves out older batches."""

    mode: Mode
    batch_rows: int
    checks_crc: bool
    with_values: bool
    with_uncompressed_size: bool
    least_timestamp: int
    fails_on_data_loss: bool
    with_headers: bool = True
