"""JSON values as the columns of an Avro schema: a value is stored exactly as it was written, or not at all.

The rules, by the kind of `avro_types.AvroColumn`:

    boolean                 true or false
    int, long               a number without a fraction (7, 7.0, 7e2), in the type's range
    float, double           any number in the type's range: one with a point or an exponent becomes the nearest value
                            of the type, one that is written as an integer must be a value of the type
    decimal                 a number, or a string of digits that holds one, of at most `scale` digits behind the point
                            and at most `precision` digits in all
    string, enum, uuid      a string; one of the symbols; a UUID
    bytes, fixed            a string whose characters U+0000 to U+00FF stand for bytes, as in Avro's JSON encoding
    date, time, timestamp   a number without a fraction: the days, milliseconds or microseconds of Avro's logical type,
                            from the year 1 to the year 9999, a time within its day
    array, map, record      an array; an object; an object with the record's fields

null stands where the schema allows null and nowhere else. A field that is missing has its default; without one it is
null if the schema allows that, and a mismatch otherwise. Members that the schema lacks are left out.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable
from decimal import Decimal, localcontext
from typing import Any
from uuid import UUID

from .avro_types import NO_DEFAULT, AvroColumn, AvroField

Reader = Callable[[Any], Any]
"""A converter from the values of `json.loads` (fractions as Decimal) to those of `pyarrow.array`.

Raises MismatchError.
"""

_DECIMAL_TEXT = re.compile(r"-?\d+(\.\d+)?", re.ASCII)
_MOST_SHOWN = 60
_MOST_DIGITS = 400
"""The digits beyond which a number without a fraction is out of range of every type."""
_SECONDS_FROM_YEAR_1 = -62_135_596_800
_SECONDS_UNTIL_YEAR_10000 = 253_402_300_800
_DAY_S = 86_400

_FLOAT32 = struct.Struct("<f")


class MismatchError(ValueError):
    """A JSON value that its column cannot hold; `str()` is the path to the value, and the reason."""

    def __init__(self, reason: str, path: str = "") -> None:
        super().__init__(f"{path}: {reason}" if path else reason)
        self._reason = reason
        self._path = path

    def below(self, name: str) -> MismatchError:
        """Return the same mismatch with `name`, the enclosing member, before its path."""
        dot = "." if self._path and not self._path.startswith("[") else ""
        return MismatchError(self._reason, f"{name}{dot}{self._path}")


def reader_of(column: AvroColumn) -> Reader:
    """Return the reader for values of one column. Raises MismatchError for a default that its own field cannot hold."""
    read = _READERS[column.kind](column)
    return _or_null(read) if column.is_nullable else read


def _or_null(read: Reader) -> Reader:
    return lambda value: None if value is None else read(value)


def _null(column: AvroColumn) -> Reader:
    def read(value: Any) -> None:
        raise MismatchError(f"{_shown(value)} is not null")

    return read


def _boolean(column: AvroColumn) -> Reader:
    def read(value: Any) -> bool:
        if not isinstance(value, bool):
            raise MismatchError(f"{_shown(value)} is not a boolean")
        return value

    return read


def _whole(least: int, end: int) -> Callable[[AvroColumn], Reader]:
    """Return a reader of numbers without a fraction, from `least` up to but not including `end`."""

    def make(column: AvroColumn) -> Reader:
        def read(value: Any) -> int:
            number = value if type(value) is int else _without_fraction(value, column.kind)
            if not least <= number < end:
                raise MismatchError(f"{_shown(value)} is beyond the range of {column.kind}")
            return number

        return read

    return make


def _without_fraction(value: Any, kind: str) -> int:
    if not isinstance(value, Decimal):
        raise MismatchError(f"{_shown(value)} is not of type {kind}")
    if value.adjusted() > _MOST_DIGITS:
        raise MismatchError(f"{_shown(value)} is beyond the range of {kind}")
    # The exponent is checked before the number is expanded: a hostile number may have a huge one.
    if value.adjusted() < -_MOST_DIGITS or value != value.to_integral_value():
        if value:
            raise MismatchError(f"{_shown(value)} has a fraction, and the column is {kind}")
        return 0
    return int(value)


def _floating(column: AvroColumn) -> Reader:
    is_single = column.kind == "float"

    def read(value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | Decimal):
            raise MismatchError(f"{_shown(value)} is not of type {column.kind}")
        try:
            number = float(value)
            if is_single:
                (number,) = _FLOAT32.unpack(_FLOAT32.pack(number))
        except OverflowError:
            number = math.inf
        if math.isinf(number):
            raise MismatchError(f"{_shown(value)} is beyond the range of {column.kind}")
        if isinstance(value, int) and number != value:
            raise MismatchError(f"{_shown(value)} is not a value of {column.kind}: the nearest value is {number:.0f}")
        return number

    return read


def _decimal(column: AvroColumn) -> Reader:
    precision, scale = column.arrow_type.precision, column.arrow_type.scale

    def read(value: Any) -> Decimal:
        is_number = isinstance(value, int | Decimal) and not isinstance(value, bool)
        is_text = isinstance(value, str) and len(value) <= _MOST_DIGITS and _DECIMAL_TEXT.fullmatch(value)
        if not (is_number or is_text):
            raise MismatchError(f"{_shown(value)} is not a decimal number")
        number = Decimal(value)
        if number and number.adjusted() >= precision - scale:
            raise MismatchError(f"{_shown(value)} has more than {precision - scale} digits before the point")
        with localcontext(prec=precision + 1) as context:
            context.clear_traps()
            rounded = number.quantize(Decimal(1).scaleb(-scale))
        if rounded != number:
            raise MismatchError(f"{_shown(value)} has more than {scale} digits behind the point")
        return rounded

    return read


def _string(column: AvroColumn) -> Reader:
    def read(value: Any) -> str:
        if not isinstance(value, str):
            raise MismatchError(f"{_shown(value)} is not of type {column.kind}")
        if not value.isascii():
            _check_characters(value)
        return value

    return read


def _check_characters(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as fault:
        raise MismatchError(f"{_shown(text)} has half of a surrogate pair") from fault


def _enum(column: AvroColumn) -> Reader:
    def read(value: Any) -> str:
        if not isinstance(value, str) or value not in column.symbols:
            raise MismatchError(f"{_shown(value)} is not a symbol of the enum")
        return value

    return read


def _uuid(column: AvroColumn) -> Reader:
    def read(value: Any) -> str:
        try:
            if isinstance(value, str) and str(UUID(value)) == value.lower():
                return value
        except ValueError:
            pass
        raise MismatchError(f"{_shown(value)} is not a uuid")

    return read


def _bytes(column: AvroColumn) -> Reader:
    size = column.arrow_type.byte_width if column.kind == "fixed" else None

    def read(value: Any) -> bytes:
        if not isinstance(value, str):
            raise MismatchError(f"{_shown(value)} is not of type {column.kind}: bytes are written as a string")
        try:
            data = value.encode("latin-1")
        except UnicodeEncodeError as fault:
            raise MismatchError(f"{_shown(value)} has a character above U+00FF, which is not a byte") from fault
        if size is not None and len(data) != size:
            raise MismatchError(f"{_shown(value)} has {len(data)} bytes, not {size}")
        return data

    return read


def _array(column: AvroColumn) -> Reader:
    assert column.items is not None
    read_item = reader_of(column.items)

    def read(value: Any) -> list[Any]:
        if not isinstance(value, list):
            raise MismatchError(f"{_shown(value)} is not an array")
        found: list[Any] = []
        try:
            for item in value:
                found.append(read_item(item))  # noqa: PERF401 - how many there are says which one does not fit
        except MismatchError as mismatch:
            raise mismatch.below(f"[{len(found)}]") from None
        return found

    return read


def _map(column: AvroColumn) -> Reader:
    assert column.items is not None
    read_item = reader_of(column.items)

    def read(value: Any) -> list[tuple[str, Any]]:
        if not isinstance(value, dict):
            raise MismatchError(f"{_shown(value)} is not a map, which is written as an object")
        found: list[tuple[str, Any]] = []
        for name, item in value.items():
            _check_characters(name)
            try:
                found.append((name, read_item(item)))
            except MismatchError as mismatch:
                raise mismatch.below(name) from None
        return found

    return read


def _record(column: AvroColumn) -> Reader:
    fields = [(each.name, reader_of(each.column), _when_missing(each)) for each in column.fields]

    def read(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise MismatchError(f"{_shown(value)} is not a record, which is written as an object")
        found = {}
        for name, read_field, when_missing in fields:
            try:
                found[name] = read_field(value[name]) if name in value else when_missing()
            except MismatchError as mismatch:
                raise mismatch.below(name) from None
        return found

    return read


def _when_missing(field: AvroField) -> Callable[[], Any]:
    """Return a function that returns the value of a missing field."""
    if field.default is NO_DEFAULT:
        if field.column.is_nullable:
            return lambda: None

        def refuse() -> Any:
            raise MismatchError("is missing, and the schema has no default for it")

        return refuse
    try:
        default = reader_of(field.column)(_with_decimals(field.default))
    except MismatchError as mismatch:
        raise MismatchError(f"the default of field {field.name}: {mismatch}") from None
    return lambda: default


def _with_decimals(default: Any) -> Any:
    """Convert the fractions of a schema's default to Decimal, as in JSON values."""
    if isinstance(default, float):
        return Decimal(repr(default))
    if isinstance(default, list):
        return [_with_decimals(each) for each in default]
    if isinstance(default, dict):
        return {name: _with_decimals(each) for name, each in default.items()}
    return default


def _shown(value: Any) -> str:
    """Format a value for a reason, shortened; a nested value is named only by its type."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "an array"
    if isinstance(value, int) and value.bit_length() > 512:
        return "a number of more than 150 digits"
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."


def _moments(units_a_second: int) -> Callable[[AvroColumn], Reader]:
    return _whole(_SECONDS_FROM_YEAR_1 * units_a_second, _SECONDS_UNTIL_YEAR_10000 * units_a_second)


_READERS: dict[str, Callable[[AvroColumn], Reader]] = {
    "null": _null,
    "boolean": _boolean,
    "int": _whole(-(2**31), 2**31),
    "long": _whole(-(2**63), 2**63),
    "float": _floating,
    "double": _floating,
    "decimal": _decimal,
    "string": _string,
    "enum": _enum,
    "uuid": _uuid,
    "bytes": _bytes,
    "fixed": _bytes,
    "date": _whole(_SECONDS_FROM_YEAR_1 // _DAY_S, _SECONDS_UNTIL_YEAR_10000 // _DAY_S),
    "time-millis": _whole(0, _DAY_S * 1000),
    "time-micros": _whole(0, _DAY_S * 1_000_000),
    "timestamp-millis": _moments(1000),
    "timestamp-micros": _moments(1_000_000),
    "local-timestamp-millis": _moments(1000),
    "local-timestamp-micros": _moments(1_000_000),
    "array": _array,
    "map": _map,
    "record": _record,
}
