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


class Desk(Protocol):
    """The environment of a job."""

    def session(self, config: Mapping[str, str] | None = None) -> SparkSession:
        """Return the Spark session, started at the first call; `config` is used only then."""

    def progress(self, total: int, unit: str) -> AbstractContextManager[Progress]:
        """Show progress towards `total` units during the context."""

    def say(self, line: str) -> None:
        """Print a line for the user at once."""


@dataclass(frozen=True, slots=True)
class Summary:
    """The table at a job's end, and the lines below it. `is_clean` is False if the job found a fault."""

    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    notes: Sequence[str] = field(default=())
    is_clean: bool = True
