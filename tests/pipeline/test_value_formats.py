"""Values with a schema: stored exactly as written, or dead letters with a reason."""

from __future__ import annotations

import io
import json
import re
import struct
import uuid
from datetime import date, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="the pipeline needs gregor-broker[spark]")
pytest.importorskip("fastavro", reason="the pipeline needs gregor-broker[spark]")

import fastavro
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from gregor.pipeline.archive.description import Values
from gregor.pipeline.archive.value_formats import ANY_ID, ValueFormat
from gregor.pipeline.errors import OptionError

DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}
DATE = {"type": "int", "logicalType": "date"}
TIME = {"type": "int", "logicalType": "time-millis"}
MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
MICROS = {"type": "long", "logicalType": "timestamp-micros"}
UUID = {"type": "string", "logicalType": "uuid"}
FIXED = {"type": "fixed", "name": "two", "size": 2}
ENUM = {"type": "enum", "name": "colour", "symbols": ["RED", "GREEN"]}
INTS = {"type": "array", "items": "int"}
COUNTS = {"type": "map", "values": "long"}
POINT = {"type": "record", "name": "point", "fields": [{"name": "x", "type": "int"}]}
NUMBER = "6a2f41a3-c54c-fce8-32d2-0324e1c32e22"


def record(kind: Any, **more: Any) -> dict[str, Any]:
    """Return a record with one field, `v`."""
    return {"type": "record", "name": "row", "fields": [{"name": "v", "type": kind, **more}]}


def decode(schema: Any, *values: bytes | None) -> tuple[list[Any], dict[int, str]]:
    """Return the decoded JSON values."""
    decoded, reasons = ValueFormat(Values.JSON, {ANY_ID: schema}).decoder().decode(pa.array(values, pa.binary()))
    decoded.validate(full=True)
    return decoded.to_pylist(), reasons


@pytest.mark.parametrize(
    ("kind", "written", "stored"),
    [
        ("boolean", "false", False),
        ("int", "-2147483648", -(2**31)),
        ("int", "7.0", 7),
        ("int", "0e-9999999", 0),
        ("long", "9223372036854775807", 2**63 - 1),
        ("long", "9.223372036854775807e18", 2**63 - 1),
        ("float", "0.5", 0.5),
        ("double", "0.1", 0.1),
        ("double", "9007199254740992", 2.0**53),
        ("double", "1e-400", 0.0),
        (DECIMAL, "99.99", Decimal("99.99")),
        (DECIMAL, "-1", Decimal("-1.00")),
        (DECIMAL, '"12.5"', Decimal("12.50")),
        ("string", '"\\ud83d\\ude00"', "\U0001f600"),
        ("bytes", '"\\u00ff"', b"\xff"),
        (FIXED, '"ab"', b"ab"),
        (ENUM, '"RED"', "RED"),
        (UUID, f'"{NUMBER}"', NUMBER),
        (INTS, "[1, 2]", [1, 2]),
        (COUNTS, '{"a": 1}', [("a", 1)]),
        (POINT, '{"x": 1, "y": 2}', {"x": 1}),
        (["null", "int"], "null", None),
        (["null", "int"], "5", 5),
        ({"type": "array", "items": ["null", "int"]}, "[null, 1]", [None, 1]),
        (DATE, "19000", date(2022, 1, 8)),
        (DATE, "2932896", date.max),
        (TIME, "86399999", time(23, 59, 59, 999000)),
    ],
)
def test_json_that_fits_is_stored_as_it_was_written(kind: Any, written: str, stored: Any) -> None:
    assert decode(record(kind), b'{"v": %s}' % written.encode()) == ([{"v": stored}], {})


@pytest.mark.parametrize(
    ("kind", "written", "reason"),
    [
        ("null", "1", "v: 1 is not null"),
        ("boolean", "1", "v: 1 is not a boolean"),
        ("boolean", '"true"', "v: 'true' is not a boolean"),
        ("int", "99.99", "v: 99.99 has a fraction, and the column is int"),
        ("int", "2147483648", "v: 2147483648 is beyond the range of int"),
        ("int", "1e9999999", "beyond the range of int"),
        ("int", "1e-9999999", "has a fraction"),
        ("int", "true", "v: true is not of type int"),
        ("int", '"5"', "v: '5' is not of type int"),
        ("int", "null", "v: null is not of type int"),
        ("long", "99.99", "has a fraction, and the column is long"),
        ("long", "9223372036854775808", "is beyond the range of long"),
        ("long", "9.2233720368547758071e18", "has a fraction"),
        ("long", "1" * 5000, "Exceeds the limit"),
        ("float", "1e39", "is beyond the range of float"),
        ("float", "16777217", "is not a value of float: the nearest value is 16777216"),
        ("double", "1e400", "is beyond the range of double"),
        ("double", "1" * 400, "is beyond the range of double"),
        ("double", "9007199254740993", "is not a value of double"),
        ("double", "true", "v: true is not of type double"),
        ("double", "NaN", "NaN is not JSON"),
        ("double", "-Infinity", "-Infinity is not JSON"),
        (DECIMAL, "1.999", "v: 1.999 has more than 2 digits behind the point"),
        (DECIMAL, "999", "v: 999 has more than 2 digits before the point"),
        (DECIMAL, "1e9999999", "digits before the point"),
        (DECIMAL, "1e-9999999", "digits behind the point"),
        (DECIMAL, '"a lot"', "v: 'a lot' is not a decimal number"),
        (DECIMAL, '"NaN"', "v: 'NaN' is not a decimal number"),
        (DECIMAL, "true", "v: true is not a decimal number"),
        ("string", "5", "v: 5 is not of type string"),
        ("string", '"\\ud800"', "half of a surrogate pair"),
        ("bytes", '"\\u0100"', r"a character above U\+00FF"),
        ("bytes", "[1]", "v: an array is not of type bytes"),
        (FIXED, '"abc"', "has 3 bytes, not 2"),
        (ENUM, '"BLUE"', "v: 'BLUE' is not a symbol of the enum"),
        (UUID, '"nobody"', "v: 'nobody' is not a uuid"),
        (INTS, "[1, 2.5]", r"v\[1\]: 2.5 has a fraction"),
        (INTS, "[null]", r"v\[0\]: null is not of type int"),
        (INTS, '{"0": 1}', "v: an object is not an array"),
        (COUNTS, '{"a": 0.5}', "v.a: 0.5 has a fraction"),
        (COUNTS, '{"\\ud800": 1}', "half of a surrogate pair"),
        (COUNTS, "[]", "v: an array is not a map"),
        (POINT, "{}", "v.x: is missing"),
        (POINT, '{"x": 0.5}', "v.x: 0.5 has a fraction"),
        (POINT, '[["x", 1]]', "v: an array is not a record"),
        (["null", "int"], "1.5", "has a fraction"),
        (DATE, "1.5", "has a fraction, and the column is date"),
        (DATE, "2932897", "is beyond the range of date"),
        (DATE, '"2022-01-08"', "is not of type date"),
        (TIME, "86400000", "is beyond the range of time-millis"),
        (MILLIS, "1.7", "has a fraction, and the column is timestamp-millis"),
        (MILLIS, "253402300800000", "is beyond the range of timestamp-millis"),
        (MICROS, "9223372036854775807", "is beyond the range of timestamp-micros"),
    ],
)
def test_json_that_does_not_fit_is_a_dead_letter(kind: Any, written: str, reason: str) -> None:
    decoded, reasons = decode(record(kind), b'{"v": 1}', b'{"v": %s}' % written.encode(), None)
    assert decoded[1:] == [None, None]
    assert set(reasons) - {0} == {1}, "a tombstone is no dead letter"
    assert re.search(reason, reasons[1])


def test_a_value_of_json_null_is_a_dead_letter_and_no_tombstone() -> None:
    for schema in (record("int"), ["null", record("int")], "string", ["null", "long"]):
        decoded, reasons = decode(schema, b"null", None)
        assert decoded == [None, None]
        assert list(reasons) == [0]
        assert "null" in reasons[0]


def test_values_that_are_no_json_in_utf_8_are_dead_letters() -> None:
    values = [b"", b"{", b'{"v": 1} x', '{"v": 1}'.encode("utf-16"), b"[" * 100_000, b"\xef\xbb\xbf{}"]
    decoded, reasons = decode(record("int"), *values)
    assert decoded == [None] * len(values)
    assert list(reasons) == list(range(len(values)))


def test_json_kept_as_text_must_be_valid_json() -> None:
    values = pa.array([b"null", b"NaN", b'{"a": 1.0000000000000000001}', None], pa.binary())
    decoded, reasons = ValueFormat(Values.JSON, {}).decoder().decode(values)
    assert decoded.to_pylist() == ["null", None, '{"a": 1.0000000000000000001}', None]
    assert reasons == {1: "ValueError: NaN is not JSON"}


@pytest.mark.parametrize(
    ("kind", "default", "stored"),
    [
        ("int", 7, 7),
        ("double", 0.1, 0.1),
        (["null", "int"], None, None),
        (INTS, [], []),
        (POINT, {"x": 3}, {"x": 3}),
        ("bytes", "\u00ff", b"\xff"),
    ],
)
def test_a_field_that_is_missing_has_its_default(kind: Any, default: Any, stored: Any) -> None:
    assert decode(record(kind, default=default), b"{}") == ([{"v": stored}], {})


def test_a_missing_field_without_a_default_is_null_or_a_dead_letter() -> None:
    assert decode(record(["null", "int"]), b"{}") == ([{"v": None}], {})
    decoded, reasons = decode(record("int"), b"{}")
    assert decoded == [None]
    assert reasons == {0: "MismatchError: v: is missing, and the schema has no default for it"}


@pytest.mark.parametrize(
    ("kind", "schema", "message"),
    [
        ("json", record("int", default=1.5), "the default of field v: 1.5 has a fraction"),
        ("json", record("nothing"), "no column can have"),
        ("avro", {"type": "record"}, "no column can have"),
        ("avro", [], "no column can have"),
        ("avro", {"type": "array", "items": {"type": "fixed", "size": 3}}, "no Avro schema"),
    ],
)
def test_an_invalid_schema_is_refused_when_options_are_read(
    tmp_path: Path, kind: str, schema: Any, message: str
) -> None:
    path = tmp_path / "schema.avsc"
    path.write_text(json.dumps(schema))
    with pytest.raises(OptionError, match=message):
        ValueFormat.from_options(Values(kind), [str(path)])


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
kinds = st.sampled_from(
    ["boolean", "int", "long", "float", "double", "string", "bytes", DECIMAL, DATE, MILLIS, INTS, COUNTS, POINT, ENUM]
)


@given(kinds, json_values)
def test_json_values_are_stored_exactly_or_are_dead_letters(kind: Any, value: Any) -> None:
    (decoded,), reasons = decode(record(kind), json.dumps({"v": value}).encode())
    if reasons:
        assert decoded is None
        return
    stored = decoded["v"]
    if kind in ("boolean", "int", "long", "double", "string"):
        assert stored == value
        assert isinstance(value, bool) == isinstance(stored, bool)
    elif kind is INTS:
        assert [int(item) for item in value] == stored == value
    elif kind is COUNTS:
        assert dict(stored) == value


def avro(writer: Any, reader: Any, *values: Any) -> tuple[list[Any], dict[int, str]]:
    """Return the decoded values of the writer's schema."""
    framed = []
    for value in values:
        body = io.BytesIO()
        fastavro.schemaless_writer(body, fastavro.parse_schema(writer), value)
        framed.append(struct.pack(">bi", 0, 1) + body.getvalue())
    decoded, reasons = ValueFormat(Values.AVRO, {1: writer, 2: reader}).decoder().decode(pa.array(framed))
    return decoded.to_pylist(), reasons


def test_avro_values_incompatible_with_the_reader_schema_are_dead_letters() -> None:
    for writer, reader, value in (
        (record("long"), record("int"), {"v": 5}),
        ({"type": "record", "name": "row", "fields": []}, record("int"), {}),
        (record(["null", "int"]), record("int"), {"v": None}),
        (record(ENUM), record({**ENUM, "symbols": ["GREEN"]}), {"v": "RED"}),
        (["null", record("int")], ["null", record("int")], None),
    ):
        decoded, reasons = avro(writer, reader, value)
        assert decoded == [None]
        assert list(reasons) == [0]


def test_uuids_in_avro_are_text() -> None:
    nested = record({"type": "array", "items": UUID})
    assert avro(nested, nested, {"v": [uuid.UUID(NUMBER)]}) == ([{"v": [NUMBER]}], {})
