"""The metadata log on disk: records in Kafka's framing, batches of changes that belong together, snapshots (KIP-630).

A batch is appended whole or not at all, so what one request changes is there after a crash or is not. Once enough has
been appended, the state is written to ``<end offset>-<epoch>.checkpoint`` beside the segments, and what came before it
goes. Opening reads the newest snapshot and replays what follows.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from ...protocol.codec import decode, encode
from ...protocol.errors import BrokerError, DecodeError
from ...protocol.messages.cluster_metadata_records import (
    RECORD_TYPES,
    BrokerRegistrationChangeRecord,
    RegisterBrokerRecord,
)
from ...protocol.messages.raft_control_records import SnapshotFooterRecord, SnapshotHeaderRecord
from ...protocol.records import v2
from ...protocol.records.batches import BatchView, iter_batches, iter_records
from ...protocol.records.compression import Codec
from ...protocol.records.control import ControlType, encode_key
from ...protocol.records.produced import Produced, ProducedBatch
from ...protocol.records.record import Record
from ...protocol.schema import Message
from ...storage.clock import Clock
from ...storage.partition_log import AppendOrigin, PartitionLog

logger = logging.getLogger(__name__)

FRAME_VERSION = 1
REPLAY_BYTES = 4 * 1024 * 1024
SNAPSHOT_BATCH_RECORDS = 1024
WRITTEN_VERSIONS: Mapping[type[Message], int] = {RegisterBrokerRecord: 3, BrokerRegistrationChangeRecord: 1}
"""Others are written in version 0: what later ones add (directories of a partition, say) means nothing here."""

_SNAPSHOT_NAME = re.compile(r"(?P<offset>\d{20})-(?P<epoch>\d{10})\.checkpoint")
_TYPE_OF = {record_class: number for number, record_class in RECORD_TYPES.items()}

Apply = Callable[[Message], None]


class MetadataLog:
    """The log of ``__cluster_metadata-0`` as the metadata store uses it."""

    def __init__(self, log: PartitionLog, clock: Clock, *, snapshot_every_bytes: int) -> None:
        self._log = log
        self._clock = clock
        self._snapshot_every_bytes = snapshot_every_bytes
        self._bytes_since_snapshot = 0

    @property
    def end_offset(self) -> int:
        """Offset of the next record."""
        return self._log.log_end_offset

    @property
    def epoch(self) -> int:
        """Leader epoch of what is appended."""
        return max(self._log.leader_epoch, 0)

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
        data = _batch(records, 0, now_ms, self.epoch)
        batch = ProducedBatch(0, len(data), v2.MAGIC, Codec.NONE, len(records), now_ms)
        produced = Produced(memoryview(bytearray(data)), [batch])
        self._log.append(produced, leader_epoch=self.epoch, origin=AppendOrigin.COORDINATOR)
        self._bytes_since_snapshot += len(data)

    def write_snapshot(self, records: Iterable[Message]) -> None:
        """Write ``records`` as the outcome of the log so far, and drop what came before."""
        end = self._log.log_end_offset
        directory = Path(self._log.directory)
        older = [directory / name for name, _ in self._snapshots()]
        path = directory / f"{end:020d}-{self.epoch:010d}.checkpoint"
        partial = path.with_suffix(".checkpoint.part")
        with partial.open("wb") as file:
            for batch in _snapshot_batches(records, self._clock.now_ms(), self.epoch):
                file.write(batch)
            file.flush()
            os.fsync(file.fileno())
        partial.rename(path)
        self._log.roll()
        self._log.advance_log_start(end)
        for old in older:
            if old != path:
                old.unlink(missing_ok=True)
        self._bytes_since_snapshot = 0

    def _load_snapshot(self, apply: Apply) -> int:
        start = self._log.log_start_offset
        for name, end in reversed(self._snapshots()):
            if end < start or end > self._log.log_end_offset:
                continue
            for batch in iter_batches((Path(self._log.directory) / name).read_bytes()):
                self._replay_batch(batch, 0, apply)
            return end
        if start > 0:
            logger.error(
                "%s begins at offset %d and has no snapshot: topics may be missing", self._log.directory, start
            )
        return start

    def _snapshots(self) -> list[tuple[str, int]]:
        matches = map(_SNAPSHOT_NAME.fullmatch, os.listdir(self._log.directory))
        return sorted((match.string, int(match["offset"])) for match in matches if match)

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


def encode_record(record: Message) -> bytes:
    """A record in its frame."""
    version = WRITTEN_VERSIONS.get(type(record), 0)
    return bytes((FRAME_VERSION, _TYPE_OF[type(record)], version)) + encode(record, version)


def decode_record(value: bytes | memoryview) -> Message | None:
    """The record in a frame; None for a type that is none of ours. Raises DecodeError, BrokerError (version)."""
    frame_version, position = _unsigned_varint(value, 0)
    if frame_version != FRAME_VERSION:
        raise DecodeError(f"metadata frame version {frame_version}")
    number, position = _unsigned_varint(value, position)
    version, position = _unsigned_varint(value, position)
    record_class = RECORD_TYPES.get(number)
    return None if record_class is None else decode(record_class, memoryview(value)[position:], version)


def _unsigned_varint(value: bytes | memoryview, position: int) -> tuple[int, int]:
    number = 0
    for shift in range(0, 35, 7):
        if position >= len(value):
            break
        byte = value[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, position
    raise DecodeError("a metadata frame is cut short")


def _batch(records: Sequence[Message], base_offset: int, now_ms: int, epoch: int) -> bytes:
    encoded = [Record(base_offset + index, now_ms, None, encode_record(record)) for index, record in enumerate(records)]
    return v2.build_batch(encoded, base_offset=base_offset, leader_epoch=epoch)


def _snapshot_batches(records: Iterable[Message], now_ms: int, epoch: int) -> Iterable[bytes]:
    """Batches of a snapshot file, between the two control records that mark it as whole."""
    header = SnapshotHeaderRecord(last_contained_log_timestamp=now_ms)
    yield _control_batch(ControlType.SNAPSHOT_HEADER, encode(header, 0), 0, now_ms, epoch)
    offset = 1
    pending: list[Message] = []
    for record in records:
        pending.append(record)
        if len(pending) == SNAPSHOT_BATCH_RECORDS:
            yield _batch(pending, offset, now_ms, epoch)
            offset += len(pending)
            pending = []
    if pending:
        yield _batch(pending, offset, now_ms, epoch)
        offset += len(pending)
    yield _control_batch(ControlType.SNAPSHOT_FOOTER, encode(SnapshotFooterRecord(), 0), offset, now_ms, epoch)


def _control_batch(kind: ControlType, value: bytes, offset: int, now_ms: int, epoch: int) -> bytes:
    record = Record(offset, now_ms, encode_key(kind), value)
    return v2.build_batch([record], base_offset=offset, is_control=True, leader_epoch=epoch)
