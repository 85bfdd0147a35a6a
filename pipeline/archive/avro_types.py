"""Avro schemas as columns: each type with its Arrow type. Source: the Avro 1.11 specification."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from ..errors import OptionError

NO_DEFAULT = object()
"""The default of a field without one; null is a default too."""


@dataclass(frozen=True, slots=True)
class AvroColumn:
    """A column for the values of an Avro schema.

    `kind` is Avro's name of the type, or of the logical type where Arrow has a type of its own for that. `items` is
    the column of an array's items or of a map's values.
    """

    kind: str
    arrow_type: pa.DataType
    is_nullable: bool = False
    fields: tuple[AvroField, ...] = ()
    items: AvroColumn | None = None
    symbols: frozenset[str] = frozenset()

    def has(self, kind: str) -> bool:
        """Return whether this column, or a nested one, is of that kind."""
        inside = [field.column for field in self.fields] + ([self.items] if self.items else [])
        return self.kind == kind or any(column.has(kind) for column in inside)


@dataclass(frozen=True, slots=True)
class AvroField:
    """A field of a record; `default` is as in the schema, in JSON, or NO_DEFAULT; `aliases` are its other names."""

    name: str
    column: AvroColumn
    default: Any
    aliases: tuple[str, ...] = ()


_PRIMITIVES: dict[str, pa.DataType] = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_LOGICAL: dict[str, pa.DataType] = {
    "date": pa.date32(),
    "time-millis": pa.time32("ms"),
    "time-micros": pa.time64("us"),
    "timestamp-millis": pa.timestamp("ms", "UTC"),
    "timestamp-micros": pa.timestamp("us", "UTC"),
    "local-timestamp-millis": pa.timestamp("ms"),
    "local-timestamp-micros": pa.timestamp("us"),
    "uuid": pa.string(),
}


def column_of(schema: Any) -> AvroColumn:
    """Return the column for the values of `schema`. Raises OptionError if there is none."""
    return _Translation().column_of(schema)


class _Translation:
    """A traversal of one schema that collects its named types.

    A name is added once its type is complete, so a type cannot contain itself.
    """

    def __init__(self) -> None:
        self._named: dict[str, AvroColumn] = {}
        self._complex: dict[str, Callable[[dict[str, Any]], AvroColumn]] = {
            "record": self._record,
            "enum": lambda schema: AvroColumn("enum", pa.string(), symbols=frozenset(schema["symbols"])),
            "fixed": lambda schema: AvroColumn("fixed", pa.binary(int(schema["size"]))),
            "array": self._array,
            "map": self._map,
        }

    def column_of(self, schema: Any) -> AvroColumn:
        try:
            if isinstance(schema, list):
                return self._union(schema)
            if isinstance(schema, dict):
                return self._described(schema)
            if schema in _PRIMITIVES:
                return AvroColumn(schema, _PRIMITIVES[schema], is_nullable=schema == "null")
            return self._named[schema]
        except (KeyError, TypeError, ValueError, RecursionError) as fault:
            raise OptionError(f"an Avro schema that no column can have: {fault} in {str(schema)[:200]}") from fault

    def _described(self, schema: dict[str, Any]) -> AvroColumn:
        kind = schema["type"]
        logical = schema.get("logicalType")
        if logical == "decimal":
            found = AvroColumn("decimal", pa.decimal128(int(schema["precision"]), int(schema.get("scale", 0))))
        elif logical in _LOGICAL:
            found = AvroColumn(logical, _LOGICAL[logical])
        elif isinstance(kind, str) and kind in self._complex:
            found = self._complex[kind](schema)
        else:
            return self.column_of(kind)
        if "name" in schema:
            self._named[schema["name"]] = found
            self._named[f"{schema.get('namespace', '')}.{schema['name']}"] = found
        return found

    def _record(self, schema: dict[str, Any]) -> AvroColumn:
        fields = tuple(
            AvroField(
                field["name"],
                self.column_of(field["type"]),
                field.get("default", NO_DEFAULT),
                tuple(field.get("aliases", ())),
            )
            for field in schema["fields"]
        )
        return AvroColumn("record", pa.struct([(each.name, each.column.arrow_type) for each in fields]), fields=fields)

    def _array(self, schema: dict[str, Any]) -> AvroColumn:
        items = self.column_of(schema["items"])
        return AvroColumn("array", pa.list_(items.arrow_type), items=items)

    def _map(self, schema: dict[str, Any]) -> AvroColumn:
        values = self.column_of(schema["values"])
        return AvroColumn("map", pa.map_(pa.string(), values.arrow_type), items=values)

    def _union(self, branches: list[Any]) -> AvroColumn:
        others = [branch for branch in branches if branch != "null"]
        if len(others) != 1:
            raise ValueError("a union of more than one type beside null")
        column = self.column_of(others[0])
        return replace(column, is_nullable=True) if len(others) < len(branches) else column
