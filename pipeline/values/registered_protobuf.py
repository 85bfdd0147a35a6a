"""Protobuf values by the schema whose id they name, read as the reader's message: fields are known by their numbers.

Columns: unsigned 64-bit numbers are decimals of 20 digits, enums are the names of their values (the number as text
where it has none), Timestamp is a timestamp in microseconds, and the wrappers of google.protobuf are their nullable
values. A field that tells whether it was set is null where it was not; any other has Protobuf's default.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from ..errors import OptionError
from .protobuf_schemas import compiled, message_at, message_named
from .registered_decoder import RegisteredDecoder
from .registry import RegisteredSchema, Registry, SchemaKind
from .wire_format import read_message_indexes

Read = Callable[[Any], Any]
"""A function from a value of Protobuf to a value of Arrow."""

UINT64 = pa.decimal128(20, 0)
_MICROS = 1_000_000
_WRAPPERS = ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
_WRAPPER_NAMES = frozenset(f"google.protobuf.{name}Value" for name in _WRAPPERS)
TIMESTAMP = "google.protobuf.Timestamp"


class RegisteredProtobufDecoder(RegisteredDecoder[RegisteredSchema]):
    """A decoder of Protobuf by ids, for one message; `message` is its name, None for the first of the reader's."""

    kind = SchemaKind.PROTOBUF

    def __init__(self, registry: Registry, reader: RegisteredSchema, message: str | None = None) -> None:
        """Compile the reader's schema. Raises RegistryError, or OptionError for a message without a column type."""
        from google.protobuf import message_factory

        descriptor = message_of(reader, message)
        arrow_type, self._to_column = _column_of(descriptor, ())
        super().__init__(registry, arrow_type)
        self._class = message_factory.GetMessageClass(descriptor)
        self._name = descriptor.full_name
        self._checked: set[tuple[int, tuple[int, ...]]] = set()

    def prepare(self, schema: RegisteredSchema) -> RegisteredSchema:
        """Return the schema after protoc has accepted it, see RegisteredDecoder."""
        compiled(schema)
        return schema

    def decode_body(self, writer: RegisteredSchema, value: bytes, at: int) -> Any:
        """Return the value, see RegisteredDecoder. Raises ValueError for another message than the reader's."""
        indexes, at = read_message_indexes(value, at)
        if (writer.number, indexes) not in self._checked:
            found = message_at(writer, indexes).full_name
            if found != self._name:
                raise ValueError(f"a message {found}, not {self._name}")
            self._checked.add((writer.number, indexes))
        return self._to_column(self._class.FromString(value[at:]))


def protobuf_type(schema: RegisteredSchema, message: str | None = None) -> pa.DataType:
    """Return the column type of a message. Raises RegistryError, OptionError."""
    return _column_of(message_of(schema, message), ())[0]


def is_wrapper(descriptor: Any) -> bool:
    """Return whether a message is one of google.protobuf's wrappers, whose column is that of their value."""
    return descriptor.full_name in _WRAPPER_NAMES


def message_of(schema: RegisteredSchema, message: str | None) -> Any:
    """Return the Descriptor of a message, the schema's first for None. Raises RegistryError."""
    return message_at(schema, (0,)) if message is None else message_named(schema, message)


def _column_of(descriptor: Any, above: tuple[str, ...]) -> tuple[pa.DataType, Read]:
    """Return the type of a message and the function that reads it. Raises OptionError for a recursive message."""
    name = descriptor.full_name
    if name == TIMESTAMP:
        return pa.timestamp("us", "UTC"), _timestamp
    if is_wrapper(descriptor):
        kind, read = _single(descriptor.fields_by_name["value"], above)
        return kind, lambda message: read(message.value)
    if name in above:
        raise OptionError(f"message {name} contains itself: no column can have it")
    fields = [(field, *_field(field, (*above, name))) for field in descriptor.fields]
    if not fields:
        raise OptionError(f"message {name} has no fields: no column can have it")

    def read_message(message: Any) -> dict[str, Any]:
        return {
            field.name: None if field.has_presence and not message.HasField(field.name) else read(value_of(message))
            for field, value_of, read in readers
        }

    readers = [(field, _getter(field.name), read) for field, _, read in fields]
    return pa.struct([(field.name, kind) for field, kind, _ in fields]), read_message


def _getter(name: str) -> Callable[[Any], Any]:
    return lambda message: getattr(message, name)


def _field(field: Any, above: tuple[str, ...]) -> tuple[pa.DataType, Read]:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        entry = field.message_type.fields_by_name
        key_type, read_key = _single(entry["key"], above)
        value_type, read_value = _single(entry["value"], above)
        return pa.map_(key_type, value_type), lambda found: [(read_key(k), read_value(found[k])) for k in sorted(found)]
    kind, read = _single(field, above)
    if field.is_repeated:
        return pa.list_(kind), lambda found: [read(each) for each in found]
    return kind, read


def _single(field: Any, above: tuple[str, ...]) -> tuple[pa.DataType, Read]:
    """Return the type of one value of a field, and the function that reads it."""
    from google.protobuf.descriptor import FieldDescriptor as Kind

    if field.message_type is not None:
        return _column_of(field.message_type, above)
    if field.enum_type is not None:
        names = {value.number: value.name for value in field.enum_type.values}
        return pa.string(), lambda number: names.get(number, str(number))
    types = {
        Kind.CPPTYPE_INT32: pa.int32(),
        Kind.CPPTYPE_UINT32: pa.int64(),
        Kind.CPPTYPE_INT64: pa.int64(),
        Kind.CPPTYPE_UINT64: UINT64,
        Kind.CPPTYPE_FLOAT: pa.float32(),
        Kind.CPPTYPE_DOUBLE: pa.float64(),
        Kind.CPPTYPE_BOOL: pa.bool_(),
    }
    if field.cpp_type in types:
        return types[field.cpp_type], _same
    return (pa.binary() if field.type == Kind.TYPE_BYTES else pa.string()), _same


def _same(value: Any) -> Any:
    return value


def _timestamp(message: Any) -> int:
    """Return microseconds since the epoch. Raises ValueError for a time outside of years 1 to 9999."""
    datetime.fromtimestamp(message.seconds, UTC)
    micros: int = message.seconds * _MICROS + message.nanos // 1000
    return micros
