"""The decoding of values for a table: text, JSON, Avro, Protobuf; undecodable values are separated, with the reason.

A schema in a file is Avro's, for JSON too (`json_values` has the rules). Values in Avro, Protobuf and JSON Schema have
Confluent's header (`values.wire_format`), and their schemas come from a registry; those of Avro may be in files.

In a column with a schema null always means a tombstone: a value that decodes to null is undecodable.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa

from ..errors import OptionError
from ..local_paths import local_path
from ..values.decoder import ValueByValue, ValueDecoder, not_null
from ..values.registered_avro import RegisteredAvroDecoder, avro_column, with_uuids_as_text
from ..values.registered_json import RegisteredJsonDecoder, json_column
from ..values.registered_protobuf import RegisteredProtobufDecoder, protobuf_type
from ..values.registry import LATEST, RegisteredSchema, SchemaKind, UnknownSchemaError, shared_registry
from ..values.registry_settings import RegistrySettings
from ..values.wire_format import split_header
from .avro_types import AvroColumn, column_of
from .description import Values
from .json_values import MismatchError, reader_of

ANY_ID = -1
"""The key of the schema for values with any other id."""

REGISTERED_KINDS = {
    Values.AVRO: SchemaKind.AVRO,
    Values.PROTOBUF: SchemaKind.PROTOBUF,
    Values.JSON_SCHEMA: SchemaKind.JSON,
}
"""The kinds of values whose schemas a registry has."""


@dataclass(frozen=True, slots=True)
class RegisteredValues:
    """A registry with the schemas of the writers, and the reader's schema, which makes the columns.

    `message` is the name of a Protobuf message, None for the first of the reader's schema. `followed` is the subject
    whose latest version is the reader's schema, None if one version was chosen.
    """

    settings: RegistrySettings
    reader: RegisteredSchema
    message: str | None = None
    followed: str | None = None

    @classmethod
    def of_subject(cls, settings: RegistrySettings, subject: str, message: str | None = None) -> RegisteredValues:
        """Return the values of a subject, `NAME` for its latest version or `NAME:VERSION`.

        Raises OptionError for a subject that the registry does not have, RegistryError.
        """
        name, colon, version = subject.rpartition(":")
        if not colon or not (version.isdigit() or version == LATEST):
            name, version = subject, LATEST
        try:
            found = shared_registry(settings).latest(name, version)
        except UnknownSchemaError as fault:
            raise OptionError(f"subject {subject}: {fault}") from None
        return cls(settings, found, message, name if version == LATEST else None)


@dataclass(frozen=True)
class ValueFormat:
    """The format of values. `schemas` are parsed Avro schemas by the writer's id; the last is the reader's."""

    kind: Values
    schemas: Mapping[int, Any]
    registered: RegisteredValues | None = None

    @classmethod
    def from_registry(cls, kind: Values, registered: RegisteredValues) -> ValueFormat:
        """Return the format of values whose schemas a registry has. Raises OptionError, RegistryError."""
        if kind not in REGISTERED_KINDS:
            raise OptionError(f"values as {kind} have no schemas in a registry")
        if registered.reader.kind is not REGISTERED_KINDS[kind]:
            raise OptionError(f"the subject's schema is of kind {registered.reader.kind}, and values are {kind}")
        found = cls(kind, {}, registered)
        found.decoder()
        return found

    @classmethod
    def from_options(cls, kind: Values, files: list[str]) -> ValueFormat:
        """Parse the options; `files` are `FILE` or `ID=FILE`. Raises OptionError."""
        if kind in (Values.PROTOBUF, Values.JSON_SCHEMA):
            raise OptionError(f"values in {kind} need --schema-registry")
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
            raise OptionError("values in Avro need a schema: --schema-registry or --schema")
        if schemas and kind not in (Values.AVRO, Values.JSON):
            raise OptionError(f"values as {kind} take no schema")
        if kind is Values.JSON and len(schemas) > 1:
            raise OptionError("values in JSON take one schema")
        found = cls(kind, schemas)
        found.decoder()
        return found

    def newest(self) -> ValueFormat:
        """Return the format by the subject's latest version; this one if that is the same or a version was chosen.

        Raises OptionError, RegistryError.
        """
        known = self.registered
        if known is None or known.followed is None:
            return self
        found = RegisteredValues.of_subject(known.settings, known.followed, known.message)
        return self if found == known else ValueFormat.from_registry(self.kind, found)

    def arrow_type(self) -> pa.DataType:
        """Return the type of the column `value`. Raises OptionError for a schema without a column type."""
        if self.registered is not None:
            reader = self.registered.reader
            if self.kind is Values.PROTOBUF:
                return protobuf_type(reader, self.registered.message)
            return json_column(reader)[0] if self.kind is Values.JSON_SCHEMA else avro_column(reader).arrow_type
        if self.schemas:
            return column_of(self._reader_schema).arrow_type
        return pa.string() if self.kind in (Values.STRING, Values.JSON) else pa.binary()

    def column(self) -> AvroColumn | None:
        """Return the column of an Avro schema, None without one. Raises OptionError for one without a column type."""
        if self.registered is not None:
            return avro_column(self.registered.reader) if self.kind is Values.AVRO else None
        return column_of(self._reader_schema) if self.schemas else None

    @property
    def _reader_schema(self) -> Any:
        return list(self.schemas.values())[-1]

    def decoder(self) -> ValueDecoder:
        """Return the decoder of values, in a task.

        Raises OptionError for a schema without a column type, RegistryError for one that cannot be used.
        """
        if self.registered is not None:
            registry, reader = shared_registry(self.registered.settings), self.registered.reader
            if self.kind is Values.PROTOBUF:
                return RegisteredProtobufDecoder(registry, reader, self.registered.message)
            return (RegisteredJsonDecoder if self.kind is Values.JSON_SCHEMA else RegisteredAvroDecoder)(
                registry, reader
            )
        if self.kind is Values.STRING:
            return TextDecoder(pa.string())
        if self.kind is Values.JSON:
            return JsonDecoder(column_of(self._reader_schema)) if self.schemas else JsonTextDecoder(pa.string())
        if self.kind is Values.AVRO:
            return AvroDecoder(column_of(self._reader_schema), self.schemas, self._reader_schema)
        return ValueDecoder(pa.binary())


class TextDecoder(ValueByValue):
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


class JsonTextDecoder(ValueByValue):
    """A decoder of JSON that remains text."""

    def parse(self, value: bytes) -> str:
        """Return the text after checking that it is JSON. Raises ValueError."""
        text = value.decode()
        _load_json(text)
        return text


class JsonDecoder(ValueByValue):
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
        return not_null(self._read(_load_json(value.decode())))


def _load_json(text: str) -> Any:
    """Parse JSON text, fractions exactly. Raises ValueError, also for NaN and Infinity, which are not JSON."""
    return json.loads(text, parse_float=Decimal, parse_constant=_refuse_constant)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


class AvroDecoder(ValueByValue):
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
        number, at = split_header(value)
        schema = self._schemas.get(number, self._schemas.get(ANY_ID))
        if schema is None:
            raise ValueError(f"schema id {number} was not given")
        body = io.BytesIO(value)
        body.seek(at)
        decoded = self._read(body, schema, self._reader)
        if body.tell() != len(value):
            raise ValueError(f"{len(value) - body.tell()} bytes too many")
        return not_null(with_uuids_as_text(decoded) if self._has_uuids else decoded)
