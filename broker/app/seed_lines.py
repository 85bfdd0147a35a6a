"""Records as JSON lines, the first of the two forms of seed data that ``gregor.load`` reads."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from ...protocol.records.record import Header, Record
from ..config import ConfigError

SUFFIXES = (".jsonl", ".ndjson", ".json")
FIELDS = frozenset(["topic", "partition", "key", "key_base64", "value", "value_base64", "headers", "timestamp"])


class SeedRecord(NamedTuple):
    """A record with its topic, and its partition if the line names one; the record's offset has no meaning yet."""

    topic: str
    partition: int | None
    record: Record


def read_seed_lines(path: Path, *, max_line_bytes: int, now_ms: int) -> Iterator[SeedRecord]:
    """Yield the records of a file of JSON lines; empty lines are skipped.

    A line without "topic" belongs to the topic that the file is named after, and one without "timestamp" (milliseconds)
    gets ``now_ms``. Raises ConfigError that names the line, OSError.
    """
    with path.open("rb") as file:
        number = 0
        while line := file.readline(max_line_bytes + 1):
            number += 1
            try:
                if len(line) > max_line_bytes:
                    raise ValueError(f"longer than {max_line_bytes} bytes, which follow from message.max.bytes")
                if line.strip():
                    yield parse_seed_line(line, default_topic=path.stem, now_ms=now_ms)
            except (ValueError, RecursionError) as fault:
                raise ConfigError(f"gregor.load: {path} line {number}: {fault}") from None


def parse_seed_line(line: bytes, *, default_topic: str | None, now_ms: int) -> SeedRecord:
    """Return the record of one line. Raises ValueError, RecursionError for JSON that is nested too deeply."""
    fields = json.loads(line)
    if not isinstance(fields, dict) or not fields.keys() & {"value", "value_base64"}:
        raise ValueError('write a record as {"topic": "orders", "key": "a", "value": "b"}')
    if unknown := sorted(fields.keys() - FIELDS):
        raise ValueError(f"unknown field {unknown[0]!r}; the fields are {', '.join(sorted(FIELDS))}")
    topic, partition = fields.get("topic", default_topic), fields.get("partition")
    timestamp = fields.get("timestamp", now_ms)
    if not isinstance(topic, str):
        raise ValueError("topic must be a string" if "topic" in fields else "the topic is missing")
    if partition is not None and (type(partition) is not int or partition < 0):
        raise ValueError("partition must be a number from 0 on")
    if type(timestamp) is not int or not 0 <= timestamp < 2**63:
        raise ValueError("timestamp must be milliseconds since 1970")
    record = Record(0, timestamp, _bytes_of(fields, "key"), _bytes_of(fields, "value"), _headers(fields.get("headers")))
    return SeedRecord(topic, partition, record)


def _bytes_of(fields: dict[str, Any], name: str) -> bytes | None:
    if f"{name}_base64" not in fields:
        return _encoded(fields.get(name))
    if name in fields:
        raise ValueError(f"give {name} or {name}_base64, not both")
    return base64.b64decode(fields[f"{name}_base64"], validate=True)


def _encoded(value: object) -> bytes | None:
    """Return a text as UTF-8, null as None, and any other value as compact JSON."""
    if value is None:
        return None
    text = value if isinstance(value, str) else json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return text.encode()


def _headers(value: object) -> tuple[Header, ...]:
    """Return headers given as an object, or as a list of pairs where a key occurs twice. Raises ValueError."""
    pairs = [[*item] for item in value.items()] if isinstance(value, dict) else [] if value is None else value
    if not isinstance(pairs, list) or not all(map(_is_pair, pairs)):
        raise ValueError('headers must be {"key": "value"} or [["key", "value"]]')
    return tuple(Header(key.encode(), _encoded(text)) for key, text in pairs)


def _is_pair(value: object) -> bool:
    return isinstance(value, list) and len(value) == 2 and isinstance(value[0], str)
