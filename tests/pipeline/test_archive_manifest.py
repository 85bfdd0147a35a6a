"""The manifest of an archive: its files, removed leftovers, and refused states."""

import json
import multiprocessing
import re
from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="the pipeline needs gregor-broker[spark]")

from hypothesis import given
from hypothesis import strategies as st

from gregor.pipeline.archive import manifest as manifests
from gregor.pipeline.archive.manifest import Manifest, ManifestError
from gregor.pipeline.archive.manifest_entry import ArchivedBatch, OffsetRange
from gregor.pipeline.archive.manifest_state import ManifestState
from gregor.pipeline.archive.row_table import ParquetFiles
from gregor.pipeline.archive.writer_lock import WriterLock
from gregor.pipeline.filesystems.locations import Location, name_below


def batch(number: int, *ranges: OffsetRange, files: tuple[str, ...] = (), topic_id: str = "a") -> ArchivedBatch:
    """Return an entry with one topic id."""
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


def test_committed_entries_are_read_back(tmp_path: Path) -> None:
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


def test_data_files_that_no_manifest_entry_names_are_removed(tmp_path: Path) -> None:
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
    assert {name_below(path, tmp_path) for path in removed} == leftovers
    assert not (tmp_path / "staged").exists()
    assert (tmp_path / counted).exists()
    assert (tmp_path / foreign).exists()
    assert Manifest(tmp_path).files() == [tmp_path / counted]


def test_a_batch_with_a_missing_file_is_not_staged(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Manifest(tmp_path).stage(batch(0, files=("data/0-missing.parquet",)))
    manifest = Manifest(tmp_path)
    assert manifest.next_number == 0
    assert manifest.pending is None


def test_a_staged_batch_is_completed_after_a_crash_while_its_files_are_published(tmp_path: Path) -> None:
    names = [f"data/topic=t/0-{number}.parquet" for number in range(3)]
    for name in names:
        data_file(tmp_path, f"staged/{name}")
    entry = batch(0, files=tuple(names))
    Manifest(tmp_path).stage(entry)
    assert not (tmp_path / "data").exists(), "rows of incomplete batches are not visible"
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


def test_a_missing_file_of_a_staged_batch_is_an_error_that_names_it(tmp_path: Path) -> None:
    name = data_file(tmp_path, "staged/data/topic=t/0-a.parquet").removeprefix("staged/")
    entry = batch(0, files=(name,))
    manifest = Manifest(tmp_path)
    manifest.stage(entry)
    (tmp_path / "staged" / name).unlink()
    with pytest.raises(ManifestError, match=r"0-a\.parquet is missing, which has the rows of batch 0"):
        ParquetFiles(manifest).publish(entry)


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"number": 0}', "\x00"])
def test_a_damaged_entry_is_named(tmp_path: Path, text: str) -> None:
    name = data_file(tmp_path, "manifest/00000000000000000000.json")
    (tmp_path / name).write_text(text)
    with pytest.raises(ManifestError, match=r"00000000000000000000\.json is damaged"):
        Manifest(tmp_path)


def test_a_missing_manifest_entry_is_an_error_that_names_its_number(tmp_path: Path) -> None:
    for number in range(3):
        commit(tmp_path, batch(number))
    (tmp_path / "manifest" / f"{1:020d}.json").unlink()
    with pytest.raises(ManifestError, match="entry 1 is missing"):
        Manifest(tmp_path)


def test_a_topic_whose_topic_id_changed_is_refused(tmp_path: Path) -> None:
    commit(tmp_path, batch(0, topic_id="a"))
    manifest = Manifest(tmp_path)
    manifest.check_topic_ids({"t": "a", "other": "z"})
    with pytest.raises(ManifestError, match="topic t has id b and had a"):
        manifest.check_topic_ids({"t": "b"})


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), max_size=6), st.integers(0, 20), st.integers(0, 20))
def test_missing_ranges_are_those_that_no_entry_covers(
    tmp_path_factory: pytest.TempPathFactory, spans: list[tuple[int, int]], start: int, end: int
) -> None:
    manifest = Manifest(tmp_path_factory.mktemp("archive"))
    covered = [OffsetRange("t", 0, min(span), max(span)) for span in spans]
    manifest.state.add(batch(0, *covered, OffsetRange("t", 1, 0, 100)))
    found = manifest.missing(OffsetRange("t", 0, start, end))
    offsets = [offset for part in found for offset in range(part.from_offset, part.until_offset)]
    held = {offset for part in covered for offset in range(part.from_offset, part.until_offset)}
    assert offsets == [offset for offset in range(start, end) if offset not in held]


def follow(root: Path, first: int, count: int) -> None:
    """Commit `count` batches of a file and ten offsets each, as a writer that follows a topic; compact every fifth."""
    manifest = Manifest(root)
    table = ParquetFiles(manifest)
    for number in range(first, first + count):
        name = data_file(root, f"staged/data/topic=t/date=2020-01-01/{number}-a.parquet").removeprefix("staged/")
        replaces = (f"data/topic=t/date=2020-01-01/{number - 1}-a.parquet",) if number % 5 == 4 else ()
        covered = OffsetRange("t", number % 3, 10 * (number // 3), 10 * (number // 3) + 10)
        entry = ArchivedBatch(number, [covered], [name], 10, 0, 7, {"t": "a"}, {"t": 3}, replaces)
        manifest.stage(entry)
        table.publish(entry)
        manifest.count(entry)


@pytest.fixture
def _checkpoints_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifests, "CHECKPOINT_ENTRIES", 8)


def entries_in(root: Path) -> list[str]:
    """Return the names of all files of the manifest."""
    return sorted(path.name for path in (root / "manifest").iterdir())


def facts(root: Path) -> tuple[object, ...]:
    """Return all that an archive knows by its manifest."""
    manifest = Manifest(root)
    state = manifest.state
    ids = (state.topic_ids, state.partition_counts)
    return manifest.next_number, manifest.positions(), list(manifest.ranges()), list(state.names), ids, state.checksum


def test_a_checkpoint_says_what_its_entries_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, summed_up = tmp_path / "plain", tmp_path / "summed up"
    follow(plain, 0, 100)
    assert len(entries_in(plain)) == 100
    with monkeypatch.context() as patch:
        patch.setattr(manifests, "CHECKPOINT_ENTRIES", 8)
        follow(summed_up, 0, 50)
        follow(summed_up, 50, 50)
        assert facts(summed_up) == facts(plain)
        assert entries_in(summed_up)[-1] == f"checkpoint-{96:020d}.json"
        assert len(entries_in(summed_up)) == 6, "the checkpoint, the last entry that it covers, and four after it"
        # Entries without a checkpoint, as older versions wrote them, are summed up by the next writer.
        Manifest(plain).sweep()
    assert entries_in(plain) == [f"{99:020d}.json", f"checkpoint-{100:020d}.json"]
    assert facts(plain) == facts(summed_up)
    follow(plain, 100, 10)
    follow(summed_up, 100, 10)
    assert facts(plain) == facts(summed_up)


@pytest.mark.usefixtures("_checkpoints_soon")
def test_a_manifest_without_data_files_loads_no_file_names(tmp_path: Path) -> None:
    follow(tmp_path, 0, 20)
    with_names, without = Manifest(tmp_path), Manifest(tmp_path, has_files=False)
    assert len(with_names.state.names) == 16
    assert without.state.names == {}
    assert without.positions() == with_names.positions()


@pytest.mark.usefixtures("_checkpoints_soon")
@pytest.mark.parametrize("step", ["before", "after", "between"])
def test_a_writer_that_is_killed_at_its_checkpoint_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(manifests, "CHECKPOINT_ENTRIES", 1000)
        follow(tmp_path / "expected", 0, 12)
    unlinked: list[Path] = []
    unlink = Path.unlink

    def die(*given: object, **named: object) -> None:
        raise KeyboardInterrupt

    def unlink_some(path: Path, **named: bool) -> None:
        if len(unlinked) == 3:
            raise KeyboardInterrupt
        unlinked.append(path)
        unlink(path, **named)

    with monkeypatch.context() as patch:
        if step == "before":
            patch.setattr(ManifestState, "as_fields", die)
        elif step == "after":
            patch.setattr(Manifest, "_remove_covered", die)
        else:
            patch.setattr(Path, "unlink", unlink_some)
        with pytest.raises(KeyboardInterrupt):
            follow(tmp_path, 0, 12)
    at = Manifest(tmp_path).next_number
    assert at == 8
    Manifest(tmp_path).sweep()
    assert entries_in(tmp_path) == [f"{7:020d}.json", f"checkpoint-{8:020d}.json"]
    follow(tmp_path, at, 12 - at)
    assert facts(tmp_path) == facts(tmp_path / "expected")


@pytest.mark.usefixtures("_checkpoints_soon")
def test_a_reader_is_not_disturbed_by_a_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(manifests, "CHECKPOINT_ENTRIES", 1000)
        follow(tmp_path, 0, 20)
    expected = facts(tmp_path)
    listed = Manifest._numbered
    calls: list[str] = []

    def list_and_sum_up(manifest: Manifest, pattern: re.Pattern[str]) -> dict[int, Location]:
        found = listed(manifest, pattern)
        if not calls:
            calls.append(pattern.pattern)
            Manifest(tmp_path).sweep()
        return found

    monkeypatch.setattr(Manifest, "_numbered", list_and_sum_up)
    assert facts(tmp_path) == expected
    assert calls


@pytest.mark.usefixtures("_checkpoints_soon")
@pytest.mark.parametrize("text", ["", "{}", "[]", '{"format": 2}', "\x00", None])
def test_a_damaged_checkpoint_is_named(tmp_path: Path, text: str | None) -> None:
    follow(tmp_path, 0, 10)
    path = tmp_path / "manifest" / f"checkpoint-{8:020d}.json"
    if text is None:
        path.rename(path.with_name(f"checkpoint-{9:020d}.json"))
    else:
        path.write_text(text)
    with pytest.raises(ManifestError, match=r"checkpoint-0{19}[89]\.json is damaged"):
        Manifest(tmp_path)


@pytest.mark.usefixtures("_checkpoints_soon")
def test_a_missing_checkpoint_is_an_error(tmp_path: Path) -> None:
    follow(tmp_path, 0, 8)
    (tmp_path / "manifest" / f"checkpoint-{8:020d}.json").unlink()
    with pytest.raises(ManifestError, match="entry 0 is missing"):
        Manifest(tmp_path)


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
