"""Answers that are ranges of a file, which the threads of `bulk_lane` send."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from gregor.broker.server.parts import Answer, FileSlice
from gregor.storage.log.partition_log import LogSlice

FILE_BYTES = 3_000_000


@dataclass
class Settings:
    """Settings of a lane."""

    num_network_threads: int = 2
    gregor_message_downconversion_chunk_bytes: int = 16384
    set_keys: frozenset[str] = frozenset()

    def is_set(self, key: str) -> bool:
        """Return whether a key is one of `set_keys`."""
        return key in self.set_keys


class Slice:
    """A range of a file, as `FileSlice` uses it."""

    def __init__(self, path: Path, position: int, size_bytes: int) -> None:
        self.descriptor = os.open(path, os.O_RDONLY)
        self.position = position
        self.size_bytes = size_bytes
        self.is_released = False

    def release(self) -> None:
        """Close the file."""
        assert not self.is_released
        os.close(self.descriptor)
        self.is_released = True


class Segment:
    """A file with answers of its bytes."""

    def __init__(self, path: Path) -> None:
        self.data = os.urandom(FILE_BYTES)
        path.write_bytes(self.data)
        self._path = path
        self.slices: list[Slice] = []

    def answer(self) -> Answer:
        """Return an answer of bytes and a range of the file."""
        self.slices.append(Slice(self._path, 5, FILE_BYTES - 5))
        return [b"head", FileSlice(cast(LogSlice, self.slices[-1])), b"tail"]

    @property
    def bytes(self) -> bytes:
        """The answer's bytes, with their length."""
        body = b"head" + self.data[5:] + b"tail"
        return len(body).to_bytes(4, "big") + body
