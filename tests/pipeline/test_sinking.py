"""The sink's tasks, called as Spark calls them: partitions, times and headers, and each micro-batch once."""

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the pipeline needs gregor-broker[spark]")

import pyarrow as pa
from pyspark.sql.types import BinaryType, DataType, IntegerType, StringType, StructType, TimestampType

from gregor.client.producer.partitioner import partition_for_key
from gregor.pipeline.columns.schemas import HEADERS, TIMESTAMP
from gregor.pipeline.errors import OptionError, PipelineError
from gregor.pipeline.kafka.kafka_raw import KNOWN_OPTIONS, KafkaRawReader
from gregor.pipeline.kafka.read_plan import ReadPlan
from gregor.pipeline.options import SourceOptions
from gregor.pipeline.sink.kafka_sink import SINK_OPTIONS, KafkaSinkStreamWriter, KafkaSinkWriter, sink_options
from gregor.pipeline.sink.sinking import SinkOptions, SinkReceipt, SinkTask, write_rows
from tests.broker_process import BrokerProcess
from tests.pipeline.topics import START_MS, fill, new_topic

ALL_COLUMNS = "value binary, key binary, topic string, partition int, timestamp timestamp"


TYPES: dict[str, DataType] = {
    "binary": BinaryType(),
    "string": StringType(),
    "int": IntegerType(),
    "timestamp": TimestampType(),
}


def schema_of(text: str) -> StructType:
    """Return the schema of a DDL text; `StructType.fromDDL` would need a running Spark."""
    schema = StructType()
    for column in text.split(", "):
        name, kind = column.split()
        schema.add(name, TYPES[kind])
    return schema


@pytest.fixture
def topic(broker_process: BrokerProcess) -> str:
    return new_topic(broker_process.bootstrap, 3)


def options(broker: BrokerProcess, topic: str | None, schema: str = "value binary", **given: str) -> SinkOptions:
    named = {name.replace("__", "."): value for name, value in given.items()}
    named |= {"kafka.bootstrap.servers": broker.bootstrap} | ({"topic": topic} if topic else {})
    return sink_options(schema_of(schema), SourceOptions(named, SINK_OPTIONS))


def table(numbers: range, **columns: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"value": pa.array([b"%d" % number for number in numbers]), **columns})


def task(batch_id: int = 0, number: int = 0, sink: str = "sink", run: str = "run") -> SinkTask:
    return SinkTask(sink, batch_id, number, run)


def stored(broker: BrokerProcess, topic: str, **given: str) -> list[dict[str, Any]]:
    committed = {"kafka.isolation.level": "read_committed", "kafka.bootstrap.servers": broker.bootstrap}
    plan = ReadPlan(SourceOptions({**committed, "subscribe": topic, **given}, KNOWN_OPTIONS))
    reader = KafkaRawReader(plan)
    return [row for part in reader.partitions() for rows in reader.read(part) for row in rows.to_pylist()]


def values(broker: BrokerProcess, topic: str) -> list[int]:
    return sorted(int(row["value"]) for row in stored(broker, topic))


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_each_column_of_a_row_is_kept_in_its_record(broker_process: BrokerProcess, topic: str, codec: str) -> None:
    headers = pa.array([[{"key": "a", "value": b"1"}, {"key": "b", "value": None}], None, []] * 2, HEADERS)
    rows = table(
        range(6),
        key=pa.array(["k", None, "k", None, "k", None]),
        partition=pa.array([2, 0, 1, 2, 0, 1], pa.int32()),
        timestamp=pa.array([(START_MS + n) * 1000 for n in range(6)], TIMESTAMP),
        headers=headers,
    )
    receipt = write_rows(iter([rows]), task(sink=topic), options(broker_process, topic, kafka__compression__type=codec))
    assert receipt.rows == 6
    assert sorted(receipt.offsets) == [(topic, 0), (topic, 1), (topic, 2)]
    found = sorted(stored(broker_process, topic), key=lambda row: row["value"])
    assert [row["partition"] for row in found] == [2, 0, 1, 2, 0, 1]
    assert [round(row["timestamp"].timestamp() * 1000) for row in found] == [START_MS + n for n in range(6)]
    assert [row["key"] for row in found] == [b"k", None] * 3
    assert found[0]["headers"] == [{"key": "a", "value": b"1"}, {"key": "b", "value": None}]
    assert found[1]["headers"] is None
    assert {row["codec"] for row in found} == {codec}


def test_rows_without_a_partition_go_where_their_key_belongs(broker_process: BrokerProcess, topic: str) -> None:
    keys = [f"key-{number}" for number in range(30)]
    write_rows(iter([table(range(30), key=pa.array(keys))]), task(sink=topic), options(broker_process, topic))
    assert {row["key"]: row["partition"] for row in stored(broker_process, topic)} == {
        key.encode(): partition_for_key(key.encode(), 3) for key in keys
    }


def test_rows_may_name_their_topics(broker_process: BrokerProcess, topic: str) -> None:
    other = new_topic(broker_process.bootstrap)
    rows = table(range(4), topic=pa.array([topic, other] * 2))
    write_rows(iter([rows]), task(sink=topic), options(broker_process, None, "value binary, topic string"))
    assert values(broker_process, topic) == [0, 2]
    assert values(broker_process, other) == [1, 3]


def test_large_batches_are_cut(broker_process: BrokerProcess, topic: str) -> None:
    many = [table(range(start, start + 100)) for start in range(0, 1000, 100)]
    write_rows(iter(many), task(sink=topic), options(broker_process, topic, kafka__batch__size="500"))
    assert values(broker_process, topic) == list(range(1000))
    assert len(stored(broker_process, topic, mode="batches")) > 20


def test_a_repeated_micro_batch_is_skipped(broker_process: BrokerProcess, topic: str) -> None:
    sink = options(broker_process, topic)
    for batch_id, numbers, was_repeated in (
        (0, range(10), False),
        (0, range(10), True),
        (1, range(10, 15), False),
        (1, range(10, 15), True),
    ):
        receipt = write_rows(iter([table(numbers)]), task(batch_id, sink=topic), sink)
        assert (receipt.rows, receipt.was_repeated) == (len(numbers), was_repeated)
    assert values(broker_process, topic) == list(range(15))


def test_a_different_micro_batch_with_the_same_or_an_older_id_is_refused(
    broker_process: BrokerProcess, topic: str
) -> None:
    sink = options(broker_process, topic)
    write_rows(iter([table(range(10))]), task(3, sink=topic), sink)
    for bad in (task(3, sink=topic), task(2, sink=topic), task(3, sink=topic, run="another checkpoint")):
        with pytest.raises(PipelineError, match="a new checkpoint needs another sinkName"):
            write_rows(iter([table(range(9))]), bad, sink)
    assert values(broker_process, topic) == list(range(10))


def test_each_task_of_a_micro_batch_is_deduplicated_on_its_own(broker_process: BrokerProcess, topic: str) -> None:
    sink = options(broker_process, topic)
    for number in range(3):
        write_rows(iter([table(range(number * 10, number * 10 + 10))]), task(0, number, sink=topic), sink)
    write_rows(iter([table(range(10, 20))]), task(0, 1, sink=topic), sink)
    assert values(broker_process, topic) == list(range(30))


def failing(numbers: range) -> Iterator[pa.RecordBatch]:
    """Yield rows, and then fail as a task may."""
    yield table(numbers)
    raise ZeroDivisionError("the task failed")


def test_a_task_that_fails_leaves_nothing(broker_process: BrokerProcess, topic: str) -> None:
    sink = options(broker_process, topic, kafka__batch__size="100")
    with pytest.raises(ZeroDivisionError):
        write_rows(failing(range(100)), task(sink=topic), sink)
    assert values(broker_process, topic) == []
    write_rows(iter([table(range(100))]), task(sink=topic), sink)
    assert values(broker_process, topic) == list(range(100))


def test_at_least_once_needs_no_transaction(broker_process: BrokerProcess, topic: str) -> None:
    sink = options(broker_process, topic, delivery="at-least-once")
    for _ in range(2):
        write_rows(iter([table(range(5))]), task(sink=topic), sink)
    assert values(broker_process, topic) == sorted([*range(5)] * 2)
    assert {row["isTransactional"] for row in stored(broker_process, topic, mode="batches")} == {False}


def test_no_rows_make_no_transaction(topic: str) -> None:
    nowhere = BrokerProcess.__new__(BrokerProcess)
    nowhere.address = ("127.0.0.1", 1)
    assert write_rows(iter([table(range(0))]), task(), options(nowhere, topic)) == SinkReceipt(name="sink.0")


def test_raw_batches_go_as_they_are(broker_process: BrokerProcess, topic: str) -> None:
    source = new_topic(broker_process.bootstrap, 3)
    fill(broker_process.bootstrap, source, 50, partition=1)
    raw = [row["raw"] for row in stored(broker_process, source, mode="raw")]
    rows = pa.RecordBatch.from_pydict({"raw": pa.array(raw), "partition": pa.array([1] * len(raw), pa.int32())})
    receipt = write_rows(iter([rows]), task(sink=topic), options(broker_process, topic, "raw binary, partition int"))
    assert receipt.rows == 50
    assert receipt.offsets == {(topic, 1): (0, 49)}
    wanted, found = stored(broker_process, source), stored(broker_process, topic)
    same = ("key", "value", "partition", "offset", "timestamp", "headers")
    assert [[row[name] for name in same] for row in found] == [[row[name] for name in same] for row in wanted]


def test_rows_without_a_topic_or_for_an_unknown_partition_are_refused(
    broker_process: BrokerProcess, topic: str
) -> None:
    sink = options(broker_process, topic)
    with pytest.raises(PipelineError, match=f"a row for {topic}-3, but the topic has 3 partitions"):
        write_rows(iter([table(range(1), partition=pa.array([3], pa.int32()))]), task(sink=topic), sink)
    unnamed = options(broker_process, None, "value binary, topic string")
    with pytest.raises(PipelineError, match="a row without a topic"):
        write_rows(iter([table(range(1), topic=pa.array([None], pa.string()))]), task(sink=topic), unnamed)
    assert values(broker_process, topic) == []


@pytest.mark.parametrize(
    ("schema", "given", "complaint"),
    [
        ("key binary", {}, "a column value is missing; there are key"),
        ("value int", {}, "column value must be binary or string, not int"),
        ("value string, partition string", {}, "column partition must be"),
        ("value string", {"delivery": "twice"}, "delivery must be exactly-once or at-least-once"),
        ("value string", {"kafka.compression.type": "rar"}, "kafka.compression.type must be"),
        ("value string", {"topik": "t"}, "unknown option topik; did you mean topic"),
        ("raw binary", {}, "a column partition is missing"),
    ],
)
def test_invalid_options_are_refused_before_any_task_runs(schema: str, given: dict[str, str], complaint: str) -> None:
    named = {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t", **given}
    with pytest.raises(OptionError, match=complaint):
        sink_options(schema_of(schema), SourceOptions(named, SINK_OPTIONS))


def test_sink_name_batch_id_and_topic_options_are_checked() -> None:
    schema = schema_of(ALL_COLUMNS)
    base = {"kafka.bootstrap.servers": "127.0.0.1:1"}
    with pytest.raises(OptionError, match=r"df\.write needs sinkName and batchId, or neither"):
        KafkaSinkWriter(schema, SourceOptions({**base, "sinkName": "s"}, SINK_OPTIONS))
    with pytest.raises(OptionError, match=r"batchId is for df\.write"):
        KafkaSinkStreamWriter(schema, SourceOptions({**base, "batchId": "1"}, SINK_OPTIONS))
    with pytest.raises(OptionError, match="give the option topic"):
        KafkaSinkWriter(schema_of("value string"), SourceOptions(base, SINK_OPTIONS))
