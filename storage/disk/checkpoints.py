"""Kafka's small text files: offset checkpoints, `partition.metadata`, `meta.properties` and the clean-shutdown marker.

A checkpoint is a line with its version (0), a line with the number of entries, then one entry a line. All are written
by replacing the whole file. Source: Kafka `CheckpointFile`, `OffsetCheckpointFile`, `PartitionMetadataFile`,
`MetaPropertiesEnsemble`, `CleanShutdownFileHandler`.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import uuid
from collections.abc import Iterable, Mapping

from ...protocol.topic_partition import TopicPartition
from .files import Files
from .properties import parse_properties

VERSION = 0
MAX_ENTRIES = 10_000_000
MOST_SHOWN = 300
"""The number of characters of a malformed line that an error message quotes."""
INT32_MAX, INT64_MAX = 2**31 - 1, 2**63 - 1
_METADATA = re.compile(r"version\s*:\s*0\s+topic_id\s*:\s*(\S+)\s*")


class MalformedCheckpointError(Exception):
    """A file that Kafka's classes cannot have written; `str()` gives the reason."""


def format_lines(lines: list[str]) -> bytes:
    """Return the content of a checkpoint file with these entries."""
    return "".join(f"{line}\n" for line in [str(VERSION), str(len(lines)), *lines]).encode()


def parse_lines(data: bytes) -> list[str]:
    """Return the entries of a checkpoint file. Raises MalformedCheckpointError."""
    try:
        version, count, *lines = data.decode().splitlines()
        expected = int(count)
    except ValueError as fault:
        raise MalformedCheckpointError("it does not begin with a version and a count") from fault
    if version.strip() != str(VERSION):
        raise MalformedCheckpointError(f"version {version!r}")
    lines = [line for line in lines if line.strip()]
    if len(lines) != expected or expected > MAX_ENTRIES:
        raise MalformedCheckpointError(f"{len(lines)} entries instead of {expected}")
    return lines


def read_offsets(files: Files, path: str) -> dict[TopicPartition, int]:
    """Read an offset checkpoint; empty if the file does not exist. Raises MalformedCheckpointError, OSError."""
    try:
        data = files.read(path)
    except FileNotFoundError:
        return {}
    offsets: dict[TopicPartition, int] = {}
    for line in parse_lines(data):
        try:
            topic, partition, offset = line.split()
            name = TopicPartition(topic, _number(partition, INT32_MAX))
            offsets[name] = _number(offset, INT64_MAX)
        except ValueError as fault:
            raise MalformedCheckpointError(f"line {line[:MOST_SHOWN]!r}") from fault
    return offsets


def parse_epoch(line: str) -> tuple[int, int]:
    """Return epoch and start offset of a line of `leader-epoch-checkpoint`. Raises MalformedCheckpointError."""
    try:
        epoch, start = line.split(" ")
        return _number(epoch, INT32_MAX), _number(start, INT64_MAX)
    except ValueError as fault:
        raise MalformedCheckpointError(f"line {line[:MOST_SHOWN]!r}") from fault


def _number(text: str, most: int) -> int:
    """Return the number from 0 to ``most`` that ``text`` says. Raises ValueError."""
    number = int(text)
    if not 0 <= number <= most:
        raise ValueError(f"{number} is not between 0 and {most}")
    return number


def write_offsets(files: Files, path: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Replace an offset checkpoint. Raises OSError."""
    files.replace(path, format_lines([f"{name.topic} {name.partition} {offset}" for name, offset in offsets.items()]))


def encode_uuid(value: uuid.UUID) -> str:
    """Return Kafka's text form of a UUID: URL-safe base64 without padding."""
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode()


def decode_uuid(text: str) -> uuid.UUID:
    """Parse Kafka's text form of a UUID. Raises ValueError."""
    try:
        return uuid.UUID(bytes=base64.b64decode(text + "==", altchars=b"-_", validate=True))
    except binascii.Error as fault:
        raise ValueError(f"{text!r} is not a base64 uuid") from fault


def read_topic_id(files: Files, path: str) -> uuid.UUID | None:
    """Read the topic id of a `partition.metadata`, None without a file. Raises MalformedCheckpointError, OSError."""
    try:
        data = files.read(path)
    except FileNotFoundError:
        return None
    try:
        match = _METADATA.fullmatch(data.decode())
        if match is None:
            raise ValueError("it is not `version: 0` and a `topic_id`")
        return decode_uuid(match[1])
    except ValueError as fault:
        raise MalformedCheckpointError(str(fault)) from fault


def write_topic_id(files: Files, path: str, topic_id: uuid.UUID) -> None:
    """Write a `partition.metadata`. Raises OSError."""
    files.replace(path, f"version: 0\ntopic_id: {encode_uuid(topic_id)}\n".encode(), sync=False)


def read_properties(files: Files, path: str) -> dict[str, str]:
    """Read a properties file, empty without a file. Raises MalformedCheckpointError, OSError."""
    try:
        return parse_properties(files.read(path).decode())
    except FileNotFoundError:
        return {}
    except UnicodeDecodeError as fault:
        raise MalformedCheckpointError("it is not text") from fault
    except ValueError as fault:
        raise MalformedCheckpointError(str(fault)) from fault


def write_properties(files: Files, path: str, properties: Mapping[str, str]) -> None:
    """Write a file of `key=value` lines. Raises OSError."""
    lines: Iterable[str] = (f"{key}={value}\n" for key, value in properties.items())
    files.replace(path, ("#\n" + "".join(lines)).encode())


def write_clean_shutdown(files: Files, path: str) -> None:
    """Write the marker of a directory whose logs were all closed. Raises OSError."""
    files.replace(path, json.dumps({"version": 0, "brokerEpoch": -1}).encode())
