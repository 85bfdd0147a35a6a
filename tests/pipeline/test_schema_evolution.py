"""The changes of a table's column for a new schema."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="the pipeline needs gregor-broker[spark]")

import pyarrow as pa

from gregor.pipeline.archive.avro_types import AvroColumn, column_of
from gregor.pipeline.archive.manifest import ManifestError
from gregor.pipeline.archive.schema_evolution import Added, Change, Renamed, Widened
from gregor.pipeline.archive.schema_evolution import changes as changes_of


def changes(known: pa.DataType, wanted: AvroColumn) -> list[Change]:
    """Return the changes for the values of an Avro schema."""
    return changes_of(known, wanted.arrow_type, wanted)


def record(*fields: dict[str, Any], name: str = "R") -> dict[str, Any]:
    """Return an Avro schema."""
    return {"type": "record", "name": name, "fields": list(fields)}


def decimal(precision: int, scale: int) -> dict[str, Any]:
    """Return an Avro type."""
    return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}


TYPES: list[Any] = ["int", "long", "float", "double", "string", "bytes", "boolean", decimal(9, 2)]
TYPES += [{"type": "long", "logicalType": "timestamp-millis"}, {"type": "fixed", "name": "f", "size": 3}]
TYPES += [{"type": "array", "items": "int"}, {"type": "map", "values": "string"}, record({"name": "a", "type": "int"})]


@pytest.mark.parametrize("avro", TYPES)
def test_the_same_schema_changes_nothing(avro: Any) -> None:
    column = column_of(record({"name": "x", "type": ["null", avro]}))
    assert changes(column.arrow_type, column) == []


@pytest.mark.parametrize(
    ("old", "new", "wider"),
    [("int", "long", pa.int64()), ("float", "double", pa.float64()), (decimal(9, 2), decimal(12, 2), None)],
)
def test_a_type_can_be_widened_but_not_narrowed_in_any_container(old: Any, new: Any, wider: Any) -> None:
    wider = wider or pa.decimal128(12, 2)
    for wrap, path in (
        (lambda each: each, ()),
        (lambda each: {"type": "array", "items": each}, ("element",)),
        (lambda each: {"type": "map", "values": each}, ("value",)),
        (lambda each: record({"name": "in", "type": each}, name="Inner"), ("in",)),
    ):
        known = column_of(record({"name": "x", "type": wrap(old)})).arrow_type
        wanted = column_of(record({"name": "x", "type": wrap(new)}))
        assert changes(known, wanted) == [Widened(("value", "x", *path), wider)]
        with pytest.raises(ManifestError, match="can only become wider"):
            changes(wanted.arrow_type, column_of(record({"name": "x", "type": wrap(old)})))


@pytest.mark.parametrize(("old", "new"), [("int", "double"), (decimal(9, 2), decimal(12, 3)), ("string", "bytes")])
def test_incompatible_type_changes_are_refused(old: Any, new: Any) -> None:
    known = column_of(record({"name": "x", "type": old})).arrow_type
    with pytest.raises(ManifestError, match=r"value\.x is .* in the table"):
        changes(known, column_of(record({"name": "x", "type": new})))


def test_columns_are_renamed_by_aliases() -> None:
    known = column_of(record({"name": "a", "type": "int"}, {"name": "b", "type": "int"})).arrow_type
    moved = record({"name": "c", "type": "long", "aliases": ["z", "a"]}, {"name": "d", "type": "int", "aliases": ["e"]})
    assert changes(known, column_of(moved)) == [
        Renamed(("value", "a"), "c"),
        Widened(("value", "c"), pa.int64()),
        Added(("value", "d"), pa.int32()),
    ]
    # The table still needs the name a, and a repeated change finds it done.
    both = record({"name": "a", "type": "int"}, {"name": "c", "type": "int", "aliases": ["a"]})
    assert changes(known, column_of(both)) == [Added(("value", "c"), pa.int32())]
    done = pa.struct([("c", pa.int64()), ("b", pa.int32()), ("d", pa.int32())])
    assert changes(done, column_of(moved)) == []
