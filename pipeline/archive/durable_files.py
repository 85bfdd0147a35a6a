"""Files that are on the disk completely or not at all."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

PART = ".part"
"""The suffix of a file that is being written."""


def write_json(path: Path, fields: Mapping[str, Any], *, indent: int | None = 1) -> None:
    """Write a JSON file atomically, by a rename. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(PART)
    with temporary.open("w") as file:
        file.write(json.dumps(fields, indent=indent))
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(path)
    sync(path.parent)


def sync_folders(root: Path, paths: Iterable[Path]) -> None:
    """Sync the folders between these files and `root`, the deepest first. Raises OSError."""
    folders: set[Path] = {root}
    for path in paths:
        folders.update(folder for folder in path.parents if folder.is_relative_to(root))
    for folder in sorted(folders, key=lambda folder: len(folder.parts), reverse=True):
        sync(folder)


def sync(path: Path) -> None:
    """Sync a file, or the names in a folder, so that they survive a loss of power. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
