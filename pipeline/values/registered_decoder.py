"""The decoding of values by the schema whose id each value names, to the columns of one schema, the reader's."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import pyarrow as pa

from ..errors import RegistryError
from .decoder import ValueByValue, not_null
from .registry import BoundedCache, RegisteredSchema, Registry, SchemaKind
from .wire_format import split_header

MOST_WRITERS = 256
"""The number of writers' schemas that a decoder keeps in a usable form."""

Writer = TypeVar("Writer")


class RegisteredDecoder(ValueByValue, Generic[Writer]):
    """A decoder of Confluent's wire format for one kind of schema; `Writer` is a schema in a usable form."""

    kind: SchemaKind

    def __init__(self, registry: Registry, arrow_type: pa.DataType) -> None:
        super().__init__(arrow_type)
        self._registry = registry
        self._writers: BoundedCache[int, Writer] = BoundedCache(MOST_WRITERS)
        self._unusable: BoundedCache[int, str] = BoundedCache(MOST_WRITERS)

    def parse(self, value: bytes) -> Any:
        """Decode a value by the schema id in its header. Raises RegistryError, and any error of the value."""
        number, at = split_header(value)
        writer = self._writers.get(number)
        if writer is None:
            writer = self._prepared(number)
            self._writers.put(number, writer)
        return not_null(self.decode_body(writer, value, at))

    def _prepared(self, number: int) -> Writer:
        """Return the writer's schema of an id. Raises RegistryError, ValueError for a schema that cannot be used."""
        reason = self._unusable.get(number)
        if reason is not None:
            raise ValueError(reason)
        schema = self._registry.schema(number)
        if schema.kind is not self.kind:
            raise ValueError(f"schema {number} is of kind {schema.kind}, not {self.kind}")
        try:
            return self.prepare(schema)
        except RegistryError as fault:
            # The other records must not wait for this one, which can be decoded again as a dead letter.
            self._unusable.put(number, str(fault))
            raise ValueError(str(fault)) from None

    def prepare(self, schema: RegisteredSchema) -> Writer:
        """Return a writer's schema in a usable form. Raises RegistryError for one that is none."""
        raise NotImplementedError

    def decode_body(self, writer: Writer, value: bytes, at: int) -> Any:
        """Return the value whose body begins at `at`; raises any exception."""
        raise NotImplementedError
