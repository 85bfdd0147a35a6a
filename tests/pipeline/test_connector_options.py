"""The options of Spark's own connector: the table in the documents, the code, and what each refusal says."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the pipeline needs gregor-broker[spark]")

from pyspark.sql.types import BinaryType, StructField, StructType

from gregor.pipeline.errors import OptionError, PipelineError
from gregor.pipeline.kafka import connector_options, fetching
from gregor.pipeline.kafka.connector_options import Relation
from gregor.pipeline.kafka.fetch_plan import split_ranges
from gregor.pipeline.kafka.kafka_raw import KNOWN_OPTIONS, KafkaRawReader, KafkaRawSource
from gregor.pipeline.kafka.kafka_raw_stream import KafkaRawStreamReader, StreamOffsets
from gregor.pipeline.kafka.read_plan import ReadPlan
from gregor.pipeline.kafka.topic_choice import TopicChoice
from gregor.pipeline.options import SourceOptions
from gregor.pipeline.sink import kafka_sink
from tests.broker_process import BrokerProcess
from tests.pipeline.topics import START_MS, fill, new_topic

DOCUMENT = Path(__file__).parents[2] / "docs" / "pipeline.md"
ROW = re.compile(r"\| `(?P<name>[\w.]+)`(?P<side> \(sink\))? \| (?P<default>.*?) ?\| (?P<relation>.*) \|")


def documented() -> list[tuple[str, bool, str, str]]:
    text = DOCUMENT.read_text().partition("## The connector's options")[2].partition("\n## ")[0]
    rows = [ROW.fullmatch(line) for line in text.splitlines() if line.startswith("| `")]
    assert all(rows), "a row that is not one of the table"
    return [
        (row["name"], bool(row["side"]), row["default"].replace("`", ""), re.split("[:;]", row["relation"])[0])
        for row in rows
        if row
    ]


def test_the_table_in_the_documents_is_the_one_in_the_code() -> None:
    ours = [
        *((each.name, False, each.default, each.relation.value) for each in connector_options.SOURCE_OPTIONS),
        *((each.name, True, each.default, each.relation.value) for each in connector_options.SINK_OPTIONS),
    ]
    assert documented() == ours


def plan(options: dict[str, str]) -> ReadPlan:
    given = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t", **options}
    return ReadPlan(SourceOptions(given, KNOWN_OPTIONS))


VALUES = {
    "startingOffsets": "earliest",
    "endingOffsets": "latest",
    "startingTimestamp": "1",
    "endingTimestamp": "1",
    "startingOffsetsByTimestamp": '{"t": {"0": 1}}',
    "endingOffsetsByTimestamp": '{"t": {"0": 2}}',
    "startingOffsetsByTimestampStrategy": "LATEST",
    "failOnDataLoss": "FALSE",
    "includeHeaders": "true",
    "maxTriggerDelay": "10s",
    "groupIdPrefix": "mine",
    "kafka.group.id": "mine",
}


@pytest.mark.parametrize("option", connector_options.SOURCE_OPTIONS, ids=lambda each: each.name)
def test_each_option_is_taken_or_refused_as_the_table_says(option: connector_options.ConnectorOption) -> None:
    if option.relation is Relation.REFUSED:
        name = option.name.removeprefix("kafka.")
        with pytest.raises(OptionError, match=f"^Kafka option '{re.escape(name)}' is not supported"):
            plan({option.name: "x"})
    elif option.name not in ("kafka.bootstrap.servers", "subscribe", "subscribePattern", "assign"):
        KafkaRawReader(plan({option.name: VALUES.get(option.name, "7")}))
        if option.name in VALUES and option.name not in ("groupIdPrefix", "kafka.group.id"):
            wrong = plan if option.name in ("failOnDataLoss", "startingOffsetsByTimestampStrategy") else None
            with pytest.raises(OptionError):
                _ = wrong({option.name: "wrong"}) if wrong else read_both({option.name: "wrong"})
        elif option.relation is not Relation.NO_EFFECT:
            with pytest.raises(OptionError, match=f"{option.name} must be a whole number, not 'wrong'"):
                plan({option.name: "wrong"})


def read_both(options: dict[str, str]) -> None:
    KafkaRawReader(plan(options))
    KafkaRawStreamReader(plan(options))


@pytest.mark.parametrize("option", connector_options.SINK_OPTIONS, ids=lambda each: each.name)
def test_each_option_of_the_sink_is_taken_or_refused(option: connector_options.ConnectorOption) -> None:
    schema = StructType([StructField("value", BinaryType())])
    given = {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t", option.name: "t"}
    if option.relation is Relation.REFUSED:
        with pytest.raises(OptionError, match="is not supported"):
            kafka_sink.sink_options(schema, SourceOptions(given, kafka_sink.SINK_OPTIONS))
    else:
        assert kafka_sink.sink_options(schema, SourceOptions(given, kafka_sink.SINK_OPTIONS)).topic == "t"


def test_defaults_are_those_of_the_table() -> None:
    default = {each.name: each.default for each in connector_options.SOURCE_OPTIONS}
    plain = plan({})
    assert str(plain.fails_on_data_loss).lower() == default["failOnDataLoss"]
    assert plain.strategy == default["startingOffsetsByTimestampStrategy"]
    assert str(plain.options.with_headers).lower() == default["includeHeaders"].split(",")[0]
    assert plain.settings.offset_retry_interval_s * 1000 == int(default["fetchOffset.retryIntervalMs"])
    assert fetching.FetchOptions(plain.settings).poll_timeout_s * 1000 == int(default["kafkaConsumer.pollTimeoutMs"])
    delayed = KafkaRawStreamReader(plan({"minOffsetsPerTrigger": "1"}))._delay
    assert delayed is not None
    assert f"{delayed.most_delay_ms // 60_000}m" == default["maxTriggerDelay"]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"startingOffsets": "latest"}, "starting offset can't be latest for batch queries on Kafka"),
        ({"startingOffsets": "LATEST"}, "starting offset can't be latest"),
        ({"startingOffsets": ""}, "startingOffsets must be like"),
        ({"startingOffsets": '{"t": {"0": -1}}'}, "starting offset can't be latest"),
        ({"startingOffsets": '{"t": {"0": -3}}'}, "cannot have offset -3"),
        ({"endingOffsets": "earliest"}, "ending offset can't be earliest for batch queries on Kafka"),
        ({"endingOffsets": '{"t": {"0": -2}}'}, "ending offset can't be earliest"),
        (
            {"startingOffsets": '{"t": {"0": 5}}', "endingOffsets": '{"t": {"0": 4}}'},
            "The specified start offset 5 is greater than the end offset 4 for topic t partition 0",
        ),
        (
            {"startingOffsetsByTimestamp": '{"t": {"0": 5}}', "endingOffsetsByTimestamp": '{"t": {"0": 4}}'},
            "The specified start timestamp 5 is greater than the end timestamp 4 for topic t partition 0",
        ),
        ({"startingOffsets": "{}"}, r"startingOffsets must be like .*, not '\{\}'"),
        ({"startingOffsets": '{"t": {}}'}, "startingOffsets must be like"),
        ({"endingOffsets": '{"t": {"0": 99999999999999999999}}'}, "endingOffsets must be like"),
        ({"startingOffsets": '{"t": {"0": true}}'}, "startingOffsets must be like"),
        ({"startingOffsets": '{"t": {"0": 1.0}}'}, "startingOffsets must be like"),
        ({"startingTimestamp": "99999999999999999999"}, "startingTimestamp must be at most 9223372036854775807"),
        ({"startingTimestamp": "9" * 5000}, "startingTimestamp must be at most 9223372036854775807"),
        ({"kafkaConsumer.pollTimeoutMs": "1_000"}, "kafkaConsumer.pollTimeoutMs must be a whole number, not '1_000'"),
        ({"fetchOffset.numRetries": "5L"}, "fetchOffset.numRetries must be a whole number, not '5L'"),
        ({"fetchOffset.retryIntervalMs": "-1"}, "fetchOffset.retryIntervalMs must be at least 0, not -1"),
        ({"kafka.bootstrap.servers": "localhost:99999"}, "kafka.bootstrap.servers must be at most 65535, not 99999"),
        ({"maxOffsetsPerTrigger": "5", "minOffsetsPerTrigger": "6"}, r"minOffsetsPerTrigger\(6\) is higher than the"),
    ],
)
def test_invalid_offset_and_timestamp_bounds_are_refused_without_a_broker(
    options: dict[str, str], complaint: str
) -> None:
    with pytest.raises(OptionError, match=complaint):
        KafkaRawReader(plan(options))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("minOffsetsPerTrigger", "x"),
        ("maxTriggerDelay", "5 minutes"),
        ("maxBytesPerTrigger", "0"),
        ("startingOffsets", "soon"),
        ("endingTimestamp", "today"),
        ("kafkaConsumer.pollTimeoutMs", "-1"),
    ],
)
def test_load_refuses_wrong_values_of_batches_and_streams(name: str, value: str) -> None:
    """PySpark would hide what the creation of a stream's reader raises."""
    given = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"}
    KafkaRawSource(given).schema()
    with pytest.raises(OptionError, match=f"^{name} must be "):
        KafkaRawSource({**given, name: value}).schema()


@pytest.mark.parametrize("text", ['{"t": ["0"]}', '{"t": [0.5]}', '{"t": [true]}', '{"t": 0}', "{}", "[0]", "t"])
def test_an_assignment_that_is_no_list_of_partitions_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match=r'^assign must be like \{"topic": \[0, 1\]\}, not'):
        TopicChoice.from_options({"assign": text})


@pytest.fixture
def topic(broker_process: BrokerProcess) -> str:
    """Return a topic with 0 to 99 in the first partition and 1000 to 1049 in the second."""
    name = new_topic(broker_process.bootstrap, 2)
    fill(broker_process.bootstrap, name, 100)
    fill(broker_process.bootstrap, name, 50, partition=1, first=1000)
    return name


def asked(broker: BrokerProcess, topic: str, **options: str) -> ReadPlan:
    given = {"kafka.bootstrap.servers": broker.bootstrap, **options}
    if not given.keys() & {"assign", "subscribePattern"}:
        given["subscribe"] = topic
    return ReadPlan(SourceOptions(given, KNOWN_OPTIONS))


@pytest.mark.parametrize("named", [{"0": 1}, {"0": 1, "1": 1, "2": 1}, {"1": 1, "2": 1}])
@pytest.mark.parametrize("option", ["startingOffsets", "endingOffsets", "startingOffsetsByTimestamp"])
def test_json_names_all_partitions_and_no_others(
    broker_process: BrokerProcess, topic: str, option: str, named: dict[str, int]
) -> None:
    options = {option: json.dumps({topic: named})}
    with pytest.raises(OptionError, match=f"{option}: you must specify all partitions .* Selected: {topic}-0, "):
        KafkaRawReader(asked(broker_process, topic, **options)).partitions()
    if option != "endingOffsets":
        with pytest.raises(OptionError, match="you must specify all partitions"):
            KafkaRawStreamReader(asked(broker_process, topic, **options)).initialOffset()


def test_a_pattern_is_found_anywhere_in_a_name(broker_process: BrokerProcess, topic: str) -> None:
    def selected(pattern: str) -> set[str]:
        reader = KafkaRawReader(asked(broker_process, topic, subscribePattern=pattern))
        return {task.topic for task in reader.partitions() if hasattr(task, "topic")}

    assert topic in selected(topic[2:])
    assert selected(f" ^{topic}$ ") == {topic}
    assert selected(f"^{topic[2:]}") == set()


@pytest.mark.parametrize(
    ("options", "tasks"),
    [
        ({}, 2),
        ({"minPartitions": "7"}, 7),
        ({"minPartitions": "10"}, 10),
        ({"maxRecordsPerPartition": "30"}, 6),
        ({"maxRecordsPerPartition": "60", "minPartitions": "5"}, 6),
        ({"maxRecordsPerPartition": "90", "minPartitions": "11"}, 12),
    ],
)
def test_as_many_tasks_as_the_connector_has(
    broker_process: BrokerProcess, topic: str, options: dict[str, str], tasks: int
) -> None:
    planned: list[Any] = list(KafkaRawReader(asked(broker_process, topic, **options)).partitions())
    assert len(planned) == tasks
    assert sum(each.end_offset - each.first_offset for each in planned) == 150


def test_small_ranges_are_not_split() -> None:
    parts = split_ranges({}, {("t", 0): 1000, ("t", 1): 1, ("t", 2): 1}, min_partitions=6)
    assert [(part.partition, part.end_offset - part.first_offset) for part in parts] == [
        *((0, 250) for _ in range(4)),
        (1, 1),
        (2, 1),
    ]


def test_a_task_gives_up_after_the_poll_timeout(broker_process: BrokerProcess, topic: str) -> None:
    reader = KafkaRawReader(asked(broker_process, topic, **{"kafkaConsumer.pollTimeoutMs": "0"}))
    task = reader.partitions()[0]
    broker_process.kill()
    with pytest.raises(PipelineError, match=f"{topic}-0 offset 0: "):
        list(reader.read(task))
    broker_process.start_again()
    assert sum(batch.num_rows for batch in reader.read(task)) == 100


def test_a_stream_continues_at_a_checkpoint_of_the_connector(broker_process: BrokerProcess, topic: str) -> None:
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    reader = KafkaRawStreamReader(asked(broker_process, topic))
    theirs: dict[str, Any] = {topic: {"0": 90, "1": 50}}
    end = reader.latestOffset(theirs, ReadAllAvailable())
    assert end["offsets"] == {topic: {"0": 100, "1": 50}}
    read = [row for task in reader.partitions(theirs, end) for batch in reader.read(task) for row in batch.to_pylist()]
    assert [row["offset"] for row in read] == list(range(90, 100))
    with pytest.raises(PipelineError, match=r"neither of kafka_raw nor of kafka: \{'logOffset': 7\}"):
        StreamOffsets.from_json({"logOffset": 7})


def test_the_timestamp_strategy_is_case_insensitive(broker_process: BrokerProcess, topic: str) -> None:
    late = {"startingTimestamp": str(START_MS + 10_000), "startingOffsetsByTimestampStrategy": "LATEST"}
    reader = KafkaRawReader(asked(broker_process, topic, **late))
    assert [row for task in reader.partitions() for batch in reader.read(task) for row in batch.to_pylist()] == []
