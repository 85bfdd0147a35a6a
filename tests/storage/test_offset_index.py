"""The index of a segment by itself; its use is tested with logs."""

from __future__ import annotations

from pathlib import Path

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
