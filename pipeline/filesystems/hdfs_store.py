"""HDFS by hdfs-native, which speaks its protocol without Java.

A rename is atomic in HDFS, and refuses a target that exists unless it is told to replace it. A file that is being
written is visible, so it is written under another name and renamed.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import PurePosixPath
from typing import Any, BinaryIO, Self, cast

from ..errors import PipelineError
from .retries import create_once, try_again
from .stores import StoredFile, StoreError

PART = ".part"
"""The suffix of a file that is being written."""


@dataclass(frozen=True)
class HdfsStore:
    """A file system of HDFS; see `stores.Store`.

    Connections use the configuration in HADOOP_CONF_DIR or HADOOP_HOME, as Hadoop's own clients do.
    """

    uri: str

    @classmethod
    def of(cls, uri: str) -> Self:
        """Return the store of a URI without a path. Raises PipelineError without the library that it needs."""
        try:
            import hdfs_native  # noqa: F401
        except ImportError:
            raise PipelineError("hdfs:// needs `pip install 'gregor-broker[hdfs]'`") from None
        return cls(uri)

    def read(self, key: str) -> bytes:
        """Return the contents of a file, see Store.read."""
        with self._told(key), _client(self.uri).read(f"/{key}") as file:
            return bytes(file.read())

    def read_range(self, key: str, start: int, length: int) -> bytes:
        """Return bytes of a file, see Store.read_range."""
        with self._told(key), _client(self.uri).read(f"/{key}") as file:
            return bytes(file.read_range(start, length))

    def size(self, key: str) -> int:
        """Return the size of a file, see Store.size."""
        with self._told(key):
            found = _client(self.uri).get_file_info(f"/{key}")
        if found.isdir:
            raise FileNotFoundError(f"{self.uri}/{key} is a directory")
        return int(found.length)

    def create(self, key: str, contents: bytes) -> None:
        """Write a file and rename it unless the name is taken, see Store.create."""
        create_once(
            lambda: self._write(key, contents, overwrite=False),
            lambda: self.read(key),
            contents,
            f"{self.uri}/{key}",
        )

    def replace(self, key: str, contents: bytes) -> None:
        """Write a file and rename it, see Store.replace."""
        try_again(lambda: self._write(key, contents, overwrite=True))

    def open_output(self, key: str) -> BinaryIO:
        """Open a file under another name, see Store.open_output."""
        return cast(BinaryIO, _Output(self, key))

    def move(self, source: str, target: str) -> None:
        """Rename a file, see Store.move."""
        with self._told(target):
            _client(self.uri).mkdirs(_folder(target), create_parent=True)
        try:
            with self._told(source):
                _client(self.uri).rename(f"/{source}", f"/{target}", overwrite=True)
        except (FileNotFoundError, StoreError):
            # Moved before, perhaps by a call whose answer was lost.
            if not self._is_moved(source, target):
                raise

    def remove(self, key: str) -> None:
        """Remove a file, see Store.remove."""
        with contextlib.suppress(FileNotFoundError), self._told(key):
            _client(self.uri).delete(f"/{key}")

    def files(self, folder: str) -> Iterator[StoredFile]:
        """Yield the files below a folder, see Store.files."""
        root = "/" if folder in ("", ".") else f"/{folder}"
        with contextlib.suppress(FileNotFoundError), self._told(folder):
            for found in _client(self.uri).list_status(root, recursive=True):
                if not found.isdir:
                    yield StoredFile(found.path.lstrip("/"), int(found.length))

    def _write(self, key: str, contents: bytes, *, overwrite: bool) -> None:
        output = _Output(self, key, overwrite=overwrite)
        output.write(contents)
        output.close()

    def _is_moved(self, source: str, target: str) -> bool:
        with contextlib.suppress(FileNotFoundError):
            self.size(target)
            try:
                self.size(source)
            except FileNotFoundError:
                return True
        return False

    @contextlib.contextmanager
    def _told(self, key: str) -> Iterator[None]:
        """Convert the errors of a request to FileNotFoundError, FileExistsError, StoreError."""
        try:
            yield
        except FileNotFoundError as fault:
            raise FileNotFoundError(f"{self.uri}/{key} does not exist") from fault
        except (FileExistsError, StoreError):
            raise
        except (OSError, RuntimeError, ValueError) as fault:
            reason = " ".join(str(fault).split())[:400]
            if "FileAlreadyExists" in reason or "already exists" in reason:
                raise FileExistsError(f"{self.uri}/{key} exists") from fault
            raise StoreError(f"{self.uri}/{key}: {reason}") from fault


class _Output:
    """A file that gets its name when it is closed."""

    def __init__(self, store: HdfsStore, key: str, *, overwrite: bool = True) -> None:
        self._store = store
        self._key = key
        self._overwrite = overwrite
        self._part = f"{_folder(key)}/.{PurePosixPath(key).name}-{uuid.uuid4().hex}{PART}"
        self.closed = False
        with store._told(key):
            self._inner = _client(store.uri).create(self._part)

    def writable(self) -> bool:
        """Return True."""
        return True

    def readable(self) -> bool:
        """Return False."""
        return False

    def seekable(self) -> bool:
        """Return False."""
        return False

    def flush(self) -> None:
        """Do nothing: the file is complete when it is closed."""

    def write(self, contents: bytes) -> int:
        """Add bytes. Raises StoreError."""
        with self._store._told(self._key):
            self._inner.write(bytes(contents))
        return len(contents)

    def close(self) -> None:
        """Complete the file and rename it. Raises FileExistsError, StoreError."""
        if self.closed:
            return
        self.closed = True
        with self._store._told(self._key):
            self._inner.close()
        try:
            with self._store._told(self._key):
                _client(self._store.uri).rename(self._part, f"/{self._key}", overwrite=self._overwrite)
        except (FileExistsError, StoreError):
            self._store.remove(self._part.lstrip("/"))
            raise


def _folder(key: str) -> str:
    folder = PurePosixPath(key).parent
    return "/" if str(folder) == "." else f"/{folder}"


@cache
def _client(uri: str) -> Any:
    from hdfs_native import Client

    return Client(uri)
