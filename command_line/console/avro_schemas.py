"""Avro values: schemas from the files of ``gregor.console.schema.dir``, and decoding within limits.

A file ``TOPIC-value.avsc`` (or ``-key``) has the schema of a topic. A file ``ID.avsc`` has the schema of an id in
Confluent's schema registry: such values begin with a zero byte and the id. Values are decoded by the Python form of
fastavro: in its compiled form, a hostile value of a recursive schema would overflow the stack.
"""

from __future__ import annotations

import json
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

REGISTRY_MAGIC = 0
REGISTRY_HEADER_BYTES = 5
LARGEST_SCHEMA_BYTES = 1 << 20


class AvroError(Exception):
    """An error for bytes that are not decoded, with the reason."""


class Decoded(NamedTuple):
    """A decoded value, and the name of its schema's file."""

    value: Any
    schema: str


class AvroSchemas:
    """The schemas of a directory; files are read again when they change."""

    def __init__(self, directory: str | None) -> None:
        self._directory = None if directory is None else Path(directory)
        self._parsed: dict[Path, tuple[int, Any]] = {}

    def may_decode(self, data: bytes, topic: str, *, is_key: bool) -> bool:
        """Return whether there is a schema for these bytes."""
        return self._file_for(data, topic, is_key=is_key) is not None

    def decode(self, data: bytes, topic: str, *, is_key: bool) -> Decoded:
        """Return the decoded value. Raises AvroError."""
        if self._directory is None:
            raise AvroError("Avro needs schemas: set gregor.console.schema.dir")
        path = self._file_for(data, topic, is_key=is_key)
        if path is None:
            part = "key" if is_key else "value"
            raise AvroError(f"there is no {topic}-{part}.avsc, nor a file for a schema id, in {self._directory}")
        try:
            # An extra: most brokers never decode Avro.
            from fastavro._read_py import schemaless_reader
        except ImportError:
            raise AvroError("Avro needs fastavro: pip install 'gregor-broker[avro]'") from None
        schema = self._schema(path)
        stream = BytesIO(data[REGISTRY_HEADER_BYTES:] if path.stem.isdecimal() or _has_id(data) else data)
        try:
            value = schemaless_reader(stream, schema, None)
        except Exception as error:
            # fastavro raises errors of many types for bytes of another schema.
            raise AvroError(f"not of the schema {path.name}: {type(error).__name__}") from None
        if stream.read(1):
            raise AvroError(f"not of the schema {path.name}: bytes remain after the value")
        return Decoded(value, path.name)

    def _file_for(self, data: bytes, topic: str, *, is_key: bool) -> Path | None:
        if self._directory is None:
            return None
        names = [f"{topic}-{'key' if is_key else 'value'}.avsc"]
        if _has_id(data):
            names.insert(0, f"{int.from_bytes(data[1:REGISTRY_HEADER_BYTES], 'big')}.avsc")
        return next((path for name in names if (path := self._directory / name).is_file()), None)

    def _schema(self, path: Path) -> Any:
        """Return the parsed schema of a file. Raises AvroError."""
        changed_ns = path.stat().st_mtime_ns
        known = self._parsed.get(path)
        if known is not None and known[0] == changed_ns:
            return known[1]
        from fastavro import parse_schema

        try:
            if path.stat().st_size > LARGEST_SCHEMA_BYTES:
                raise ValueError(f"larger than {LARGEST_SCHEMA_BYTES} bytes")
            raw = json.loads(path.read_text())
            schema = parse_schema(raw)
        except Exception as error:
            raise AvroError(f"the schema {path.name} cannot be used: {error}") from None
        if _has_sizeless_items(raw):
            raise AvroError(f"the schema {path.name} has arrays of items without bytes, whose number nothing limits")
        self._parsed[path] = changed_ns, schema
        return schema


def _has_id(data: bytes) -> bool:
    return len(data) >= REGISTRY_HEADER_BYTES and data[0] == REGISTRY_MAGIC


def _has_sizeless_items(schema: Any) -> bool:
    """Return whether some array's items may take no bytes: a hostile value could announce any number of them."""
    if isinstance(schema, list):
        return any(map(_has_sizeless_items, schema))
    if not isinstance(schema, dict):
        return False
    if schema.get("type") == "array" and _is_sizeless(schema.get("items")):
        return True
    inside = [schema.get("type"), schema.get("items"), schema.get("values")]
    inside += [field.get("type") for field in schema.get("fields", ()) if isinstance(field, dict)]
    return any(map(_has_sizeless_items, inside))


def _is_sizeless(schema: Any) -> bool:
    if isinstance(schema, dict):
        kind = schema.get("type")
        if kind == "record":
            return all(_is_sizeless(field.get("type")) for field in schema.get("fields", ()))
        return _is_sizeless(kind) or (kind == "fixed" and not schema.get("size"))
    return bool(schema == "null")
