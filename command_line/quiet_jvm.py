"""A file for the standard error of a Java process: Spark logs pages of greetings, warnings and stack traces."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path


class JavaLog:
    """A file for the standard error of processes started inside `taken`; it is deleted unless kept."""

    def __init__(self) -> None:
        self._path: Path | None = None

    @contextlib.contextmanager
    def taken(self) -> Iterator[None]:
        """Redirect the standard error of processes that are started inside, until they end."""
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
        """Return the file for the user; None if it is empty."""
        path, self._path = self._path, None
        if path is not None and not path.stat().st_size:
            path.unlink()
            return None
        return path

    def remove(self) -> None:
        """Remove the file; processes may continue to write to it."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)
            self._path = None


@contextlib.contextmanager
def without_gateway_errors() -> Iterator[None]:
    """Drop the tracebacks that Py4J logs where a command to the JVM breaks off; the caller gets the exception itself.

    An interruption mostly meets the driver while it waits for an answer of the JVM. Source: java_gateway.py of Py4J.
    """

    def is_other(record: logging.LogRecord) -> bool:
        return not str(record.msg).endswith("while sending command.")

    root = logging.getLogger()
    root.addFilter(is_other)
    try:
        yield
    finally:
        root.removeFilter(is_other)
