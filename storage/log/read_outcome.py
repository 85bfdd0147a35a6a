"""The outcomes of a read by `plain_reading_cy.PlainReader`."""

from __future__ import annotations

from enum import IntEnum


class ReadOutcome(IntEnum):
    """The result of `PlainReader.find`."""

    NOT_PLAIN = 0
    """`PartitionLog.read` must read, or report the error."""
    EMPTY = 1
    """There are no records to return."""
    FOUND = 2
    """The reader has a range of at least one byte."""
