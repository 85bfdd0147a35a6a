"""Snapshots of the metadata: files ``<end offset>-<epoch>.checkpoint`` beside the log's segments (KIP-630).

A snapshot has the records that restore the state at that end offset of the log, between two control records that mark
the file as complete.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from ...protocol.codec import encode
from ...protocol.errors import BrokerError, ErrorCode
from ...protocol.messages.raft_control_records import SnapshotFooterRecord, SnapshotHeaderRecord
from ...protocol.records.control import ControlType
from ...protocol.schema import Message
from ...storage.disk.files import OsFiles
from .record_batches import control_batch, record_batch

BATCH_RECORDS = 1024

_NAME = re.compile(r"(?P<offset>\d{20})-(?P<epoch>\d{10})\.checkpoint")


class SnapshotId(NamedTuple):
    """The identity of a snapshot: the offset after its last record, and that record's leader epoch."""

    end_offset: int
    epoch: int


class SnapshotFiles:
    """A set of the snapshots in the directory of a metadata log."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._found: list[SnapshotId] | None = None

    def found(self) -> list[SnapshotId]:
        """Return the existing snapshots, oldest first.

        The directory is read once and after each change made here: several times a second a follower asks for the
        newest one.
        """
        if self._found is None:
            matches = map(_NAME.fullmatch, os.listdir(self._directory))
            self._found = sorted(SnapshotId(int(match["offset"]), int(match["epoch"])) for match in matches if match)
        return self._found

    def path(self, snapshot: SnapshotId) -> Path:
        """Return the path of a snapshot's file."""
        return self._directory / f"{snapshot.end_offset:020d}-{snapshot.epoch:010d}.checkpoint"

    def write(self, snapshot: SnapshotId, records: Iterable[Message], now_ms: int) -> None:
        """Write a snapshot of these records."""
        self._write(snapshot, snapshot_batches(records, now_ms, snapshot.epoch))

    def store(self, snapshot: SnapshotId, data: bytes) -> None:
        """Write a snapshot that another node has created."""
        self._write(snapshot, [data])

    def _write(self, snapshot: SnapshotId, chunks: Iterable[bytes]) -> None:
        path = self.path(snapshot)
        partial = path.with_suffix(".checkpoint.part")
        with partial.open("wb") as file:
            for chunk in chunks:
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())
        self._found = None
        partial.rename(path)
        # Older records are removed once the snapshot's name is on the disk.
        OsFiles().sync_directory(str(self._directory))

    def read(self, snapshot: SnapshotId, position: int, size_bytes: int) -> tuple[bytes, int]:
        """Return at most ``size_bytes`` from ``position`` on, and the file's size.

        Raises BrokerError SNAPSHOT_NOT_FOUND.
        """
        try:
            with self.path(snapshot).open("rb") as file:
                total_bytes = os.fstat(file.fileno()).st_size
                file.seek(position)
                return file.read(size_bytes), total_bytes
        except FileNotFoundError:
            self._found = None
            raise BrokerError(ErrorCode.SNAPSHOT_NOT_FOUND) from None

    def keep_only(self, snapshot: SnapshotId) -> None:
        """Remove all snapshots but this one."""
        others, self._found = self.found(), None
        for other in others:
            if other != snapshot:
                self.path(other).unlink(missing_ok=True)


def snapshot_batches(records: Iterable[Message], now_ms: int, epoch: int) -> Iterator[bytes]:
    """Yield the batches of a snapshot file, between the two control records that mark it as complete."""
    header = SnapshotHeaderRecord(last_contained_log_timestamp=now_ms)
    yield control_batch(ControlType.SNAPSHOT_HEADER, encode(header, 0), 0, now_ms, epoch)
    offset = 1
    pending: list[Message] = []
    for record in records:
        pending.append(record)
        if len(pending) == BATCH_RECORDS:
            yield record_batch(pending, offset, now_ms, epoch)
            offset += len(pending)
            pending = []
    if pending:
        yield record_batch(pending, offset, now_ms, epoch)
        offset += len(pending)
    yield control_batch(ControlType.SNAPSHOT_FOOTER, encode(SnapshotFooterRecord(), 0), offset, now_ms, epoch)
