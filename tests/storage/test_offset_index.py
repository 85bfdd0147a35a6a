"""The index of a segment by itself; its use is tested with logs."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from gregor.storage.disk.files import OsFiles
from gregor.storage.disk.open_files import OpenFiles
from gregor.storage.index.offset_index import OffsetIndex


def written(path: Path, entry_count: int) -> None:
    """Write an index that is not finished, as a killed process leaves it."""
    index = OffsetIndex(OpenFiles(OsFiles()), str(path), 0, 1)
    index.create(has_gaps=False)
    for number in range(1, entry_count + 1):
        index.offer(number, number * 100, number)
    index.release_file()


def test_a_recreated_index_keeps_no_entries_of_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.gindex"
    written(path, 500)
    written(path, 200)
    assert OffsetIndex(OpenFiles(OsFiles()), str(path), 0, 1).entry_count == 200


@pytest.mark.parametrize("entry_count", [0, 1, 2, 3, 50])
@pytest.mark.parametrize(
    "gap",
    [
        lambda _: 1,
        lambda number: 1 + number % 7,
        lambda number: 1 + number * number,
        lambda number: 100_000 if number in (1, 49) else 1,
        lambda number: random.Random(number).choice((1, 2, 5_000)),
    ],
    ids=["even", "nearly even", "rising", "two large gaps", "random"],
)
def test_look_ups_find_the_last_entry_up_to_the_limit_however_uneven_the_entries_are(
    tmp_path: Path, entry_count: int, gap: Callable[[int], int]
) -> None:
    base_offset = 1_000
    index = OffsetIndex(OpenFiles(OsFiles()), str(tmp_path / "index"), base_offset, 1)
    index.create(has_gaps=False)
    places: list[tuple[int, int]] = []
    offset, position = base_offset, 0
    for number in range(entry_count):
        offset += gap(number)
        position += 3 * gap(entry_count - number)
        places.append((offset, position))
        index.offer(offset, position, number)
    limits = {offset + near for offset, _ in places for near in (-1, 0, 1)} | {base_offset, base_offset + 10**9}
    for limit in limits:
        before = [position for offset, position in places if offset <= limit]
        assert index.position_before_offset(limit) == (before[-1] if before else 0)
    for limit in {position + near for _, position in places for near in (-1, 0, 1)} | {0, 10**9}:
        expected = [offset for offset, position in places if position <= limit]
        entry = index.tags_at(limit)
        assert (None if entry is None else entry.offset) == (expected[-1] if expected else None)
