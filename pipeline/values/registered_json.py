"""JSON values by the JSON Schema whose id they name: checked by the writer's schema, read as the reader's columns.

Columns: objects with properties are structs, arrays are lists, objects with additionalProperties alone are maps,
integers have 64 bits, and numbers are doubles. Any other value (several types, no type, a schema that contains
itself) is a column of text that holds its JSON. A property that the reader lacks is left out; one that the value
lacks is the reader's default, or null.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow as pa

from ..errors import RegistryError
from .registered_decoder import RegisteredDecoder
from .registry import RegisteredSchema, Registry, SchemaKind

Read = Callable[[Any], Any]
"""A function from a value of JSON to a value of Arrow."""

DEEPEST = 32
"""The depth of nested types below which a column is JSON text."""
INT64_RANGE = range(-(2**63), 2**63)


class RegisteredJsonDecoder(RegisteredDecoder[Any]):
    """A decoder of JSON by ids; a writer is a validator."""

    kind = SchemaKind.JSON

    def __init__(self, registry: Registry, reader: RegisteredSchema) -> None:
        """Derive the columns of the reader's schema. Raises RegistryError."""
        arrow_type, self._read = json_column(reader)
        super().__init__(registry, arrow_type)

    def prepare(self, schema: RegisteredSchema) -> Any:
        """Return a validator of the schema, see RegisteredDecoder."""
        return validator_of(schema)

    def decode_body(self, writer: Any, value: bytes, at: int) -> Any:
        """Return the value, see RegisteredDecoder. Raises ValueError, jsonschema's ValidationError."""
        from jsonschema.exceptions import best_match
        from referencing.exceptions import Unresolvable

        found = json.loads(value[at:].decode(), parse_constant=_refuse_constant)
        try:
            fault = best_match(writer.iter_errors(found))
        except Unresolvable as missing:
            raise ValueError(f"a JSON Schema refers to {missing.ref}, which its references lack") from None
        if fault is not None:
            raise ValueError(f"{fault.json_path}: {fault.message}")
        return self._read(found)


def json_column(schema: RegisteredSchema) -> tuple[pa.DataType, Read]:
    """Return the column type of a schema's values, and the function that reads one. Raises RegistryError."""
    found = _column(schema)
    return found.arrow_type, found.read


def json_writer(schema: RegisteredSchema) -> Callable[[Any], Any]:
    """Return the function from a value of the schema's column to JSON that the schema allows. Raises RegistryError.

    That function raises ValueError, jsonschema's ValidationError. A null in an object is left out unless the property
    is required.
    """
    from jsonschema.exceptions import best_match

    column, validator = _column(schema), validator_of(schema)

    def write(value: Any) -> Any:
        found = column.write(value)
        fault = best_match(validator.iter_errors(found))
        if fault is not None:
            raise ValueError(f"{fault.json_path}: {fault.message}")
        return found

    return write


def validator_of(schema: RegisteredSchema) -> Any:
    """Return jsonschema's validator of a schema. Raises RegistryError."""
    from jsonschema.exceptions import SchemaError
    from jsonschema.validators import Draft7Validator, validator_for

    document = _document(schema)
    kind = validator_for(document, default=Draft7Validator)
    try:
        kind.check_schema(document)
    except SchemaError as fault:
        raise RegistryError(f"schema {schema.number} is no JSON Schema: {fault.message}") from None
    # With a registry of its own the library looks up nothing over the network.
    return kind(document, registry=_referenced(schema))


class _Column(NamedTuple):
    """The column of a schema's values: its type, and the functions from JSON to the column and back."""

    arrow_type: pa.DataType
    read: Read
    write: Read


def _column(schema: RegisteredSchema) -> _Column:
    from referencing import Resource
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import DRAFT7

    root = Resource.from_contents(_document(schema), default_specification=DRAFT7)
    resolver = _referenced(schema).resolver_with_root(root)
    try:
        return _column_of(root.contents, resolver, 0)
    except Unresolvable as missing:
        raise RegistryError(f"schema {schema.number} refers to {missing.ref}, which its references lack") from None


def _document(schema: RegisteredSchema) -> Any:
    try:
        document = json.loads(schema.text)
    except ValueError as fault:
        raise RegistryError(f"schema {schema.number} is no JSON Schema: {fault}") from None
    if not isinstance(document, dict | bool):
        raise RegistryError(f"schema {schema.number} is no JSON Schema")
    return document


def _referenced(schema: RegisteredSchema) -> Any:
    """Return the library's registry of the schemas that a schema refers to."""
    import referencing
    from referencing.jsonschema import DRAFT7

    pending, found = list(schema.references), []
    while pending:
        name, each = pending.pop()
        found.append((name, referencing.Resource.from_contents(_document(each), default_specification=DRAFT7)))
        pending += each.references
    return referencing.Registry().with_resources(found)


def _column_of(schema: Any, resolver: Any, depth: int) -> _Column:
    """Return the column of a schema's values. Raises Unresolvable."""
    while isinstance(schema, dict) and "$ref" in schema and depth <= DEEPEST:
        resolved = resolver.lookup(schema["$ref"])
        schema, resolver, depth = resolved.contents, resolved.resolver, depth + 1
    if not isinstance(schema, dict) or depth > DEEPEST:
        return _ANY
    branches = schema.get("oneOf") or schema.get("anyOf")
    if branches and not schema.get("properties"):
        others = [each for each in branches if not (isinstance(each, dict) and each.get("type") == "null")]
        return _column_of(others[0], resolver, depth + 1) if len(others) == 1 else _ANY
    kinds = schema.get("type")
    kinds = [kinds] if isinstance(kinds, str) else [each for each in kinds or () if each != "null"]
    if not kinds and schema.get("properties"):
        kinds = ["object"]
    if kinds == ["object"]:
        return _object(schema, resolver, depth)
    if kinds == ["array"] and isinstance(schema.get("items"), dict):
        kind, read, write = _column_of(schema["items"], resolver, depth + 1)
        return _Column(
            pa.list_(kind),
            lambda found: None if found is None else [read(each) for each in found],
            lambda value: None if value is None else [write(each) for each in value],
        )
    return _SCALARS.get(kinds[0], _ANY) if len(kinds) == 1 else _ANY


def _object(schema: dict[str, Any], resolver: Any, depth: int) -> _Column:
    properties = schema.get("properties")
    if properties:
        fields = {name: _column_of(each, resolver, depth + 1) for name, each in properties.items()}
        defaults = {name: each.get("default") for name, each in properties.items() if isinstance(each, dict)}
        required = set(schema.get("required", ()))

        def read_struct(found: Any) -> Any:
            if found is None:
                return None
            return {name: column.read(found.get(name, defaults.get(name))) for name, column in fields.items()}

        def write_struct(value: Any) -> Any:
            if value is None:
                return None
            unknown = value.keys() - fields.keys()
            if unknown:
                raise ValueError(f"the schema has no property {min(unknown)}")
            return {
                name: fields[name].write(each) for name, each in value.items() if each is not None or name in required
            }

        kind = pa.struct([(name, column.arrow_type) for name, column in fields.items()])
        return _Column(kind, read_struct, write_struct)
    if isinstance(schema.get("additionalProperties"), dict):
        kind, read, write = _column_of(schema["additionalProperties"], resolver, depth + 1)
        return _Column(
            pa.map_(pa.string(), kind),
            lambda found: None if found is None else [(name, read(each)) for name, each in found.items()],
            lambda value: None if value is None else {name: write(each) for name, each in value.items()},
        )
    return _ANY


def _same(value: Any) -> Any:
    return value


def _as_text(value: Any) -> str | None:
    return None if value is None else json.dumps(value, ensure_ascii=False)


def _integer(value: Any) -> int | None:
    """Return an integer, which JSON Schema also writes 1.0. Raises ValueError beyond 64 bits."""
    if value is None:
        return None
    number = int(value)
    if number not in INT64_RANGE:
        raise ValueError(f"{number} is beyond the range of a column of integers")
    return number


def _number(value: Any) -> float | None:
    """Return a double. Raises ValueError for a number that has no exact double and is an integer."""
    if value is None:
        return None
    number = float(value)
    if isinstance(value, int) and Decimal(number) != value:
        raise ValueError(f"{value} is beyond the integers that a column of doubles holds")
    return number


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _from_text(text: str | None) -> Any:
    return None if text is None else json.loads(text, parse_constant=_refuse_constant)


_ANY = _Column(pa.string(), _as_text, _from_text)
"""The column of a value of no one type: its JSON."""
_SCALARS = {
    "string": _Column(pa.string(), _same, _same),
    "boolean": _Column(pa.bool_(), _same, _same),
    "integer": _Column(pa.int64(), _integer, _same),
    "number": _Column(pa.float64(), _number, _same),
}
