"""What a Java process writes to standard error, kept in a file: Spark greets, warns and traces by the page."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path


class JavaLog:
    """A file that takes the standard error of processes started inside `taken`, and is gone if nobody needs it."""

    def __init__(self) -> None:
        self._path: Path | None = None

    @contextlib.contextmanager
    def taken(self) -> Iterator[None]:
        """Let processes that are started inside write there, to their end."""
        if self._path is None:
            descriptor, name = tempfile.mkstemp(prefix="gregor-spark-", suffix=".log")
            self._path = Path(name)
        else:
            descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND)
        sys.stderr.flush()
        own = os.dup(2)
        try:
            os.dup2(descriptor, 2)
            os.close(descriptor)
            yield
        finally:
            sys.stderr.flush()
            os.dup2(own, 2)
            os.close(own)

    def keep(self) -> Path | None:
        """Return the file for a user to look at; None if there is nothing in it."""
        path, self._path = self._path, None
        if path is not None and not path.stat().st_size:
            path.unlink()
            return None
        return path

    def remove(self) -> None:
        """Remove the file; processes may go on writing to it."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)
            self._path = None
