"""What a job is given, and what it gives back. The command line is one that gives; tests are another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Progress(Protocol):
    """Something that shows how far the work is."""

    def advance(self, done: int) -> None:
        """So much is done, counted from the beginning."""


class Desk(Protocol):
    """Where a job works."""

    def session(self, config: Mapping[str, str] | None = None) -> SparkSession:
        """The Spark session, started when it is first asked for; `config` counts only then."""

    def progress(self, total: int, unit: str) -> AbstractContextManager[Progress]:
        """Show progress towards `total` units while inside."""

    def say(self, line: str) -> None:
        """Tell the user something at once."""


@dataclass(frozen=True, slots=True)
class Summary:
    """The table at a job's end, and lines beneath it. A summary `is_clean` unless the job found something wrong."""

    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    notes: Sequence[str] = field(default=())
    is_clean: bool = True
