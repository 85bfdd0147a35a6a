"""Values that are written by schemas of a registry: read again they are the same, and wrong ones are refused."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="the pipeline needs gregor-broker[spark]")
pytest.importorskip("grpc_tools", reason="schemas of a registry need gregor-broker[registry]")
pytest.importorskip("jsonschema", reason="schemas of a registry need gregor-broker[registry]")

import pyarrow as pa

from gregor.pipeline.archive.description import Values
from gregor.pipeline.archive.value_formats import RegisteredValues, ValueFormat
from gregor.pipeline.errors import EncodingError, OptionError, RegistryError
from gregor.pipeline.values.encoder import encoder_of
from gregor.pipeline.values.registry import Registry, SchemaKind, UnknownSchemaError
from gregor.pipeline.values.registry_settings import RegistrySettings
from gregor.pipeline.values.wire_format import split_header
from tests.broker_process import BrokerProcess
from tests.pipeline.schema_registry import SchemaRegistry, running_registry
from tests.pipeline.topics import make_topic

DAY = dt.date(1969, 12, 31)
TIME = dt.datetime(2024, 2, 29, 23, 59, 59, 123000, dt.UTC)

AVRO = {
    "type": "record",
    "name": "All",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "key", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "raw", "type": {"type": "fixed", "name": "F", "size": 2}},
        {"name": "color", "type": {"type": "enum", "name": "C", "symbols": ["RED", "BLUE"]}},
        {"name": "tags", "type": {"type": "map", "values": "long"}},
        {
            "name": "lines",
            "type": {
                "type": "array",
                "items": {"type": "record", "name": "L", "fields": [{"name": "n", "type": "float"}]},
            },
        },
    ],
}
FULL: dict[str, Any] = {
    "id": -(2**31),
    "note": None,
    "price": Decimal("-12.34"),
    "day": DAY,
    "at": TIME,
    "key": "12345678-1234-5678-1234-567812345678",
    "raw": b"\x00\xff",
    "color": "BLUE",
    "tags": {"k": 2**40},
    "lines": [{"n": 0.5}, {"n": -1.0}],
}
PROTOBUF = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
message First { string a = 1; }
message Outer {
  message Skipped { int32 n = 1; }
  message Inner {
    int64 id = 1;
    optional string note = 2;
    repeated First lines = 3;
    map<string, First> tags = 4;
    Color color = 5;
    google.protobuf.Timestamp at = 6;
    uint64 big = 8;
    google.protobuf.Int32Value maybe = 9;
    repeated Color colors = 10;
    bytes raw = 11;
    First empty = 12;
  }
}
enum Color { RED = 0; BLUE = 1; }
"""
MESSAGE = {
    "id": -(2**63),
    "note": "",
    "lines": [{"a": "x"}, {"a": ""}],
    "tags": {"k": {"a": "v"}},
    "color": "BLUE",
    "at": TIME,
    "big": Decimal(2**64 - 1),
    "maybe": 0,
    "colors": ["7", "BLUE"],
    "raw": b"\x00",
    "empty": {"a": ""},
}
JSON = {
    "type": "object",
    "properties": {
        "id": {"type": "integer", "maximum": 100},
        "name": {"type": ["string", "null"]},
        "gone": {"type": "string"},
        "tags": {"type": "array", "items": {"type": "boolean"}},
        "any": {},
        "counts": {"type": "object", "additionalProperties": {"type": "number"}},
        "point": {"$ref": "#/definitions/point"},
    },
    "required": ["id", "name"],
    "definitions": {"point": {"type": "object", "properties": {"x": {"type": "number"}}}},
}
OBJECT = {
    "id": 7,
    "name": None,
    "gone": None,
    "tags": [True, False],
    "any": '{"a": [1, null]}',
    "counts": {"k": 0.5},
    "point": {"x": 1.5},
}


@pytest.fixture
def server() -> Iterator[SchemaRegistry]:
    """Provide an empty registry."""
    with running_registry() as registry:
        yield registry


def there_and_back(server: SchemaRegistry, kind: Values, value: dict[str, Any], message: str | None = None) -> Any:
    """Encode a value, check its id, and return it as it is decoded."""
    settings = RegistrySettings.from_properties({"schema.registry.url": server.url})
    found = RegisteredValues.of_subject(settings, "all-value", message)
    data = encoder_of(found.reader, message)(value)
    assert split_header(data)[0] == found.reader.number
    column, reasons = ValueFormat.from_registry(kind, found).decoder().decode(pa.array([data], pa.binary()))
    assert not reasons
    return column.to_pylist(maps_as_pydicts="strict")[0]


def test_avro_is_read_as_written(server: SchemaRegistry) -> None:
    server.register("all-value", AVRO)
    assert there_and_back(server, Values.AVRO, FULL) == FULL
    nothing = {**FULL, "tags": {}, "lines": []}
    assert there_and_back(server, Values.AVRO, nothing) == nothing
    # A field that a row lacks has the schema's default.
    assert there_and_back(server, Values.AVRO, {k: v for k, v in FULL.items() if k != "note"}) == FULL


def test_protobuf_is_read_as_written(server: SchemaRegistry) -> None:
    server.register("all-value", PROTOBUF, "PROTOBUF")
    found = there_and_back(server, Values.PROTOBUF, MESSAGE, "Outer.Inner")
    assert found == MESSAGE
    empty = there_and_back(server, Values.PROTOBUF, dict.fromkeys(MESSAGE), "Outer.Inner")
    assert (empty["id"], empty["note"], empty["at"], empty["empty"], empty["tags"]) == (0, None, None, None, {})
    assert there_and_back(server, Values.PROTOBUF, {"a": "x"}) == {"a": "x"}


def test_json_is_read_as_written(server: SchemaRegistry) -> None:
    server.register("all-value", JSON, "JSON")
    assert there_and_back(server, Values.JSON_SCHEMA, OBJECT) == OBJECT


@pytest.mark.parametrize(
    ("kind", "schema", "value", "reason"),
    [
        ("AVRO", AVRO, {**FULL, "id": 2**31}, "id"),
        ("AVRO", AVRO, {**FULL, "color": "GREEN"}, "GREEN"),
        ("AVRO", AVRO, {**FULL, "other": 1}, "other"),
        ("AVRO", AVRO, {"note": "x"}, "id"),
        ("AVRO", AVRO, {**FULL, "price": Decimal("1.234")}, "Scale"),
        ("PROTOBUF", PROTOBUF, {"a": 1}, "shop.First.a is a string, not int"),
        ("PROTOBUF", PROTOBUF, {"b": "x"}, "message shop.First has no field b"),
        ("JSON", JSON, {**OBJECT, "id": 101}, r"\$.id: 101 is greater than the maximum of 100"),
        ("JSON", JSON, {"name": "x"}, "'id' is a required property"),
        ("JSON", JSON, {**OBJECT, "other": 1}, "the schema has no property other"),
        ("JSON", JSON, {**OBJECT, "any": "{"}, "Expecting"),
    ],
)
def test_a_value_that_the_schema_does_not_allow_is_refused(
    server: SchemaRegistry, kind: str, schema: Any, value: dict[str, Any], reason: str
) -> None:
    number = server.register("all-value", schema, kind)
    registry = Registry(RegistrySettings.from_properties({"schema.registry.url": server.url}))
    with pytest.raises(EncodingError, match=f"a value that schema {number} does not allow: .*{reason}"):
        encoder_of(registry.schema(number))(value)


def test_a_schema_is_registered_once_and_found_by_its_text(server: SchemaRegistry) -> None:
    registry = Registry(RegistrySettings.from_properties({"schema.registry.url": server.url}))
    text = json.dumps(AVRO)
    with pytest.raises(UnknownSchemaError):
        registry.lookup("new/value", SchemaKind.AVRO, text)
    first = registry.register("new/value", SchemaKind.AVRO, text)
    assert registry.register("new/value", SchemaKind.AVRO, text) == first
    assert registry.lookup("new/value", SchemaKind.AVRO, text) == first
    assert registry.register("new/value", SchemaKind.JSON, json.dumps(JSON)).kind is SchemaKind.JSON
    assert server.subjects["new/value"] == [first.number, first.number + 1]
    server.refusal = 409
    with pytest.raises(RegistryError, match="409: as told"):
        registry.register("new/value", SchemaKind.AVRO, '"int"')


def test_a_table_goes_to_a_topic_with_schemas_and_comes_back_as_a_stream(
    spark: Any, broker_process: BrokerProcess, server: SchemaRegistry, tmp_path: Path
) -> None:
    from pyspark.errors import PySparkException

    from gregor.pipeline.values.frames import decode_values, encode_values

    make_topic(broker_process.bootstrap, "typed", 2)
    registry = {"schema.registry.url": server.url}
    broker = {"kafka.bootstrap.servers": broker_process.bootstrap}
    rows = spark.createDataFrame(
        [(b"a", (FULL["id"], TIME, {"k": 1})), (b"b", (5, TIME, {})), (b"c", None)],
        "key binary, value struct<id: int, at: timestamp, tags: map<string, bigint>>",
    )
    schema = json.dumps({**AVRO, "fields": [AVRO["fields"][index] for index in (0, 1, 4, 8)]})
    with pytest.raises(OptionError, match="register=True adds it"):
        encode_values(rows, registry, "typed-value", schema=schema)
    encoded = encode_values(rows, registry, "typed-value", schema=schema, register=True)
    encoded.write.format("kafka_raw").mode("append").options(**broker, topic="typed").save()
    stream = spark.readStream.format("kafka_raw").options(**broker, subscribe="typed", startingOffsets="earliest")
    query = decode_values(stream.load(), registry, "typed-value").writeStream.format("memory").queryName("typed")
    started = query.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    started.awaitTermination()
    found = {bytes(row.key): row for row in spark.table("typed").collect()}
    assert {key: row.reason for key, row in found.items()} == dict.fromkeys((b"a", b"b", b"c"))
    assert found[b"a"].value.asDict() == {
        "id": FULL["id"],
        "note": None,
        "at": found[b"b"].value["at"],
        "tags": {"k": 1},
    }
    assert (found[b"b"].value["tags"], found[b"c"].value) == ({}, None)
    assert len(server.subjects["typed-value"]) == 1
    # The latest schema of the subject, for a column that it does not allow.
    wrong = encode_values(rows.selectExpr("key AS value"), registry, "typed-value")
    with pytest.raises(PySparkException, match="EncodingError"):
        wrong.collect()
    with pytest.raises(OptionError, match="no column of key, value"):
        encode_values(rows, registry, "typed-value", column="other")
