"""Values of data frames in Confluent's wire format: the header with the schema's id, then Avro, Protobuf or JSON.

The columns are those that the decoders make of the same schema, so that a table is written back as it was read. A value
that the schema does not allow raises EncodingError; null stays null, a tombstone.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from ..errors import EncodingError, OptionError
from .protobuf_schemas import indexes_of
from .registered_avro import parsed_avro
from .registered_json import json_writer
from .registered_protobuf import TIMESTAMP, is_wrapper, message_of
from .registry import RegisteredSchema, SchemaKind
from .wire_format import write_header

Encode = Callable[[Any], bytes]
"""A function from a value as Arrow makes it, maps as dicts, to the bytes of a record's value. Raises EncodingError."""

LONGEST_REASON = 300


def encoder_of(schema: RegisteredSchema, message: str | None = None) -> Encode:
    """Return the function that writes values by a registered schema. Raises RegistryError, OptionError.

    `message` is the name of a Protobuf message, None for the first of the schema.
    """
    if message is not None and schema.kind is not SchemaKind.PROTOBUF:
        raise OptionError(f"message {message} needs a Protobuf schema, and that of the subject is {schema.kind}")
    if schema.kind is SchemaKind.AVRO:
        encode = _avro(schema)
    elif schema.kind is SchemaKind.PROTOBUF:
        encode = _protobuf(schema, message)
    else:
        encode = _json(schema)

    def checked(value: Any) -> bytes:
        try:
            return encode(value)
        except Exception as fault:  # the libraries do not document which exceptions they raise for wrong values
            reason = " ".join(str(fault).split())[:LONGEST_REASON]
            raise EncodingError(f"a value that schema {schema.number} does not allow: {reason}") from None

    return checked


def _avro(schema: RegisteredSchema) -> Encode:
    import fastavro
    from fastavro.validation import validate

    parsed, header = parsed_avro(schema), write_header(schema.number)

    def encode(value: Any) -> bytes:
        # The writer does not look at the ranges of numbers.
        validate(value, parsed)
        body = io.BytesIO()
        body.write(header)
        fastavro.schemaless_writer(body, parsed, value, strict_allow_default=True)
        return body.getvalue()

    return encode


def _json(schema: RegisteredSchema) -> Encode:
    write, header = json_writer(schema), write_header(schema.number)
    return lambda value: header + json.dumps(write(value), ensure_ascii=False, separators=(",", ":")).encode()


def _protobuf(schema: RegisteredSchema, name: str | None) -> Encode:
    from google.protobuf import message_factory

    descriptor = message_of(schema, name)
    kind = message_factory.GetMessageClass(descriptor)
    header = write_header(schema.number, indexes_of(descriptor))

    def encode(value: Any) -> bytes:
        message = kind()
        _fill(message, value)
        body: bytes = message.SerializeToString(deterministic=True)
        return header + body

    return encode


def _fill(message: Any, value: Any) -> None:
    """Set the fields of a message from a column's value. Raises ValueError, TypeError."""
    descriptor = message.DESCRIPTOR
    if descriptor.full_name == TIMESTAMP:
        message.FromDatetime(value)
        return
    if is_wrapper(descriptor):
        message.value = _single(descriptor.fields_by_name["value"], value)
        return
    unknown = value.keys() - descriptor.fields_by_name.keys()
    if unknown:
        raise ValueError(f"message {descriptor.full_name} has no field {min(unknown)}")
    for name, found in value.items():
        if found is not None:
            _set(message, descriptor.fields_by_name[name], found)


def _set(message: Any, field: Any, found: Any) -> None:
    inner = field.message_type
    if inner is not None and inner.GetOptions().map_entry:
        entries, entry = getattr(message, field.name), inner.fields_by_name
        for key, each in found.items():
            if entry["value"].message_type is None:
                entries[_single(entry["key"], key)] = _single(entry["value"], each)
            else:
                _fill(entries[_single(entry["key"], key)], each)
    elif field.is_repeated:
        for each in found:
            if inner is None:
                getattr(message, field.name).append(_single(field, each))
            else:
                _fill(getattr(message, field.name).add(), each)
    elif inner is None:
        setattr(message, field.name, _single(field, found))
    else:
        part = getattr(message, field.name)
        part.SetInParent()
        _fill(part, found)


def _single(field: Any, value: Any) -> Any:
    """Return a value of a field that is no message. Raises ValueError."""
    if field.type == field.TYPE_STRING and not isinstance(value, str):
        raise ValueError(f"{field.full_name} is a string, not {type(value).__name__}")
    if field.enum_type is not None and isinstance(value, str):
        known = field.enum_type.values_by_name.get(value)
        if known is None and not value.lstrip("-").isdigit():
            raise ValueError(f"enum {field.enum_type.full_name} has no value {value}")
        return int(value) if known is None else known.number
    return int(value) if isinstance(value, Decimal) else value
