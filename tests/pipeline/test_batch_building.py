"""Rows as batches: records equal their rows for any order of columns, in both builds of the kernel."""

from __future__ import annotations

from array import array
from collections import defaultdict
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("pyarrow", reason="the pipeline needs gregor-broker[spark]")

import pyarrow as pa

from gregor.client.producer.partitioner import partition_for_key
from gregor.pipeline.columns.schemas import HEADERS, TIMESTAMP
from gregor.pipeline.errors import PipelineError
from gregor.pipeline.sink.batch_building import BatchBuilder
from gregor.protocol.records import batching_cy, v2
from gregor.protocol.records.batches import iter_records, read_batch
from gregor.protocol.records.compression import Codec
from gregor.protocol.records.record import Record
from gregor.protocol.topic_partition import AnyTopicPartition

PARTITIONS = 5
NOW_MS = 1_900_000_000_000

both_builds = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)


@pytest.fixture(autouse=True)
def _both_builds(record_build: str) -> None:
    """Run each test of this file with the compiled kernel and with its Python source."""


class Row(NamedTuple):
    topic: str
    partition: int | None
    timestamp_ms: int | None
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]] | None


nullable = st.none() | st.binary(max_size=80)
row_lists = st.lists(
    st.builds(
        Row,
        st.sampled_from(["a", "b"]),
        st.none() | st.integers(0, PARTITIONS - 1),
        st.none() | st.integers(-(2**41), 2**41),
        nullable,
        nullable,
        st.none() | st.lists(st.tuples(st.text(max_size=5), nullable), max_size=3),
    ),
    max_size=30,
)


def table(rows: list[Row], **types: pa.DataType) -> pa.RecordBatch:
    """Return a table of the rows that is a slice of a larger table."""
    stranger = Row("stranger", 1, 7, b"stranger", None, [("stranger", b"stranger")])
    surrounded = [stranger] * 3 + rows + [stranger]
    headers = [
        None if row.headers is None else [{"key": key, "value": value} for key, value in row.headers]
        for row in surrounded
    ]
    columns = {
        "topic": pa.array([row.topic for row in surrounded], pa.string()),
        "partition": pa.array([row.partition for row in surrounded], types.get("partition", pa.int32())),
        "timestamp": pa.array(
            [None if row.timestamp_ms is None else row.timestamp_ms * 1000 for row in surrounded], pa.int64()
        ).cast(TIMESTAMP),
        "key": pa.array([row.key for row in surrounded], types.get("key", pa.binary())),
        "value": pa.array([row.value for row in surrounded], types.get("value", pa.binary())),
        "headers": pa.array(headers, HEADERS),
    }
    return pa.RecordBatch.from_pydict(columns).slice(3, len(rows))


def builder(topic: str | None = None, codec: Codec = Codec.NONE, batch_bytes: int = 400) -> BatchBuilder:
    return BatchBuilder(topic, codec, batch_bytes, lambda name: PARTITIONS, lambda: NOW_MS, 0)


def records_of(built: BatchBuilder, *tables: pa.RecordBatch) -> dict[AnyTopicPartition, list[Record]]:
    """Return the built records by partition and in order; check that each batch is whole and numbered from 0."""
    found: defaultdict[AnyTopicPartition, list[Record]] = defaultdict(list)
    for place, payload in [*(item for rows in tables for item in built.add(rows)), *built.rest()]:
        batch = read_batch(payload)
        assert batch is not None
        assert (batch.size_bytes, batch.crc_is_valid) == (len(payload), True)
        records = list(iter_records(batch))
        assert [record.offset for record in records] == list(range(len(records)))
        assert batch.record_count == len(records)
        assert batch.max_timestamp == max(record.timestamp for record in records)
        found[place] += records
    return dict(found)


def as_record(row: Row) -> tuple[Any, ...]:
    headers = [(key.encode(), value) for key, value in row.headers or ()]
    return NOW_MS if row.timestamp_ms is None else row.timestamp_ms, row.key, row.value, headers


def contents(records: list[Record]) -> list[tuple[Any, ...]]:
    return [
        (record.timestamp, record.key, record.value, [tuple(header) for header in record.headers]) for record in records
    ]


@both_builds
@given(row_lists, row_lists, st.sampled_from([Codec.NONE, Codec.GZIP]), st.sampled_from([80, 400, 1 << 20]))
def test_each_row_becomes_its_record(first: list[Row], second: list[Row], codec: Codec, batch_bytes: int) -> None:
    # The partitions of rows without partition and key depend on how full batches are: another test checks that.
    placed = [[row for row in rows if row.partition is not None or row.key is not None] for rows in (first, second)]
    wanted: defaultdict[AnyTopicPartition, list[Any]] = defaultdict(list)
    for row in [*placed[0], *placed[1]]:
        partition = row.partition if row.partition is not None else partition_for_key(row.key or b"", PARTITIONS)
        wanted[row.topic, partition].append(as_record(row))
    found = records_of(builder(None, codec, batch_bytes), *map(table, placed))
    assert {place: contents(records) for place, records in found.items()} == dict(wanted)


def test_rows_without_partition_and_key_stay_with_one_partition_for_a_batch() -> None:
    rows = [Row("a", None, n, None, b"x" * 50, None) for n in range(12)]
    made = builder("a", batch_bytes=v2.HEADER_SIZE + 250)
    places = [place for place, _ in [*made.add(table(rows)), *made.rest()]]
    assert places == [("a", 0), ("a", 1), ("a", 2)]


def test_batches_are_filled_to_the_batch_size_and_a_larger_record_has_its_own() -> None:
    rows = [Row("a", 0, 5, None, b"x" * size, None) for size in (10, 10, 900, 10)]
    made = builder("a", batch_bytes=200)
    sizes = [len(payload) for _, payload in [*made.add(table(rows)), *made.rest()]]
    assert [size > 200 for size in sizes] == [False, True, False]
    exact = builder("a", batch_bytes=sizes[0])
    assert [len(payload) for _, payload in [*exact.add(table(rows[:2])), *exact.rest()]] == sizes[:1]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.large_binary()])
def test_string_and_large_binary_columns_give_the_same_records(kind: pa.DataType) -> None:
    row = Row("a", 2, 5, b"key", b"value", None)
    plain = [row._replace(key="key", value="value")] if kind in (pa.string(), pa.large_string()) else [row]  # type: ignore[arg-type]
    rows = table(plain, key=kind, value=kind, partition=pa.int64())
    assert contents(records_of(builder("a"), rows)["a", 2]) == [as_record(row)]


def test_columns_that_are_not_there_are_null() -> None:
    rows = pa.RecordBatch.from_pydict({"value": pa.array([b"v"])})
    assert contents(records_of(builder("a"), rows)["a", 0]) == [(NOW_MS, None, b"v", [])]


@pytest.mark.parametrize("partition", [-1, PARTITIONS, 2**40])
def test_a_row_for_a_partition_that_does_not_exist_is_refused(partition: int) -> None:
    rows = table([Row("a", partition, 0, None, b"", None)], partition=pa.int64())
    with pytest.raises(PipelineError, match=f"a row for a-{partition}, but the topic has {PARTITIONS} partitions"):
        list(builder("a").add(rows))


def test_a_header_without_a_key_is_refused() -> None:
    headers = pa.array([[{"key": None, "value": b"v"}]], HEADERS)
    with pytest.raises(PipelineError, match="the row for a: row 0 has a header without a key"):
        list(builder("a").add(pa.RecordBatch.from_pydict({"value": pa.array([b"v"]), "headers": headers})))


def bytes_rows(ends: list[int], data: bytes = b"", valid: bytes = b"") -> batching_cy.BytesRows:
    return batching_cy.BytesRows(memoryview(array("i", ends)), memoryview(data), memoryview(valid), 0)


@pytest.mark.parametrize(
    ("values", "lists", "complaint"),
    [
        ([0, 9], [0, 0], "row 0 from 0 to 9 in 3"),
        ([2, 1], [0, 0], "row 0 from 2 to 1 in 3"),
        ([-1, 1], [0, 0], "row 0 from -1 to 1 in 3"),
        ([0, 3], [0, 2], "row 0 from 0 to 2 in 1"),
        ([0, 3, 3], [0, 0], "columns of different lengths"),
    ],
)
def test_columns_with_inconsistent_offsets_or_lengths_are_refused(
    values: list[int], lists: list[int], complaint: str
) -> None:
    nothing = bytes_rows([0, 0])
    with pytest.raises(ValueError, match=complaint):
        batching_cy.TopicBatches(1, 0, 100).fill(
            batching_cy.RecordRows(
                memoryview(array("q", [0])),
                memoryview(array("i", [0])),
                nothing,
                bytes_rows(values, b"abc"),
                bytes_rows(lists),
                nothing,
                nothing,
            ),
            0,
        )
    with pytest.raises(ValueError, match="fewer validity bits than byte strings"):
        bytes_rows([0] * 10, valid=b"\xff")
