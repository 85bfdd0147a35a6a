"""Decoders of a column of values, in a task; undecodable values are separated, with the reason."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from ..archive.json_values import MismatchError
from ..errors import RegistryError

LONGEST_REASON = 300


class ValueDecoder:
    """A decoder that leaves values unchanged; its subclasses decode one value at a time."""

    def __init__(self, arrow_type: pa.DataType) -> None:
        self._type = arrow_type

    def decode(self, values: pa.Array) -> tuple[pa.Array, dict[int, str]]:
        """Return the decoded column, null for undecodable values, and the reasons by index.

        Raises RegistryError, which is no fault of a value.
        """
        return values, {}


class ValueByValue(ValueDecoder):
    """A decoder of one value at a time."""

    def parse(self, value: bytes) -> Any:
        """Return the decoded value, which is never None; raises any exception."""
        raise NotImplementedError

    def decode(self, values: pa.Array) -> tuple[pa.Array, dict[int, str]]:
        """Decode each value, see ValueDecoder.decode."""
        decoded: list[Any] = []
        reasons: dict[int, str] = {}
        for index, value in enumerate(values.to_pylist()):
            try:
                decoded.append(None if value is None else self.parse(value))
            except RegistryError:
                raise
            except Exception as fault:  # parsers do not document which exceptions they raise for hostile bytes
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


def not_null(decoded: Any) -> Any:
    """Return a decoded value. Raises MismatchError for None, which a column shows for records without a value."""
    if decoded is None:
        raise MismatchError("null could not be told from a tombstone, a record without a value")
    return decoded


def _reason(fault: Exception) -> str:
    return f"{type(fault).__name__}: {fault}"[:LONGEST_REASON]
