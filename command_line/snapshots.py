"""Snapshots of a log directory: one tar file with all that a stopped broker has."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..storage.disk import paths
from ..storage.disk.files import OsFiles
from ..storage.disk.log_directory import LogDirectory


class SnapshotError(Exception):
    """A snapshot cannot be saved or loaded; the text is one line that says why."""


def save_snapshot(directory: Path, snapshot: Path) -> int:
    """Write the state of a stopped broker to a tar file and return the file's size in bytes.

    Raises SnapshotError, StorageUnavailableError if a broker uses the directory, OSError.
    """
    if not (directory / paths.META_PROPERTIES).exists():
        raise SnapshotError(f"{directory} is not a log directory: it has no {paths.META_PROPERTIES}")
    import tarfile

    unfinished = snapshot.with_name(f"{snapshot.name}.{os.getpid()}")
    try:
        with _locked(directory), tarfile.open(unfinished, "w") as archive:
            for path in sorted(directory.iterdir()):
                if path.name != paths.LOCK:
                    archive.add(path, path.name)
        unfinished.replace(snapshot)
    finally:
        unfinished.unlink(missing_ok=True)
    return snapshot.stat().st_size


def load_snapshot(snapshot: Path, directory: Path) -> None:
    """Replace the contents of a log directory by those of a snapshot.

    The directory is unchanged if the snapshot cannot be read. Raises SnapshotError, StorageUnavailableError if a broker
    uses the directory, OSError.
    """
    is_new = not directory.exists() or all(path.name.startswith(".") for path in directory.iterdir())
    if not is_new and not (directory / paths.META_PROPERTIES).exists():
        raise SnapshotError(f"{directory} is neither empty nor a log directory: name another one")
    directory.mkdir(parents=True, exist_ok=True)
    with _locked(directory), tempfile.TemporaryDirectory(dir=directory, prefix=".loading-") as room:
        _extract(snapshot, Path(room))
        for path in directory.iterdir():
            if path.name in (paths.LOCK, Path(room).name):
                continue
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
        # Without meta.properties a broker takes the directory for a new one, so that file comes last.
        for path in sorted(Path(room).iterdir(), key=lambda path: path.name == paths.META_PROPERTIES):
            path.rename(directory / path.name)


def _extract(snapshot: Path, room: Path) -> None:
    # `gregor serve` imports this module; most brokers read no tar file.
    import tarfile

    try:
        with tarfile.open(snapshot) as archive:
            archive.extractall(room, filter="data")
    except tarfile.TarError as fault:
        raise SnapshotError(f"{snapshot} is not a snapshot: {fault}") from None
    if not (room / paths.META_PROPERTIES).exists():
        raise SnapshotError(f"{snapshot} is not a snapshot: it has no {paths.META_PROPERTIES}")


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Keep brokers out of a log directory for the length of a block. Raises StorageUnavailableError, OSError."""
    held = LogDirectory(OsFiles(), str(directory))
    held.lock()
    try:
        yield
    finally:
        held.unlock()
