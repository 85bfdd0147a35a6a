"""Text columns as in Kafka's tools: left-aligned, as wide as their longest text."""

from collections.abc import Sequence

MINIMUM_WIDTH = 15
NARROW_COLUMNS = {"PARTITION": 10}


def format_table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    """Return the lines of a table, its head first; None becomes a dash."""
    texts = [list(head), *[["-" if cell is None else str(cell) for cell in row] for row in rows]]
    widths = [
        max(NARROW_COLUMNS.get(name, MINIMUM_WIDTH), *(len(row[column]) for row in texts))
        for column, name in enumerate(head)
    ]
    return [" ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in texts]
