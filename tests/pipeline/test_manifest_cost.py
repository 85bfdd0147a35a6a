"""The cost of an archive's manifest in a simulated day of `--follow`, counted in bytes that are read and written."""

from __future__ import annotations

from pathlib import Path
from typing import IO, Any

import pytest

pytest.importorskip("pyarrow", reason="the pipeline needs gregor-broker[spark]")

from gregor.pipeline.archive import manifest as manifests
from gregor.pipeline.archive.manifest import DATA, Manifest
from gregor.pipeline.archive.manifest_entry import ArchivedBatch, OffsetRange

ROUNDS = 8_640
"""A day of rounds every ten seconds."""
PARTITIONS = 3
QUARTERS = 4


class Ledger:
    """The bytes that pass through the files of manifests."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bytes = 0
        real_open, real_text = Path.open, Path.read_text

        def counting_open(path: Path, *mode: Any, **more: Any) -> IO[Any]:
            file: IO[Any] = real_open(path, *mode, **more)
            real_write = file.write
            file.write = lambda text: self.add(len(text), real_write(text))  # type: ignore[method-assign]
            return file

        monkeypatch.setattr(Path, "open", counting_open)
        monkeypatch.setattr(Path, "read_text", lambda path: self.add(path.stat().st_size, real_text(path)))
        # The cost is the same without waiting for the disk.
        monkeypatch.setattr("os.fsync", lambda descriptor: None)
        monkeypatch.setattr(manifests, "make_durable", lambda folder, paths: None)

    def add(self, count: int, result: Any) -> Any:
        """Count bytes, and pass the result on."""
        self.bytes += count
        return result


def batch(number: int, *, has_files: bool, replaces: tuple[str, ...] = ()) -> ArchivedBatch:
    """Return the entry of a round with one range and one file for each partition."""
    names = [f"{DATA}/topic=t/date=2030-01-01/{number}-{place:032x}.parquet" for place in range(PARTITIONS)]
    ranges = [OffsetRange("t", place, 10 * number, 10 * number + 10) for place in range(PARTITIONS)]
    return ArchivedBatch(number, ranges, names if has_files else [], 30, 0, 1, {"t": "id"}, {"t": 3}, replaces)


@pytest.mark.parametrize("is_table", [True, False])
def test_the_manifest_cost_of_a_round_stays_constant_over_a_day(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_table: bool
) -> None:
    ledger = Ledger(monkeypatch)
    manifest = Manifest(tmp_path, has_files=not is_table)
    costs, opening, files = [], [], []
    for _ in range(QUARTERS):
        before = ledger.bytes
        for _ in range(ROUNDS // QUARTERS):
            entry = batch(manifest.next_number, has_files=False)
            if not is_table:
                # Files are merged after each 500 new ones, so the manifest names as many and one for each merge.
                is_merge = len(manifest.state.names) >= 500
                entry = batch(entry.number, has_files=True, replaces=tuple(manifest.state.names) if is_merge else ())
            manifest.stage(entry)
            manifest.count(entry)
        costs.append((ledger.bytes - before) * QUARTERS // ROUNDS)
        files.append(len(list((tmp_path / "manifest").iterdir())))
        before = ledger.bytes
        assert Manifest(tmp_path, has_files=not is_table).next_number == manifest.next_number
        opening.append(ledger.bytes - before)
    print(f"bytes a round by quarter: {costs}; to open: {opening}; files: {files}")
    assert max(costs) <= 1.2 * min(costs)
    assert max(opening) <= 128 * max(costs)
    assert max(files) <= 130
    assert manifest.positions() == {("t", place): 10 * ROUNDS for place in range(PARTITIONS)}
