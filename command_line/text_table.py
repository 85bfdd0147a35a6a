"""Tables: text columns as in Kafka's tools, left-aligned and as wide as their longest text, or JSON."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from .colours import BOLD, coloured

MINIMUM_WIDTH = 15
NARROW_COLUMNS = {"PARTITION": 10}


def format_table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    """Return the lines of a table, its head first; None becomes a dash. On a terminal the head is bold."""
    texts = [list(head), *[["-" if cell is None else str(cell) for cell in row] for row in rows]]
    widths = [
        max(NARROW_COLUMNS.get(name, MINIMUM_WIDTH), *(len(row[column]) for row in texts))
        for column, name in enumerate(head)
    ]
    lines = [" ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in texts]
    return [coloured(lines[0], BOLD, sys.stdout), *lines[1:]]


def as_objects(head: Sequence[str], rows: Sequence[Sequence[object]]) -> list[dict[str, object]]:
    """Return the rows of a table as JSON objects, with the names of the columns as ``log_end_offset``."""
    names = [name.lower().replace("-", "_").replace("#", "") for name in head]
    return [dict(zip(names, row, strict=True)) for row in rows]
