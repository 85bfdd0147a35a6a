"""Avro's types as Arrow's. Source: the Avro 1.11 specification."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from ..errors import OptionError

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


def arrow_type_of(schema: Any) -> pa.DataType:
    """The type of a column that holds what `schema` describes. Raises OptionError where there is none."""
    return _Translation().type_of(schema)


class _Translation:
    """Knows the named types that came before. A name is known once its type is whole, so none can hold itself."""

    def __init__(self) -> None:
        self._named: dict[str, pa.DataType] = {}
        self._complex: dict[str, Callable[[dict[str, Any]], pa.DataType]] = {
            "record": self._record,
            "enum": lambda schema: pa.string(),
            "fixed": lambda schema: pa.binary(int(schema["size"])),
            "array": lambda schema: pa.list_(self.type_of(schema["items"])),
            "map": lambda schema: pa.map_(pa.string(), self.type_of(schema["values"])),
        }

    def type_of(self, schema: Any) -> pa.DataType:
        try:
            if isinstance(schema, list):
                return self._union(schema)
            if isinstance(schema, dict):
                return self._described(schema)
            return _PRIMITIVES.get(schema) or self._named[schema]
        except (KeyError, TypeError, ValueError, RecursionError) as fault:
            raise OptionError(f"an Avro schema that no column can have: {fault} in {str(schema)[:200]}") from fault

    def _described(self, schema: dict[str, Any]) -> pa.DataType:
        kind = schema["type"]
        logical = schema.get("logicalType")
        if logical == "decimal":
            found = pa.decimal128(int(schema["precision"]), int(schema.get("scale", 0)))
        elif logical in _LOGICAL:
            found = _LOGICAL[logical]
        elif isinstance(kind, str) and kind in self._complex:
            found = self._complex[kind](schema)
        else:
            return self.type_of(kind)
        if "name" in schema:
            self._named[schema["name"]] = found
            self._named[f"{schema.get('namespace', '')}.{schema['name']}"] = found
        return found

    def _record(self, schema: dict[str, Any]) -> pa.DataType:
        return pa.struct([(field["name"], self.type_of(field["type"])) for field in schema["fields"]])

    def _union(self, branches: list[Any]) -> pa.DataType:
        others = [branch for branch in branches if branch != "null"]
        if len(others) != 1:
            raise ValueError("a union of more than one type beside null")
        return self.type_of(others[0])
