"""The decoding of values for a table: text, JSON or Avro; undecodable values are separated, with the reason.

A schema is Avro's, for JSON too (`json_values` has the rules). Avro values have Confluent's header: a zero byte and
the schema's id, four bytes, big-endian. Source: Confluent Schema Registry, "Wire format".

In a column with a schema null always means a tombstone: a value that decodes to null is undecodable.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from struct import Struct
from typing import Any
from uuid import UUID

import pyarrow as pa

from ..errors import OptionError
from ..local_paths import local_path
from .avro_types import AvroColumn, column_of
from .description import Values
from .json_values import MismatchError, reader_of

HEADER = Struct(">bi")
ANY_ID = -1
"""The key of the schema for values with any other id."""

LONGEST_REASON = 300


@dataclass(frozen=True)
class ValueFormat:
    """The format of values. `schemas` are parsed Avro schemas by the writer's id; the last is the reader's."""

    kind: Values
    schemas: Mapping[int, Any]

    @classmethod
    def from_options(cls, kind: Values, files: list[str]) -> ValueFormat:
        """Parse the options; `files` are `FILE` or `ID=FILE`. Raises OptionError."""
        schemas: dict[int, Any] = {}
        for text in files:
            number, equals, path = text.rpartition("=")
            if equals and not number.isdigit():
                raise OptionError(f"a schema is FILE or ID=FILE, not {text!r}")
            try:
                schemas[int(number) if equals else ANY_ID] = json.loads(local_path(path).read_text())
            except (OSError, ValueError) as fault:
                raise OptionError(f"schema {path}: {fault}") from fault
        if kind is Values.AVRO and not schemas:
            raise OptionError("values in Avro need a schema")
        if schemas and kind not in (Values.AVRO, Values.JSON):
            raise OptionError(f"values as {kind} take no schema")
        if kind is Values.JSON and len(schemas) > 1:
            raise OptionError("values in JSON take one schema")
        found = cls(kind, schemas)
        found.decoder()
        return found

    def arrow_type(self) -> pa.DataType:
        """Return the type of the column `value`. Raises OptionError for a schema without a column type."""
        if self.schemas:
            return column_of(self._reader_schema).arrow_type
        return pa.string() if self.kind in (Values.STRING, Values.JSON) else pa.binary()

    @property
    def _reader_schema(self) -> Any:
        return list(self.schemas.values())[-1]

    def decoder(self) -> ValueDecoder:
        """Return the decoder of values, in a task. Raises OptionError for a schema without a column type."""
        if self.kind is Values.STRING:
            return TextDecoder(pa.string())
        if self.kind is Values.JSON:
            return JsonDecoder(column_of(self._reader_schema)) if self.schemas else JsonTextDecoder(pa.string())
        if self.kind is Values.AVRO:
            return AvroDecoder(column_of(self._reader_schema), self.schemas, self._reader_schema)
        return ValueDecoder(pa.binary())


class ValueDecoder:
    """A decoder that leaves values unchanged; its subclasses decode one value at a time."""

    def __init__(self, arrow_type: pa.DataType) -> None:
        self._type = arrow_type

    def decode(self, values: pa.Array) -> tuple[pa.Array, dict[int, str]]:
        """Return the decoded column, null for undecodable values, and the reasons by index."""
        return values, {}


class _ValueByValue(ValueDecoder):
    def parse(self, value: bytes) -> Any:
        """Return the decoded value, which is never None; raises any exception."""
        raise NotImplementedError

    def decode(self, values: pa.Array) -> tuple[pa.Array, dict[int, str]]:
        decoded: list[Any] = []
        reasons: dict[int, str] = {}
        for index, value in enumerate(values.to_pylist()):
            try:
                decoded.append(None if value is None else self.parse(value))
            except Exception as fault:  # what parsers raise for hostile bytes is written nowhere
                decoded.append(None)
                reasons[index] = _reason(fault)
        try:
            return pa.array(decoded, self._type), reasons
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            return self._column_by_column(decoded, reasons), reasons

    def _column_by_column(self, decoded: list[Any], reasons: dict[int, str]) -> pa.Array:
        """Convert decoded values one by one, where some value does not fit the type."""
        pieces = []
        for index, value in enumerate(decoded):
            try:
                pieces.append(pa.array([value], self._type))
            except (pa.ArrowException, TypeError, ValueError, OverflowError) as fault:
                pieces.append(pa.array([None], self._type))
                reasons[index] = _reason(fault)
        return pa.concat_arrays(pieces)


class TextDecoder(_ValueByValue):
    """A decoder of UTF-8 text."""

    def decode(self, values: pa.Array) -> tuple[pa.Array, dict[int, str]]:
        """Decode the column, see ValueDecoder.decode; in one step if all values are text."""
        try:
            return values.cast(pa.string()), {}
        except pa.ArrowInvalid:
            return super().decode(values)

    def parse(self, value: bytes) -> str:
        """Decode UTF-8. Raises UnicodeDecodeError."""
        return value.decode()


class JsonTextDecoder(_ValueByValue):
    """A decoder of JSON that remains text."""

    def parse(self, value: bytes) -> str:
        """Return the text after checking that it is JSON. Raises ValueError."""
        text = value.decode()
        _load_json(text)
        return text


class JsonDecoder(_ValueByValue):
    """A decoder of JSON to typed columns; members that the schema lacks are left out."""

    def __init__(self, column: AvroColumn) -> None:
        """Prepare the reader. Raises OptionError where a field cannot hold its own default."""
        super().__init__(column.arrow_type)
        try:
            self._read = reader_of(column)
        except MismatchError as fault:
            raise OptionError(f"an Avro schema that no column can have: {fault}") from fault

    def parse(self, value: bytes) -> Any:
        """Decode JSON by the schema. Raises ValueError."""
        return _not_null(self._read(_load_json(value.decode())))


def _load_json(text: str) -> Any:
    """Parse JSON text, fractions exactly. Raises ValueError, also for NaN and Infinity, which are not JSON."""
    return json.loads(text, parse_float=Decimal, parse_constant=_refuse_constant)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _not_null(decoded: Any) -> Any:
    if decoded is None:
        raise MismatchError("null could not be told from a tombstone, a record without a value")
    return decoded


class AvroDecoder(_ValueByValue):
    """A decoder of Avro in Confluent's wire format."""

    def __init__(self, column: AvroColumn, schemas: Mapping[int, Any], reader: Any) -> None:
        """Parse the schemas. Raises OptionError for an invalid Avro schema."""
        super().__init__(column.arrow_type)
        import fastavro

        self._read = fastavro.schemaless_reader
        try:
            self._schemas = {number: fastavro.parse_schema(schema) for number, schema in schemas.items()}
            self._reader = fastavro.parse_schema(reader)
        except (fastavro.schema.SchemaParseException, ValueError) as fault:
            raise OptionError(f"no Avro schema: {fault}") from fault
        self._has_uuids = column.has("uuid")

    def parse(self, value: bytes) -> Any:
        """Decode Avro by the schema id in the header. Raises fastavro's errors, and ValueError."""
        if len(value) < HEADER.size or value[0] != 0:
            raise ValueError("no header of Confluent's wire format")
        _, number = HEADER.unpack_from(value)
        schema = self._schemas.get(number, self._schemas.get(ANY_ID))
        if schema is None:
            raise ValueError(f"schema id {number} was not given")
        body = io.BytesIO(value)
        body.seek(HEADER.size)
        decoded = self._read(body, schema, self._reader)
        if body.tell() != len(value):
            raise ValueError(f"{len(value) - body.tell()} bytes too many")
        return _not_null(_with_uuids_as_text(decoded) if self._has_uuids else decoded)


def _with_uuids_as_text(decoded: Any) -> Any:
    """Convert the UUIDs in a decoded value to text, the type of their column."""
    if isinstance(decoded, UUID):
        return str(decoded)
    if isinstance(decoded, dict):
        return {name: _with_uuids_as_text(each) for name, each in decoded.items()}
    if isinstance(decoded, list):
        return [_with_uuids_as_text(each) for each in decoded]
    return decoded


def _reason(fault: Exception) -> str:
    return f"{type(fault).__name__}: {fault}"[:LONGEST_REASON]
