"""Long lists in pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")

PAGE_ROWS = 50


@dataclass(frozen=True, slots=True)
class Paging:
    """A page of a list, counted from 1; a number beyond the list means its last page."""

    wanted: int
    row_count: int

    @property
    def page(self) -> int:
        """The number of this page."""
        return min(self.wanted, self.page_count)

    @property
    def page_count(self) -> int:
        """The number of pages, at least one."""
        return max(1, -(-self.row_count // PAGE_ROWS))

    def cut(self, rows: Sequence[T]) -> list[T]:
        """Return the rows of this page."""
        return list(rows[(self.page - 1) * PAGE_ROWS : self.page * PAGE_ROWS])
