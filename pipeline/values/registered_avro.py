"""Avro values by the schema whose id they name, resolved to the reader's schema.

Source: Avro 1.11, "Schema Resolution".
"""

from __future__ import annotations

import io
import json
from typing import Any
from uuid import UUID

from ..archive.avro_types import AvroColumn, column_of
from ..errors import RegistryError
from .registered_decoder import RegisteredDecoder
from .registry import RegisteredSchema, Registry, SchemaKind


class RegisteredAvroDecoder(RegisteredDecoder[Any]):
    """A decoder of Avro by ids."""

    kind = SchemaKind.AVRO

    def __init__(self, registry: Registry, reader: RegisteredSchema) -> None:
        """Parse the reader's schema. Raises RegistryError, or OptionError for a schema without a column type."""
        import fastavro

        column = avro_column(reader)
        super().__init__(registry, column.arrow_type)
        self._read = fastavro.schemaless_reader
        self._reader = parsed_avro(reader)
        self._has_uuids = column.has("uuid")

    def prepare(self, schema: RegisteredSchema) -> Any:
        """Return the parsed schema, see RegisteredDecoder."""
        return parsed_avro(schema)

    def decode_body(self, writer: Any, value: bytes, at: int) -> Any:
        """Return the value, see RegisteredDecoder."""
        body = io.BytesIO(value)
        body.seek(at)
        decoded = self._read(body, writer, self._reader)
        if body.tell() != len(value):
            raise ValueError(f"{len(value) - body.tell()} bytes too many")
        return with_uuids_as_text(decoded) if self._has_uuids else decoded


def avro_column(schema: RegisteredSchema) -> AvroColumn:
    """Return the column of a schema's values. Raises RegistryError, or OptionError where there is none."""
    return column_of(parsed_avro(schema, expands=True))


def parsed_avro(schema: RegisteredSchema, *, expands: bool = False) -> Any:
    """Return a schema as fastavro uses it; with `expands` each name is replaced by its type. Raises RegistryError."""
    from fastavro.schema import SchemaParseException, UnknownType, parse_schema

    named: dict[str, Any] = {}
    try:
        for each in _with_references(schema)[:-1]:
            parse_schema(json.loads(each.text), named_schemas=named, expand=expands)
        return parse_schema(json.loads(schema.text), named_schemas=named, expand=expands)
    except (SchemaParseException, UnknownType, ValueError, KeyError, TypeError, RecursionError) as fault:
        raise RegistryError(f"schema {schema.number} is no Avro schema: {type(fault).__name__}: {fault}") from None


def _with_references(schema: RegisteredSchema) -> list[RegisteredSchema]:
    """Return the schema after all that it refers to, directly or not, each once."""
    found: dict[str, RegisteredSchema] = {}

    def visit(each: RegisteredSchema) -> None:
        for _, below in each.references:
            visit(below)
        found.setdefault(each.text, each)

    visit(schema)
    return list(found.values())


def with_uuids_as_text(decoded: Any) -> Any:
    """Convert the UUIDs in a decoded value to text, the type of their column."""
    if isinstance(decoded, UUID):
        return str(decoded)
    if isinstance(decoded, dict):
        return {name: with_uuids_as_text(each) for name, each in decoded.items()}
    if isinstance(decoded, list):
        return [with_uuids_as_text(each) for each in decoded]
    return decoded
