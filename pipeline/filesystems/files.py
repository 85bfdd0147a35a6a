"""Files that exist completely or not at all, on this machine and in stores."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from .locations import Location
from .remote_path import RemotePath

PART = ".part"
"""The suffix of a file of this machine that is being written."""


def write_json(path: Location, fields: Mapping[str, Any], *, indent: int | None = 1) -> None:
    """Write a JSON file, or replace the existing one, as `write_whole` does. Raises OSError."""
    write_whole(path, json.dumps(fields, indent=indent).encode())


def write_whole(path: Location, contents: bytes) -> None:
    """Write a file, or replace the existing one; on this machine by a rename. Raises OSError."""
    if isinstance(path, RemotePath):
        path.store.replace(str(path.key), contents)
    else:
        _rename_into_place(path, contents)


def create_json(path: Location, fields: Mapping[str, Any], *, indent: int | None = 1) -> None:
    """Write a JSON file that does not exist yet. Raises OSError.

    In a store a file that another process has created first raises FileExistsError, unless its contents are the same.
    On this machine the caller holds a lock.
    """
    contents = json.dumps(fields, indent=indent).encode()
    if isinstance(path, RemotePath):
        path.store.create(str(path.key), contents)
    else:
        _rename_into_place(path, contents)


def open_output(path: Location) -> BinaryIO:
    """Open a file for writing. In a store it appears when it is closed; a writer that fails must not close it."""
    if isinstance(path, RemotePath):
        return path.store.open_output(str(path.key))
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.open("wb")


def parquet_source(path: Location) -> Any:
    """Return what pyarrow reads a file from: a path, or an open file of a store. Raises OSError."""
    return path.open_input() if isinstance(path, RemotePath) else path


def move(source: Location, target: Location) -> None:
    """Move a file; a move that was made before is completed. Raises FileNotFoundError if neither exists, OSError."""
    if isinstance(source, RemotePath):
        source.store.move(str(source.key), str(target.key))  # type: ignore[union-attr]
        return
    assert isinstance(target, Path)
    if source.exists() or not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        source.rename(target)


def files_below(folder: Location) -> dict[Location, int]:
    """Return the files below a folder with their sizes in bytes, in the order of their names. Raises OSError."""
    if isinstance(folder, RemotePath):
        below = {folder.store_path(found.key): found.size for found in folder.store.files(str(folder.key))}
        return dict(sorted(below.items(), key=lambda item: str(item[0])))
    return {path: path.stat().st_size for path in sorted(folder.rglob("*")) if path.is_file()}


def names_in(folder: Location) -> list[str]:
    """Return the names of the files in a folder; none if it does not exist. Raises OSError."""
    if isinstance(folder, RemotePath):
        return [path.name for path in folder.files() if path.parent == folder]
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []


def remove_below(folder: Location) -> list[Location]:
    """Remove a folder with its files; return them. Raises OSError."""
    removed = list(files_below(folder))
    if isinstance(folder, Path):
        shutil.rmtree(folder, ignore_errors=True)
    else:
        for path in removed:
            path.unlink(missing_ok=True)
    return removed


def make_durable(root: Location, paths: Iterable[Location], *, with_contents: bool = True) -> None:
    """Make files below `root` survive a loss of power; files of stores do when they appear. Raises OSError."""
    local = [path for path in paths if isinstance(path, Path)]
    if with_contents:
        for path in local:
            sync(path)
    if isinstance(root, Path):
        for folder in _folders(root, local):
            sync(folder)


def sync(path: Location) -> None:
    """Sync a file, or the names in a folder, so that they survive a loss of power. Raises OSError."""
    if isinstance(path, RemotePath):
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _folders(root: Path, paths: Iterable[Path]) -> Iterator[Path]:
    """Yield the folders between these files and `root`, the deepest first."""
    folders: set[Path] = {root}
    for path in paths:
        folders.update(folder for folder in path.parents if folder.is_relative_to(root))
    yield from sorted(folders, key=lambda folder: len(folder.parts), reverse=True)


def _rename_into_place(path: Path, contents: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(PART)
    with temporary.open("wb") as file:
        file.write(contents)
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(path)
    sync(path.parent)
