"""The metadata log on disk: records in Kafka's framing, atomic batches of related changes, snapshots (KIP-630).

A batch is appended whole or not at all, so the changes of one request are either all present after a crash or all
absent. Once enough bytes have been appended, the state is written to ``<end offset>-<epoch>.checkpoint`` beside the
segments, and older records are deleted. Opening loads the newest snapshot and replays the records after it.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from ...protocol.codec import encode
from ...protocol.errors import BrokerError, DecodeError
from ...protocol.messages.leader_change_message import LeaderChangeMessage, Voter
from ...protocol.records.batches import BatchView, iter_batches, iter_records
from ...protocol.records.control import ControlType
from ...protocol.records.record import Buffer
from ...protocol.schema import Message
from ...storage.clock import Clock
from ...storage.log.partition_log import PartitionLog
from .record_batches import control_batch, decode_record, record_batch
from .snapshots import SnapshotFiles, SnapshotId

logger = logging.getLogger(__name__)

REPLAY_BYTES = 4 * 1024 * 1024
NO_EPOCH = -1

Apply = Callable[[Message], None]


class MetadataLog:
    """A view of the log ``__cluster_metadata-0`` for the metadata store."""

    def __init__(self, log: PartitionLog, clock: Clock, *, snapshot_every_bytes: int) -> None:
        self._log = log
        self._clock = clock
        self._snapshot_every_bytes = snapshot_every_bytes
        self._bytes_since_snapshot = 0
        self._snapshots = SnapshotFiles(Path(log.directory))
        self._snapshot_epoch = NO_EPOCH
        """Leader epoch of the newest snapshot; the log may have no records after it."""

    @property
    def end_offset(self) -> int:
        """The offset of the next record."""
        return self._log.log_end_offset

    @property
    def epoch(self) -> int:
        """The leader epoch of appended records."""
        return max(self.last_epoch, 0)

    @property
    def snapshot_is_due(self) -> bool:
        """Whether enough bytes were appended since the last snapshot for another one."""
        return self._bytes_since_snapshot >= self._snapshot_every_bytes

    def replay(self, apply: Apply) -> None:
        """Feed the newest snapshot and every later record to ``apply``."""
        offset = self._load_snapshot(apply)
        while offset < self._log.log_end_offset:
            with self._log.read(offset, REPLAY_BYTES) as stretch:
                data = stretch.read()
            next_offset = offset
            for batch in iter_batches(data):
                self._replay_batch(batch, offset, apply)
                next_offset = batch.last_offset + 1
            self._bytes_since_snapshot += len(data)
            if next_offset <= offset:
                return
            offset = next_offset

    def append(self, records: Sequence[Message]) -> None:
        """Append related records as one batch. Raises BrokerError if the disk fails."""
        now_ms = self._clock.now_ms()
        self._append(record_batch(records, self.end_offset, now_ms, self.epoch))

    def begin_epoch(self, node_id: int) -> None:
        """Start the next leader epoch of ``node_id`` with the control record that Raft leaders write (KIP-595).

        Records that a follower has and this log has lost in a crash have an older epoch, so the follower detects the
        loss.
        """
        voters = [Voter(voter_id=node_id)]
        message = LeaderChangeMessage(leader_id=node_id, voters=voters, granting_voters=voters)
        epoch = self.last_epoch + 1
        value = encode(message, 0)
        self._append(control_batch(ControlType.LEADER_CHANGE, value, self.end_offset, self._clock.now_ms(), epoch))

    def append_fetched(self, batches: Buffer) -> Iterator[list[Message]]:
        """Append whole batches of the leader's log unchanged, and yield the records of each batch.

        Raises BrokerError as `PartitionLog.append_as_follower` does.
        """
        for batch in iter_batches(batches):
            self._append(memoryview(batch.buffer)[batch.position : batch.end])
            found: list[Message] = []
            self._replay_batch(batch, 0, found.append)
            if found:
                yield found

    def _append(self, batch: Buffer) -> None:
        self._log.append_as_follower(batch)
        self._bytes_since_snapshot += len(batch)

    # --- snapshots

    def write_snapshot(self, records: Iterable[Message]) -> None:
        """Write ``records`` as a snapshot of the log so far, and delete the older records."""
        snapshot = SnapshotId(self._log.log_end_offset, self.epoch)
        self._snapshots.write(snapshot, records, self._clock.now_ms())
        self._snapshot_epoch = snapshot.epoch
        self._log.roll()
        self._log.advance_log_start(snapshot.end_offset)
        self._snapshots.keep_only(snapshot)
        self._bytes_since_snapshot = 0

    def newest_snapshot(self) -> SnapshotId | None:
        """Return the snapshot at which this log starts, None if it starts at offset 0."""
        found = self._snapshots.found()
        return max((it for it in found if self.start_offset <= it.end_offset <= self.end_offset), default=None)

    def read_snapshot(self, snapshot: SnapshotId, position: int, size_bytes: int) -> tuple[bytes, int]:
        """Return a chunk of a snapshot's file, and the file's size. Raises BrokerError SNAPSHOT_NOT_FOUND."""
        return self._snapshots.read(snapshot, position, size_bytes)

    def install_snapshot(self, snapshot: SnapshotId, pieces: bytes) -> None:
        """Replace the log by the leader's snapshot, whose file is ``pieces``. Raises BrokerError."""
        self._snapshots.store(snapshot, pieces)
        self._snapshot_epoch = snapshot.epoch
        self._log.truncate_fully(snapshot.end_offset)
        self._snapshots.keep_only(snapshot)
        self._bytes_since_snapshot = 0

    def _load_snapshot(self, apply: Apply) -> int:
        snapshot = self.newest_snapshot()
        if snapshot is not None:
            self._snapshot_epoch = snapshot.epoch
            for batch in iter_batches(self._snapshots.path(snapshot).read_bytes()):
                self._replay_batch(batch, 0, apply)
            return snapshot.end_offset
        if self.start_offset > 0:
            logger.error(
                "%s begins at offset %d and has no snapshot: topics may be missing",
                self._log.directory,
                self.start_offset,
            )
        return self.start_offset

    # --- followers

    @property
    def start_offset(self) -> int:
        """The offset of the first record; older records are in a snapshot."""
        return self._log.log_start_offset

    @property
    def last_epoch(self) -> int:
        """The leader epoch of the last record, in the log or in its snapshot; -1 if there is none."""
        return max(self._log.leader_epoch, self._snapshot_epoch)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """Return the end offset of an epoch, as `PartitionLog.end_offset_for_epoch` does."""
        return self._log.end_offset_for_epoch(epoch)

    def read(self, offset: int, size_bytes: int) -> bytes:
        """Return batches from ``offset`` on, at least one if there is one. Raises BrokerError OFFSET_OUT_OF_RANGE."""
        with self._log.read(offset, size_bytes) as stretch:
            return stretch.read()

    def last_batch(self) -> tuple[int, bytes] | None:
        """Return base offset and bytes of the last batch; None if the log has no records after its snapshot."""
        if self.start_offset >= self.end_offset:
            return None
        last = deque(iter_batches(self.read(self.end_offset - 1, 1)), maxlen=1).pop()
        return last.base_offset, bytes(memoryview(last.buffer)[last.position : last.end])

    def _replay_batch(self, batch: BatchView, from_offset: int, apply: Apply) -> None:
        if batch.is_control:
            return
        for record in iter_records(batch):
            if record.offset < from_offset or record.value is None:
                continue
            try:
                message = decode_record(record.value)
            except (BrokerError, DecodeError) as error:
                logger.error("%s: record %d is skipped: %s", self._log.directory, record.offset, error)
                continue
            if message is not None:
                apply(message)
