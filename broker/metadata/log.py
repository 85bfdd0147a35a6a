"""The metadata log on disk: records in Kafka's framing, batches of changes that belong together, snapshots (KIP-630).

A batch is appended whole or not at all, so what one request changes is there after a crash or is not. Once enough has
been appended, the state is written to ``<end offset>-<epoch>.checkpoint`` beside the segments, and what came before it
goes. Opening reads the newest snapshot and replays what follows.
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
    """The log of ``__cluster_metadata-0`` as the metadata store uses it."""

    def __init__(self, log: PartitionLog, clock: Clock, *, snapshot_every_bytes: int) -> None:
        self._log = log
        self._clock = clock
        self._snapshot_every_bytes = snapshot_every_bytes
        self._bytes_since_snapshot = 0
        self._snapshots = SnapshotFiles(Path(log.directory))
        self._snapshot_epoch = NO_EPOCH
        """Leader epoch of the newest snapshot; the log may be empty behind it."""

    @property
    def end_offset(self) -> int:
        """Offset of the next record."""
        return self._log.log_end_offset

    @property
    def epoch(self) -> int:
        """Leader epoch of what is appended."""
        return max(self.last_epoch, 0)

    @property
    def snapshot_is_due(self) -> bool:
        """Whether so much was appended since the last snapshot that another one is worth writing."""
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
        """Append records that belong together as one batch. Raises BrokerError if the disk fails."""
        now_ms = self._clock.now_ms()
        self._append(record_batch(records, self.end_offset, now_ms, self.epoch))

    def begin_epoch(self, node_id: int) -> None:
        """Begin the next leader epoch of ``node_id`` with the control record that Raft leaders write (KIP-595).

        What a follower has read and this log has lost in a crash is in an older epoch, so the follower can tell.
        """
        voters = [Voter(voter_id=node_id)]
        message = LeaderChangeMessage(leader_id=node_id, voters=voters, granting_voters=voters)
        epoch = self.last_epoch + 1
        value = encode(message, 0)
        self._append(control_batch(ControlType.LEADER_CHANGE, value, self.end_offset, self._clock.now_ms(), epoch))

    def append_fetched(self, batches: Buffer) -> Iterator[list[Message]]:
        """Append whole batches of the leader's log as they are, one after the other; the records of each.

        Raises BrokerError as `PartitionLog.append_as_follower`.
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
        """Write ``records`` as the outcome of the log so far, and drop what came before."""
        snapshot = SnapshotId(self._log.log_end_offset, self.epoch)
        self._snapshots.write(snapshot, records, self._clock.now_ms())
        self._snapshot_epoch = snapshot.epoch
        self._log.roll()
        self._log.advance_log_start(snapshot.end_offset)
        self._snapshots.keep_only(snapshot)
        self._bytes_since_snapshot = 0

    def newest_snapshot(self) -> SnapshotId | None:
        """The snapshot that this log starts from, if it does not start at the beginning."""
        found = self._snapshots.found()
        return max((it for it in found if self.start_offset <= it.end_offset <= self.end_offset), default=None)

    def read_snapshot(self, snapshot: SnapshotId, position: int, size_bytes: int) -> tuple[bytes, int]:
        """A piece of a snapshot's file, and the size of all of it. Raises BrokerError SNAPSHOT_NOT_FOUND."""
        return self._snapshots.read(snapshot, position, size_bytes)

    def install_snapshot(self, snapshot: SnapshotId, pieces: bytes) -> None:
        """Begin the log anew behind the leader's snapshot, of which ``pieces`` are the file. Raises BrokerError."""
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
        """Offset of the first record; what came before is in a snapshot."""
        return self._log.log_start_offset

    @property
    def last_epoch(self) -> int:
        """Leader epoch of the last record, in the log or in its snapshot; -1 if there was none."""
        return max(self._log.leader_epoch, self._snapshot_epoch)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """See `PartitionLog.end_offset_for_epoch`."""
        return self._log.end_offset_for_epoch(epoch)

    def read(self, offset: int, size_bytes: int) -> bytes:
        """Batches from ``offset`` on, at least one if there is one. Raises BrokerError OFFSET_OUT_OF_RANGE."""
        with self._log.read(offset, size_bytes) as stretch:
            return stretch.read()

    def last_batch(self) -> tuple[int, bytes] | None:
        """Base offset and bytes of the last batch; None if all records are in a snapshot, or there are none."""
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
                logger.error("%s: record %d is passed over: %s", self._log.directory, record.offset, error)
                continue
            if message is not None:
                apply(message)
