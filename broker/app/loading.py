"""Loads the records of ``gregor.load`` into topics before the broker serves clients."""

from __future__ import annotations

import itertools
import logging
import os
import time
from collections.abc import Iterable
from pathlib import Path

import trio

from ...protocol.errors import BrokerError
from ...protocol.records import v2
from ...protocol.records.batches import complete_batch_at
from ...protocol.records.murmur2_cy import murmur2
from ...protocol.records.record import Record
from ...protocol.records.validation import validate
from ..api.services import Services
from ..config import ConfigError
from ..metadata.replica_placement import DEFAULT
from ..replicas.partition import Partition
from .loading_marker import marker_of
from .seed_lines import SUFFIXES, SeedRecord, read_seed_lines
from .seed_logs import partition_directories, stored_batches

logger = logging.getLogger(__name__)

BATCH_BYTES = 1 << 16
PENDING_BYTES = 1 << 23
"""Bytes of records that may wait for their batches to be full, in all partitions together."""
RECORD_OVERHEAD_BYTES = 64
JSON_EXPANSION = 6
"""Largest number of bytes of JSON for one byte of a record: a control character takes six."""


async def load_seed_data(services: Services) -> None:
    """Fill the topics of ``gregor.load`` that have no records; a topic that has some is left as it is.

    Topics that an interrupted load has left incomplete are emptied first. Missing topics are created. Raises
    ConfigError or BrokerError with one line that names the file.
    """
    marker = marker_of(services.config)
    unfinished = _names_in(marker)
    if not services.config.gregor_load:
        if unfinished:
            logger.warning(
                "an interrupted load has filled %s in part: these topics are not changed", ", ".join(sorted(unfinished))
            )
            os.unlink(marker)
        return
    loading = SeedLoading(services, marker, unfinished)
    for text in services.config.gregor_load:
        path = Path(text)
        try:
            await loading.load(path)
        except OSError as fault:
            raise ConfigError(f"gregor.load: {fault.filename or path}: {fault.strerror}") from None
        except BrokerError as fault:
            raise ConfigError(f"gregor.load: {path}: {fault.message or fault.code.name}") from None
    loading.finish()


def _names_in(marker: Path) -> set[str]:
    try:
        return set(marker.read_text().split())
    except FileNotFoundError:
        return set()


def _sources(path: Path) -> tuple[dict[str, dict[int, Path]], list[Path]]:
    """Return the directories of partitions, by topic and index, and the files of JSON lines that ``path`` stands for.

    Raises ConfigError if there are none, OSError.
    """
    if not path.is_dir():
        return {}, [path]
    partitions = partition_directories(path)
    files = sorted(file for file in path.iterdir() if file.suffix in SUFFIXES and file.is_file())
    if not partitions and not files:
        kinds = ", ".join(SUFFIXES)
        raise ConfigError(f"gregor.load: {path} has neither directories of partitions nor files {kinds}")
    return partitions, files


class SeedLoading:
    """A load under way: which topics it fills, and the records that wait until their batches are full."""

    def __init__(self, services: Services, marker: Path, unfinished: set[str]) -> None:
        self._services = services
        self._marker = marker
        self._empty(unfinished)
        self._filled_before = {partition.topic for partition in services.partitions if partition.log.log_end_offset}
        self._topics: set[str] = set()
        self._pending: dict[Partition, list[Record]] = {}
        self._pending_bytes: dict[Partition, int] = {}
        self._total_pending_bytes = 0
        self._turn = itertools.count()
        self._record_count = 0
        self._began = time.monotonic()

    async def load(self, path: Path) -> None:
        """Load a file of JSON lines, or a directory of such files and of partitions. Raises as `load_seed_data`."""
        partitions, files = _sources(path)
        for topic, directories in partitions.items():
            if self._takes(topic, partitions=max(directories) + 1):
                for index, directory in directories.items():
                    await self._load_partition(self._partition(topic, index), stored_batches(directory))
        for file in files:
            await self._load_lines(file)

    def finish(self) -> None:
        """Flush the loaded logs, so that no later start loads them again. Raises BrokerError KAFKA_STORAGE_ERROR."""
        for partition in self._services.partitions:
            if partition.topic in self._topics:
                partition.log.flush()
        self._marker.unlink(missing_ok=True)
        took_ms = round((time.monotonic() - self._began) * 1000)
        logger.info("gregor.load: %d records in %d topics, %d ms", self._record_count, len(self._topics), took_ms)

    def _empty(self, topics: Iterable[str]) -> None:
        for topic in topics:
            for partition in self._services.partitions.of_topic(topic).values():
                partition.log.truncate_fully(0)

    def _takes(self, topic: str, *, partitions: int = DEFAULT) -> bool:
        """Return whether the topic is filled by this load; notes and creates the topic if it is the first to ask."""
        if topic in self._filled_before:
            return False
        if topic not in self._topics:
            self._topics.add(topic)
            unfinished = self._marker.with_suffix(".tmp")
            unfinished.write_text("\n".join(sorted(self._topics)))
            os.replace(unfinished, self._marker)
            if topic not in self._services.metadata.topics:
                self._services.metadata.create_topic(topic, partitions=partitions)
        return True

    def _partition(self, topic: str, index: int) -> Partition:
        partition = self._services.partitions.find(topic, index)
        if partition is None:
            count = len(self._services.partitions.of_topic(topic))
            raise ConfigError(f"gregor.load: {topic} has no partition {index}: it has {count}, from 0 on")
        return partition

    # --- JSON lines ---

    async def _load_lines(self, path: Path) -> None:
        max_line_bytes = JSON_EXPANSION * self._services.config.message_max_bytes
        for seed in read_seed_lines(path, max_line_bytes=max_line_bytes, now_ms=self._services.clock.now_ms()):
            if self._takes(seed.topic):
                self._add(self._partition(seed.topic, self._index_of(seed)), seed.record)
            if self._total_pending_bytes >= PENDING_BYTES:
                await self._append_all()
        await self._append_all()

    def _index_of(self, seed: SeedRecord) -> int:
        """Return the partition that the line names, or where Kafka's producer puts the key, or each one in turn."""
        if seed.partition is not None:
            return seed.partition
        key, count = seed.record.key, len(self._services.partitions.of_topic(seed.topic))
        return next(self._turn) % count if key is None else (murmur2(key) & 0x7FFFFFFF) % count

    def _add(self, partition: Partition, record: Record) -> None:
        size = RECORD_OVERHEAD_BYTES + len(record.key or b"") + len(record.value or b"")
        size += sum(RECORD_OVERHEAD_BYTES + len(header.key) + len(header.value or b"") for header in record.headers)
        limit = min(BATCH_BYTES, partition.append_rules.max_message_bytes)
        if self._pending_bytes.get(partition, v2.HEADER_SIZE) + size > limit:
            self._append(partition)
        records = self._pending.setdefault(partition, [])
        records.append(record._replace(offset=len(records)))
        self._pending_bytes[partition] = self._pending_bytes.get(partition, v2.HEADER_SIZE) + size
        self._total_pending_bytes += size

    def _append(self, partition: Partition) -> None:
        records = self._pending.pop(partition, [])
        self._pending_bytes.pop(partition, None)
        if records:
            now_ms = self._services.clock.now_ms()
            partition.append(validate(bytearray(v2.build_batch(records)), partition.append_rules, now_ms=now_ms))
            self._record_count += len(records)

    async def _append_all(self) -> None:
        self._total_pending_bytes = 0
        for partition in list(self._pending):
            self._append(partition)
            await trio.lowlevel.checkpoint()

    # --- log directories ---

    async def _load_partition(self, partition: Partition, pieces: Iterable[bytes]) -> None:
        """Append batches with the offsets that they have. Raises BrokerError, OSError."""
        for piece in pieces:
            if not partition.log.log_end_offset and (first := complete_batch_at(piece, 0).base_offset):
                partition.log.truncate_fully(first)
            before = partition.log.log_end_offset
            partition.append_numbered(bytearray(piece))
            self._record_count += partition.log.log_end_offset - before
            await trio.lowlevel.checkpoint()
