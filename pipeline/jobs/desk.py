"""The interface between a job and its caller: the command line, or a test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Progress(Protocol):
    """A display of the work's progress."""

    def advance(self, done: int) -> None:
        """Show the amount of finished work, counted from the beginning."""


class Metrics(Protocol):
    """The metrics of a running job."""

    def done(self, topic: str, partition: int, *, records: int, size_bytes: int, dead_letters: int = 0) -> None:
        """Count records that were written, the bytes of their keys and values, and values that were undecodable."""

    def position(self, topic: str, partition: int, next_offset: int, end_offset: int) -> None:
        """Set the next offset to read, and the end of the log."""


class NoMetrics:
    """Metrics that nobody asks for."""

    def done(self, topic: str, partition: int, *, records: int, size_bytes: int, dead_letters: int = 0) -> None:
        """Do nothing, see Metrics."""

    def position(self, topic: str, partition: int, next_offset: int, end_offset: int) -> None:
        """Do nothing, see Metrics."""


class Desk(Protocol):
    """The environment of a job."""

    @property
    def metrics(self) -> Metrics:
        """The metrics of the job."""

    def session(self, config: Mapping[str, str] | None = None) -> SparkSession:
        """Return the Spark session, started at the first call; `config` is used only then."""

    def progress(self, total: int, unit: str) -> AbstractContextManager[Progress]:
        """Show progress towards `total` units during the context."""

    def say(self, line: str) -> None:
        """Print a line for the user at once."""


@dataclass(frozen=True, slots=True)
class Summary:
    """The table at a job's end, and the lines below it. `is_clean` is False if the job found a fault.

    `totals` are numbers for programs, such as `records` and `bytes`.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    notes: Sequence[str] = field(default=())
    is_clean: bool = True
    totals: Mapping[str, int] = field(default_factory=dict)
