"""The names of the files and directories of a log, and functions that build and parse them.

    <log dir>/<topic>-<partition>/00000000000000000042.log         records, Kafka's format
                                  00000000000000000042.gindex      our offset and time index
                                  00000000000000000042.txnindex    aborted transactions, Kafka's format
                                  00000000000000000042.snapshot    producer state at that offset, Kafka's format
                                  leader-epoch-checkpoint, partition.metadata
    <log dir>/<topic>-<partition>.<32 hex digits>-delete           a deleted partition before its removal
    <log dir>/<topic>-<partition>.<32 hex digits>-future           the copy of a partition that moves here (`log_move`)
    <log dir>/<topic>-<partition>.<32 hex digits>-stray            a log that the metadata does not know; kept
    <log dir>/meta.properties, .lock, .kafka_cleanshutdown, *-offset-checkpoint

Source: Kafka `LogFileUtils`, `UnifiedLog`, `LogManager`.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ...protocol.topic_partition import TopicPartition

LOG = ".log"
INDEX = ".gindex"
TRANSACTION_INDEX = ".txnindex"
SNAPSHOT = ".snapshot"
DELETED = ".deleted"
CLEANED = ".cleaned"
SWAP = ".swap"
RECLAIM = ".reclaim"
TEMPORARY = ".tmp"

KAFKA_INDEXES = (".index", ".timeindex")
"""Kafka's own indexes in adopted directories. They are never read, and are removed since our writes would outdate them;
Kafka rebuilds missing indexes."""

LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"
LOG_START_CHECKPOINT = "log-start-offset-checkpoint"
CLEANER_CHECKPOINT = "cleaner-offset-checkpoint"
REPLICATION_CHECKPOINT = "replication-offset-checkpoint"
META_PROPERTIES = "meta.properties"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
LOCK = ".lock"

DELETED_DIRECTORY = "-delete"
FUTURE_DIRECTORY = "-future"
STRAY_DIRECTORY = "-stray"

MAX_NAME_LENGTH = 255

_PARTITION_DIRECTORY = re.compile(r"(?P<topic>[a-zA-Z0-9._-]{1,249})-(?P<partition>\d{1,10})")
_SPECIAL_DIRECTORY = re.compile(r".+\.[0-9a-f]{32}(?:-delete|-future|-stray)")
_OFFSET_FILE = re.compile(r"(?P<offset>\d{20})(?P<kind>\.[a-z]+)(?P<state>(?:\.[a-z]+)*)")


class OffsetFile(NamedTuple):
    """A file named after an offset, with its kind (`.log`) and its state (`""`, `.deleted`, `.cleaned`, ...)."""

    offset: int
    kind: str
    state: str


def offset_file(offset: int, kind: str) -> str:
    """Return the name of a segment's file: `00000000000000000042.log` for (42, ".log")."""
    return f"{offset:020d}{kind}"


def parse_offset_file(name: str) -> OffsetFile | None:
    """Parse the name of a segment's file; return None for any other name."""
    match = _OFFSET_FILE.fullmatch(name)
    if match is None:
        return None
    offset = int(match["offset"])
    return OffsetFile(offset, match["kind"], match["state"]) if offset < 2**63 else None


def partition_directory(topic: str, partition: int) -> str:
    """Return the name of a partition's directory: `topic-0` for ("topic", 0)."""
    return f"{topic}-{partition}"


def parse_partition_directory(name: str) -> TopicPartition | None:
    """Return the partition of a directory's name; None for other names and for deleted, future and stray partitions."""
    if is_special_directory(name):
        return None
    match = _PARTITION_DIRECTORY.fullmatch(name)
    if match is None or match["topic"] in (".", ".."):
        return None
    partition = int(match["partition"])
    if partition >= 2**31 or str(partition) != match["partition"]:
        return None
    return TopicPartition(match["topic"], partition)


def is_special_directory(name: str) -> bool:
    """Return whether Kafka set this partition directory aside (`-delete`, `-future`, `-stray`)."""
    return _SPECIAL_DIRECTORY.fullmatch(name) is not None


def is_deleted_directory(name: str) -> bool:
    """Return whether the directory belongs to a deleted partition."""
    return name.endswith(DELETED_DIRECTORY) and is_special_directory(name)


def is_future_directory(name: str) -> bool:
    """Return whether the directory holds a partition that is being moved from another log directory."""
    return name.endswith(FUTURE_DIRECTORY) and is_special_directory(name)


def deleted_directory(topic: str, partition: int, unique_id: str) -> str:
    """Return the directory name of a deleted partition until its files are removed; see `future_directory`."""
    return _special_directory(topic, partition, unique_id, DELETED_DIRECTORY)


def future_directory(topic: str, partition: int, unique_id: str) -> str:
    """Return the directory name of a partition that is being moved here; a topic too long for a file name is cut.

    `unique_id` is 32 hex digits. Source: Kafka `LocalLog.logDeleteDirName`, `logFutureDirName`, `logStrayDirName`.
    """
    return _special_directory(topic, partition, unique_id, FUTURE_DIRECTORY)


def stray_directory(topic: str, partition: int, unique_id: str) -> str:
    """Return the directory name of a log that the metadata does not contain; see `future_directory`."""
    return _special_directory(topic, partition, unique_id, STRAY_DIRECTORY)


def _special_directory(topic: str, partition: int, unique_id: str, kind: str) -> str:
    suffix = f"-{partition}.{unique_id}{kind}"
    return topic[: MAX_NAME_LENGTH - len(suffix)] + suffix
