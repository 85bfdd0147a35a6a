"""The columns of each `mode`, for Arrow and for Spark. Spark accepts Arrow batches only if both agree exactly.

`records` begins with the columns of Spark's own Kafka connector, so that either source can replace the other: a
record without a timestamp has -1 ms there too, and its type is -1. `codec` is `none`, `gzip`, `snappy`, `lz4` or
`zstd`.
"""

from __future__ import annotations

from enum import StrEnum

import pyarrow as pa

TIMESTAMP = pa.timestamp("us", tz="UTC")
"""Spark's type TIMESTAMP: Kafka's milliseconds times 1000."""

HEADERS = pa.list_(
    pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])),
)


class Mode(StrEnum):
    """The kind of a row."""

    RECORDS = "records"
    """A record, decoded. Control records are left out, as consumers do."""
    BATCHES = "batches"
    """A stored batch, described by its header alone; control batches too."""
    RAW = "raw"
    """A stored batch, byte for byte; control batches too."""
    RANGES = "ranges"
    """A range of offsets that a task can read: nothing is read."""


RECORDS = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", TIMESTAMP),
        ("timestampType", pa.int32()),
        ("headers", HEADERS),
        ("magic", pa.int32()),
        ("codec", pa.string()),
        ("producerId", pa.int64()),
    ]
)

BATCHES = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("baseOffset", pa.int64()),
        ("lastOffset", pa.int64()),
        ("position", pa.int64()),
        ("sizeInBytes", pa.int32()),
        ("magic", pa.int32()),
        ("codec", pa.string()),
        ("records", pa.int32()),
        ("firstTimestamp", TIMESTAMP),
        ("maxTimestamp", TIMESTAMP),
        ("timestampType", pa.int32()),
        ("leaderEpoch", pa.int32()),
        ("producerId", pa.int64()),
        ("producerEpoch", pa.int32()),
        ("baseSequence", pa.int32()),
        ("isTransactional", pa.bool_()),
        ("isControl", pa.bool_()),
        ("crcOk", pa.bool_()),
        ("uncompressedSize", pa.int64()),
        ("segment", pa.string()),
    ]
)
"""`records` and `baseOffset` are null for a compressed v0 or v1 set, whose header does not have them; `firstTimestamp`
and `maxTimestamp` where there is none. `crcOk` is null unless `checkCrc=true`, `uncompressedSize` unless
`uncompressedSize=true` (both read every byte). `position` and `segment` are null over a broker.
"""

RAW = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("baseOffset", pa.int64()),
        ("lastOffset", pa.int64()),
        ("records", pa.int32()),
        ("raw", pa.binary()),
    ]
)

RANGES = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("fromOffset", pa.int64()),
        ("untilOffset", pa.int64()),
        ("segment", pa.string()),
        ("position", pa.int64()),
        ("sizeInBytes", pa.int64()),
    ]
)
"""The offsets from `fromOffset` up to but not including `untilOffset`.

The last three columns are null over a broker.
"""

_ARROW = {Mode.RECORDS: RECORDS, Mode.BATCHES: BATCHES, Mode.RAW: RAW, Mode.RANGES: RANGES}

_SPARK_TYPES = {
    pa.binary(): "BINARY",
    pa.string(): "STRING",
    pa.int32(): "INT",
    pa.int64(): "BIGINT",
    pa.bool_(): "BOOLEAN",
    TIMESTAMP: "TIMESTAMP",
    HEADERS: "ARRAY<STRUCT<key: STRING, value: BINARY>>",
}


def arrow_schema(mode: Mode, *, with_values: bool = True, with_headers: bool = True) -> pa.Schema:
    """Return the Arrow schema of `mode`; without values `records` lacks `key`, `value` and `headers`."""
    schema = _ARROW[mode]
    if mode is Mode.RECORDS:
        left_out = {"headers"} if with_values else {"key", "value", "headers"}
        if not (with_values and with_headers):
            schema = pa.schema([field for field in schema if field.name not in left_out])
    return schema


def spark_schema(mode: Mode, *, with_values: bool = True, with_headers: bool = True) -> str:
    """Return the schema as a DDL string for Spark."""
    schema = arrow_schema(mode, with_values=with_values, with_headers=with_headers)
    return ", ".join(f"`{field.name}` {_SPARK_TYPES[field.type]}" for field in schema)
