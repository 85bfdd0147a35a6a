"""Reading from a broker, as batch and as stream, without Spark: methods are called as Spark calls them."""

import json
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the pipeline needs gregor-broker[spark]")

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

from gregor.pipeline.errors import DataLossError, OptionError, PipelineError
from gregor.pipeline.kafka.fetch_plan import limit_rows, split_ranges
from gregor.pipeline.kafka.fetching import FetchRange
from gregor.pipeline.kafka.kafka_raw import KNOWN_OPTIONS, KafkaRawReader
from gregor.pipeline.kafka.kafka_raw_stream import KafkaRawStreamReader
from gregor.pipeline.kafka.offset_options import parse_duration_ms
from gregor.pipeline.kafka.read_plan import ReadPlan
from gregor.pipeline.options import SourceOptions
from tests.broker_process import BrokerProcess
from tests.pipeline.topics import START_MS, delete_records, delete_topic, fill, make_topic, new_topic, transact


def plan(broker: BrokerProcess, **options: str) -> ReadPlan:
    given = {name.replace("__", "."): value for name, value in options.items()}
    return ReadPlan(SourceOptions({"kafka.bootstrap.servers": broker.bootstrap, **given}, KNOWN_OPTIONS))


def rows(broker: BrokerProcess, **options: str) -> list[dict[str, Any]]:
    reader = KafkaRawReader(plan(broker, **options))
    return [row for task in reader.partitions() for batch in reader.read(task) for row in batch.to_pylist()]


def numbers(broker: BrokerProcess, **options: str) -> list[int]:
    return [int(row["value"]) for row in rows(broker, **options)]


@pytest.fixture
def topic(broker_process: BrokerProcess) -> str:
    """Return a topic with 0 to 99 in the first partition and 1000 to 1049 in the second."""
    name = new_topic(broker_process.bootstrap, 2)
    fill(broker_process.bootstrap, name, 100)
    fill(broker_process.bootstrap, name, 50, partition=1, first=1000)
    return name


ALL = [*range(100), *range(1000, 1050)]


def test_all_records_of_a_topic_are_read(broker_process: BrokerProcess, topic: str) -> None:
    found = rows(broker_process, subscribe=topic)
    assert [int(row["value"]) for row in found] == ALL
    assert [row["offset"] for row in found] == [*range(100), *range(50)]
    assert {row["topic"] for row in found} == {topic}
    assert found[7]["key"] == b"k7"
    assert round(found[7]["timestamp"].timestamp() * 1000) == START_MS + 7
    assert {(row["magic"], row["codec"]) for row in found} == {(2, "none")}
    assert "headers" not in rows(broker_process, subscribe=topic, includeHeaders="false")[0]


def test_topics_are_selected_by_name_list_and_pattern(broker_process: BrokerProcess, topic: str) -> None:
    other = new_topic(broker_process.bootstrap)
    fill(broker_process.bootstrap, other, 3)
    assert len(rows(broker_process, subscribe=f"{topic}, {other}")) == len(ALL) + 3
    assert len(rows(broker_process, subscribePattern=f"^({topic}|{other})$")) == len(ALL) + 3
    assert rows(broker_process, subscribePattern="no-such-.*") == []
    assert numbers(broker_process, assign=json.dumps({topic: [1]})) == ALL[100:]


@pytest.mark.parametrize(("first", "end"), [(0, 100), (5, 95), (10, 20), (33, 34), (50, 50)])
def test_records_are_limited_by_starting_and_ending_offsets(
    broker_process: BrokerProcess, topic: str, first: int, end: int
) -> None:
    wanted = {
        "startingOffsets": json.dumps({topic: {"0": first, "1": 50}}),
        "endingOffsets": json.dumps({topic: {"0": end, "1": -1}}),
    }
    assert numbers(broker_process, subscribe=topic, **wanted) == list(range(first, end))


def test_records_are_limited_by_starting_and_ending_timestamps(broker_process: BrokerProcess, topic: str) -> None:
    only = {"assign": json.dumps({topic: [0]})}
    times = {"startingTimestamp": str(START_MS + 30), "endingTimestamp": str(START_MS + 60)}
    assert numbers(broker_process, **only, **times) == list(range(30, 60))
    by_partition = json.dumps({topic: {"0": START_MS + 98}})
    assert numbers(broker_process, **only, startingOffsetsByTimestamp=by_partition) == [98, 99]
    late = {"startingTimestamp": str(START_MS + 5000)}
    with pytest.raises(OptionError, match="no record has a timestamp of at least"):
        rows(broker_process, **only, **late)
    assert rows(broker_process, **only, **late, startingOffsetsByTimestampStrategy="latest") == []


def test_the_modes_batches_raw_and_ranges_describe_the_same_batches(broker_process: BrokerProcess, topic: str) -> None:
    headers = rows(broker_process, subscribe=topic, mode="batches", minPartitions="7")
    assert [row["records"] for row in headers] == [10] * 15
    assert headers[0]["position"] is None
    raw = rows(broker_process, subscribe=topic, mode="raw", minPartitions="7")
    assert [(row["baseOffset"], row["lastOffset"]) for row in raw] == [
        (row["baseOffset"], row["lastOffset"]) for row in headers
    ]
    assert sum(len(row["raw"]) for row in raw) == sum(row["sizeInBytes"] for row in headers)
    ranges = rows(broker_process, subscribe=topic, mode="ranges")
    assert [(row["partition"], row["fromOffset"], row["untilOffset"]) for row in ranges] == [(0, 0, 100), (1, 0, 50)]


def test_partitions_are_split_into_more_tasks_without_lost_records(broker_process: BrokerProcess, topic: str) -> None:
    reader = KafkaRawReader(plan(broker_process, subscribe=topic, minPartitions="9"))
    assert len(reader.partitions()) >= 9
    assert numbers(broker_process, subscribe=topic, minPartitions="9") == ALL
    assert numbers(broker_process, subscribe=topic, maxRecordsPerPartition="7") == ALL


def test_splitting_is_even_and_complete() -> None:
    start, end = {("t", 0): 10, ("t", 1): 0, ("t", 2): 5}, {("t", 0): 110, ("t", 1): 10, ("t", 2): 5}
    assert split_ranges(start, end) == [FetchRange("t", 0, 10, 110), FetchRange("t", 1, 0, 10)]
    parts = split_ranges(start, end, min_partitions=11)
    assert len(parts) == 11
    assert sum(part.end_offset - part.first_offset for part in parts) == 110
    assert all(part.end_offset - part.first_offset <= 30 for part in split_ranges(start, end, max_records=30))


def test_read_committed_returns_no_aborted_records(broker_process: BrokerProcess) -> None:
    topic = new_topic(broker_process.bootstrap)
    transact(broker_process.bootstrap, topic, range(5), commits=True)
    transact(broker_process.bootstrap, topic, range(5, 9), commits=False)
    transact(broker_process.bootstrap, topic, range(9, 12), commits=True)
    assert numbers(broker_process, subscribe=topic) == list(range(12))
    committed = {"kafka__isolation__level": "read_committed"}
    assert numbers(broker_process, subscribe=topic, **committed) == [0, 1, 2, 3, 4, 9, 10, 11]
    markers = [row for row in rows(broker_process, subscribe=topic, mode="batches") if row["isControl"]]
    assert len(markers) == 3


def test_small_answers_make_the_same_rows(broker_process: BrokerProcess, topic: str) -> None:
    assert numbers(broker_process, subscribe=topic, kafka__max__partition__fetch__bytes="100") == ALL


def test_deleted_offsets_are_data_loss_unless_fail_on_data_loss_is_false(
    broker_process: BrokerProcess, topic: str
) -> None:
    reader = KafkaRawReader(plan(broker_process, subscribe=topic))
    planned = reader.partitions()
    delete_records(broker_process.bootstrap, topic, 0, 40)
    with pytest.raises(DataLossError, match=f"{topic}-0: offset 0 is missing, the log has 40 up to 100"):
        list(reader.read(planned[0]))
    tolerant = KafkaRawReader(plan(broker_process, subscribe=topic, failOnDataLoss="false"))
    found = [row for batch in tolerant.read(planned[0]) for row in batch.to_pylist()]
    assert [row["offset"] for row in found] == list(range(40, 100))
    early = {"startingOffsets": json.dumps({topic: {"0": 3, "1": -2}})}
    with pytest.raises(DataLossError, match="offset 3 is missing"):
        rows(broker_process, subscribe=topic, **early)
    assert len(rows(broker_process, subscribe=topic, **early, failOnDataLoss="false")) == 60 + 50


def test_a_read_continues_after_a_restart_of_the_broker(broker_process: BrokerProcess, topic: str) -> None:
    reader = KafkaRawReader(
        plan(broker_process, subscribe=topic, batchRows="10", kafka__max__partition__fetch__bytes="600")
    )
    found = []
    for task in reader.partitions():
        for number, batch in enumerate(reader.read(task)):
            found += [int(row["value"]) for row in batch.to_pylist()]
            if number == 1 and len(found) < 50:
                broker_process.kill()
                broker_process.start_again()
    assert found == ALL


# --- the stream ---


def stream(broker: BrokerProcess, **options: str) -> KafkaRawStreamReader:
    return KafkaRawStreamReader(plan(broker, **options))


def micro_batch(reader: KafkaRawStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[int]:
    tasks = reader.partitions(start, end)
    return [int(row["value"]) for task in tasks for batch in reader.read(task) for row in batch.to_pylist()]


def test_a_stream_starts_at_the_latest_offsets_by_default(broker_process: BrokerProcess, topic: str) -> None:
    reader = stream(broker_process, subscribe=topic)
    start = reader.initialOffset()
    assert start["offsets"] == {topic: {"0": 100, "1": 50}}
    assert reader.latestOffset(start, ReadAllAvailable()) == start
    assert micro_batch(reader, start, start) == []
    fill(broker_process.bootstrap, topic, 5, first=100)
    end = reader.latestOffset(start, ReadAllAvailable())
    assert end["offsets"] == {topic: {"0": 105, "1": 50}}
    assert micro_batch(reader, start, end) == [100, 101, 102, 103, 104]
    assert reader.reportLatestOffset() == end


def test_a_trigger_available_now_ends_at_the_offsets_of_its_start(broker_process: BrokerProcess, topic: str) -> None:
    reader = stream(broker_process, subscribe=topic, startingOffsets="earliest")
    reader.prepareForTriggerAvailableNow()
    fill(broker_process.bootstrap, topic, 5, first=100)
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    assert end["offsets"] == {topic: {"0": 100, "1": 50}}


def test_max_offsets_and_max_bytes_per_trigger_limit_a_micro_batch(broker_process: BrokerProcess, topic: str) -> None:
    reader = stream(broker_process, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="30")
    assert reader.getDefaultReadLimit() == ReadMaxRows(30)
    start, found = reader.initialOffset(), []
    while (end := reader.latestOffset(start, ReadMaxRows(30))) != start:
        got = micro_batch(reader, start, end)
        assert len(got) <= 30
        found += got
        start = end
    assert sorted(found) == ALL

    reader = stream(broker_process, subscribe=topic, startingOffsets="earliest", maxBytesPerTrigger="700")
    assert reader.getDefaultReadLimit() == ReadMaxBytes(700)
    end = reader.latestOffset(reader.initialOffset(), ReadMaxBytes(700))
    taken = sum(end["offsets"][topic].values())
    assert 700 * 0.5 < taken * 20 < 700 * 1.5, "a record takes about 20 bytes with its share of the header"


def test_a_micro_batch_waits_for_min_offsets_or_max_trigger_delay(broker_process: BrokerProcess, topic: str) -> None:
    options = {"minOffsetsPerTrigger": "30", "maxTriggerDelay": "1h"}
    reader = stream(broker_process, subscribe=topic, **options)
    start = reader.initialOffset()
    fill(broker_process.bootstrap, topic, 5, first=100)
    first = reader.latestOffset(start, ReadAllAvailable())
    assert micro_batch(reader, start, first) == [100, 101, 102, 103, 104], "the first one does not wait"
    fill(broker_process.bootstrap, topic, 29, first=105)
    assert reader.latestOffset(first, ReadAllAvailable()) == first
    fill(broker_process.bootstrap, topic, 1, first=134)
    second = reader.latestOffset(first, ReadAllAvailable())
    assert len(micro_batch(reader, first, second)) == 30
    fill(broker_process.bootstrap, topic, 1, first=135)
    assert reader.latestOffset(second, ReadAllAvailable()) == second
    assert reader._delay is not None
    reader._delay.last_at_ms -= 3_600_000
    third = reader.latestOffset(second, ReadAllAvailable())
    assert micro_batch(reader, second, third) == [135], "an hour is over"
    fill(broker_process.bootstrap, topic, 1, first=136)
    reader.prepareForTriggerAvailableNow()
    assert micro_batch(reader, third, reader.latestOffset(third, ReadAllAvailable())) == [136]


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [("15m", 900_000), ("10s", 10_000), ("2h", 7_200_000), ("500", 500), ("7us", 0), ("1D", 86_400_000)],
)
def test_durations_as_spark_writes_them(text: str, expected_ms: int) -> None:
    assert parse_duration_ms("maxTriggerDelay", text) == expected_ms


def test_invalid_stream_options_are_refused(broker_process: BrokerProcess) -> None:
    for options, complaint in (
        (
            {"minOffsetsPerTrigger": "31", "maxOffsetsPerTrigger": "30"},
            r"\(31\) is higher than the maxOffsets",
        ),
        ({"minOffsetsPerTrigger": "1", "maxTriggerDelay": "soon"}, "maxTriggerDelay must be a duration such"),
        ({"minOffsetsPerTrigger": "-1"}, "minOffsetsPerTrigger must be at least 0"),
    ):
        with pytest.raises(OptionError, match=complaint):
            stream(broker_process, subscribe="t", **options)


def test_group_id_options_have_no_effect(broker_process: BrokerProcess, topic: str) -> None:
    options = {"groupIdPrefix": "mine", "kafka.group.id": "mine"}
    assert len(rows(broker_process, subscribe=topic, **options)) == 150


def test_a_row_limit_is_shared_among_partitions_and_each_gets_a_row() -> None:
    start, end = {("t", 0): 0, ("t", 1): 0}, {("t", 0): 10_000, ("t", 1): 2}
    limited = limit_rows(start, end, 100)
    assert limited[("t", 1)] == 1
    assert 90 <= limited[("t", 0)] <= 100
    assert limit_rows(start, end, 20_000) == end


def test_a_stream_of_a_recreated_topic_fails_unless_data_loss_is_tolerated(
    broker_process: BrokerProcess, topic: str
) -> None:
    reader = stream(broker_process, subscribe=topic, startingOffsets="earliest")
    start = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    delete_topic(broker_process.bootstrap, topic)
    make_topic(broker_process.bootstrap, topic, 2)
    fill(broker_process.bootstrap, topic, 200)
    with pytest.raises(PipelineError, match=f"topic {topic} was deleted and recreated"):
        reader.latestOffset(start, ReadAllAvailable())
    tolerant = stream(broker_process, subscribe=topic, failOnDataLoss="false")
    end = tolerant.latestOffset(start, ReadAllAvailable())
    assert micro_batch(tolerant, start, end) == list(range(200))


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({}, "One of the following options must be specified for Kafka source: subscribe, subscribePattern, assign"),
        ({"subscribe": "a", "assign": "{}"}, "Only one of the following options can be specified"),
        ({"subscribe": "no-such-topic"}, "topic no-such-topic does not exist at 127.0.0.1"),
        ({"subscribePattern": "("}, "subscribePattern"),
        ({"assign": "[1]"}, "assign must be like"),
        ({"subscribe": "a", "endingoffset": "latest"}, "did you mean endingOffsets"),
        ({"subscribe": "a", "minPartitions": "0"}, "minPartitions must be at least 1"),
        ({"subscribe": "a", "kafka.isolation.level": "x"}, "kafka.isolation.level must be"),
        ({"subscribe": "a", "kafka.security.protocol": "TLS"}, "security.protocol must be one of"),
    ],
)
def test_invalid_options_are_refused(broker_process: BrokerProcess, options: dict[str, str], complaint: str) -> None:
    with pytest.raises(PipelineError, match=complaint):
        rows(broker_process, **options)


def test_an_unreachable_broker_is_an_error_that_names_its_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gregor.pipeline.kafka.cluster_view.PATIENCE_S", 0.0)
    away = SourceOptions({"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"}, KNOWN_OPTIONS)
    with pytest.raises(PipelineError, match=r"no Kafka broker answers at 127.0.0.1:1"):
        KafkaRawReader(ReadPlan(away)).partitions()


@pytest.mark.parametrize("retries", [0, 3])
def test_fetch_offset_num_retries_and_retry_interval_are_respected(
    monkeypatch: pytest.MonkeyPatch, retries: int
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("gregor.pipeline.kafka.cluster_view.time.sleep", pauses.append)
    options = {
        "kafka.bootstrap.servers": "127.0.0.1:1",
        "subscribe": "t",
        "fetchOffset.numRetries": str(retries),
        "fetchOffset.retryIntervalMs": "25",
    }
    with pytest.raises(PipelineError, match=r"no Kafka broker answers at 127.0.0.1:1"):
        KafkaRawReader(ReadPlan(SourceOptions(options, KNOWN_OPTIONS))).partitions()
    assert pauses == [0.025] * retries


def test_ending_offsets_are_refused_for_a_stream(broker_process: BrokerProcess) -> None:
    refused = stream(broker_process, subscribe="t", endingOffsets="latest")
    for begin in (refused.initialOffset, refused.prepareForTriggerAvailableNow, refused.reportLatestOffset):
        with pytest.raises(OptionError, match="a stream has no end"):
            begin()
