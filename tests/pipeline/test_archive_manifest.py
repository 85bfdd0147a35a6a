"""The manifest of an archive: what counts, what is swept, and what is refused."""

import json
import multiprocessing
from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="the pipeline needs gregor[spark]")

from hypothesis import given
from hypothesis import strategies as st

from gregor.pipeline.archive.manifest import ArchivedBatch, Manifest, ManifestError, OffsetRange
from gregor.pipeline.archive.row_table import ParquetFiles
from gregor.pipeline.archive.writer_lock import WriterLock


def batch(number: int, *ranges: OffsetRange, files: tuple[str, ...] = (), topic_id: str = "a") -> ArchivedBatch:
    """An entry with one topic id."""
    return ArchivedBatch(number, list(ranges), list(files), 10, 0, 1, {"t": topic_id})


def commit(root: Path, entry: ArchivedBatch) -> None:
    """Make it count, its files being staged."""
    manifest = Manifest(root)
    manifest.stage(entry)
    ParquetFiles(manifest).publish(entry)
    manifest.count(entry)


def data_file(root: Path, name: str) -> str:
    """Make a file of an archive; returns its name relative to the root."""
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("rows")
    return name


def test_what_is_committed_is_there_when_opened_again(tmp_path: Path) -> None:
    assert Manifest(tmp_path).next_number == 0
    entries = [batch(0, OffsetRange("t", 0, 0, 5)), batch(1, OffsetRange("t", 0, 5, 9), OffsetRange("t", 1, 0, 3))]
    for entry in entries:
        commit(tmp_path, entry)
    again = Manifest(tmp_path)
    assert again.batches == entries
    assert again.positions() == {("t", 0): 9, ("t", 1): 3}


def test_a_batch_out_of_turn_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ManifestError, match="batch 1 is not the next one, 0"):
        Manifest(tmp_path).stage(batch(1))


def test_files_of_a_batch_that_was_never_decided_are_swept(tmp_path: Path) -> None:
    counted = "data/topic=t/date=2020-01-01/0-a.parquet"
    data_file(tmp_path, f"staged/{counted}")
    commit(tmp_path, batch(0, files=(counted,)))
    leftovers = {
        data_file(tmp_path, f"staged/{name}")
        for name in ("data/topic=t/date=2020-01-01/1-b.parquet", "dead_letters/topic=t/1-c.parquet", f"{1:020d}.part")
    }
    leftovers.add(data_file(tmp_path, "data/topic=t/date=2020-01-01/0-replaced.parquet"))
    foreign = data_file(tmp_path, "data/README")
    manifest = Manifest(tmp_path)
    removed = [*manifest.sweep(), *ParquetFiles(manifest).sweep()]
    assert {path.relative_to(tmp_path).as_posix() for path in removed} == leftovers
    assert not (tmp_path / "staged").exists()
    assert (tmp_path / counted).exists()
    assert (tmp_path / foreign).exists()
    assert Manifest(tmp_path).files() == [tmp_path / counted]


def test_a_file_that_is_not_there_does_not_count(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Manifest(tmp_path).stage(batch(0, files=("data/0-missing.parquet",)))
    manifest = Manifest(tmp_path)
    assert manifest.next_number == 0
    assert manifest.pending is None


def test_a_batch_that_was_decided_counts_whatever_happens(tmp_path: Path) -> None:
    names = [f"data/topic=t/0-{number}.parquet" for number in range(3)]
    for name in names:
        data_file(tmp_path, f"staged/{name}")
    entry = batch(0, files=tuple(names))
    Manifest(tmp_path).stage(entry)
    assert not (tmp_path / "data").exists(), "nobody sees rows of what does not count"
    # As if the process had died after the first file.
    (tmp_path / "data" / "topic=t").mkdir(parents=True)
    (tmp_path / "staged" / names[0]).rename(tmp_path / names[0])
    manifest = Manifest(tmp_path)
    assert manifest.pending == entry
    assert manifest.files() == []
    ParquetFiles(manifest).publish(entry)
    manifest.count(entry)
    again = Manifest(tmp_path)
    assert again.pending is None
    assert again.files() == [tmp_path / name for name in names]
    assert all(path.exists() for path in again.files())


def test_a_decided_batch_whose_files_are_gone_is_told(tmp_path: Path) -> None:
    name = data_file(tmp_path, "staged/data/topic=t/0-a.parquet").removeprefix("staged/")
    entry = batch(0, files=(name,))
    manifest = Manifest(tmp_path)
    manifest.stage(entry)
    (tmp_path / "staged" / name).unlink()
    with pytest.raises(ManifestError, match=r"0-a\.parquet is gone, and batch 0 was to have its rows"):
        ParquetFiles(manifest).publish(entry)


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"number": 0}', "\x00"])
def test_a_damaged_entry_is_named(tmp_path: Path, text: str) -> None:
    name = data_file(tmp_path, "manifest/00000000000000000000.json")
    (tmp_path / name).write_text(text)
    with pytest.raises(ManifestError, match=r"00000000000000000000\.json is damaged"):
        Manifest(tmp_path)


def test_a_hole_in_the_numbers_is_named(tmp_path: Path) -> None:
    for number in range(3):
        commit(tmp_path, batch(number))
    (tmp_path / "manifest" / f"{1:020d}.json").unlink()
    with pytest.raises(ManifestError, match="entry 1 is missing"):
        Manifest(tmp_path)


def test_a_topic_that_was_made_again_is_refused(tmp_path: Path) -> None:
    commit(tmp_path, batch(0, topic_id="a"))
    manifest = Manifest(tmp_path)
    manifest.check_topic_ids({"t": "a", "other": "z"})
    with pytest.raises(ManifestError, match="topic t has id b and had a"):
        manifest.check_topic_ids({"t": "b"})


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), max_size=6), st.integers(0, 20), st.integers(0, 20))
def test_what_is_missing_is_what_nobody_covers(
    tmp_path_factory: pytest.TempPathFactory, spans: list[tuple[int, int]], start: int, end: int
) -> None:
    manifest = Manifest(tmp_path_factory.mktemp("archive"))
    covered = [OffsetRange("t", 0, min(span), max(span)) for span in spans]
    manifest.batches.append(batch(0, *covered, OffsetRange("t", 1, 0, 100)))
    found = manifest.missing(OffsetRange("t", 0, start, end))
    offsets = [offset for part in found for offset in range(part.from_offset, part.until_offset)]
    held = {offset for part in covered for offset in range(part.from_offset, part.until_offset)}
    assert offsets == [offset for offset in range(start, end) if offset not in held]


def _hold(root: Path, ready: "multiprocessing.synchronize.Event", end: "multiprocessing.synchronize.Event") -> None:
    with WriterLock(root):
        ready.set()
        end.wait()


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    ready, end = context.Event(), context.Event()
    holder = context.Process(target=_hold, args=(tmp_path, ready, end))
    holder.start()
    try:
        assert ready.wait(30)
        with pytest.raises(ManifestError, match=f"is held by process {holder.pid}"), WriterLock(tmp_path):
            pass
        holder.kill()
        holder.join()
        with WriterLock(tmp_path):
            assert json.loads((tmp_path / "archive.lock").read_text()) > 0
    finally:
        holder.kill()
        holder.join()
