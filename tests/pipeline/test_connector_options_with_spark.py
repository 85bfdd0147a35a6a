"""Spark's own connector and `kafka_raw` side by side in one Spark: the same options give the same rows and refusals."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.broker_process import BrokerProcess
from tests.pipeline.topics import START_MS, fill, new_topic

pytest.importorskip("pyspark", reason="the pipeline needs gregor-broker[spark]")

import pyspark

from gregor.pipeline.session import connector_jars

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.peer,
    pytest.mark.skipif(
        not connector_jars(pyspark.__version__), reason="Spark's connector is not in its cache directory"
    ),
]

WHOLE_LOG = {"0": -2, "1": -2, "2": -2}
"""All partitions of the topic; the third one is empty."""


@pytest.fixture(scope="module")
def topic(broker_process: BrokerProcess) -> str:
    """Return a topic with 100, 50 and no records in its partitions."""
    name = new_topic(broker_process.bootstrap, 3)
    fill(broker_process.bootstrap, name, 100)
    fill(broker_process.bootstrap, name, 50, partition=1, first=1000)
    return name


def partitions(topic: str, **numbers: int) -> str:
    return json.dumps({topic: {**WHOLE_LOG, **{name[1:]: number for name, number in numbers.items()}}})


def cases(topic: str) -> dict[str, dict[str, str]]:
    """Return options by a name, with `TOPIC` for the topic."""
    times = {f"p{number}": START_MS + 30 for number in range(3)}
    return {
        "everything": {},
        "nothing-selected": {"subscribe": ""},
        "two-selections": {"assign": json.dumps({topic: [0]})},
        "pattern-inside": {"subscribePattern": topic[1:]},
        "whole-pattern": {"subscribePattern": f"^{topic}$"},
        "no-match": {"subscribePattern": "^no-such-"},
        "empty-pattern": {"subscribePattern": " "},
        "from-offsets": {"startingOffsets": partitions(topic, p0=10, p1=-2)},
        "from-latest": {"startingOffsets": "latest"},
        "from-latest-partition": {"startingOffsets": partitions(topic, p1=-1)},
        "from-nonsense": {"startingOffsets": "soon"},
        "from-empty": {"startingOffsets": ""},
        "from-some": {"startingOffsets": json.dumps({topic: {"0": 10}})},
        "from-others": {"startingOffsets": json.dumps({topic: WHOLE_LOG, "other": {"0": 1}})},
        "to-offsets": {"endingOffsets": partitions(topic, p0=10, p1=-1, p2=-1)},
        "to-earliest": {"endingOffsets": "earliest"},
        "to-earliest-partition": {"endingOffsets": partitions(topic, p0=10)},
        "backwards": {
            "startingOffsets": partitions(topic, p0=50),
            "endingOffsets": partitions(topic, p0=40, p1=-1, p2=-1),
        },
        "beyond": {"startingOffsets": partitions(topic, p0=500)},
        "from-time": {"startingTimestamp": str(START_MS + 30)},
        "from-time-or-end": {
            "startingTimestamp": str(START_MS + 30),
            "startingOffsetsByTimestampStrategy": "Latest",
        },
        "from-times-or-end": {
            "startingOffsetsByTimestamp": partitions(topic, **times),
            "startingOffsetsByTimestampStrategy": "latest",
        },
        "unknown-strategy": {"startingOffsetsByTimestampStrategy": "none"},
        "to-time": {"endingTimestamp": str(START_MS + 30)},
        "to-late-time": {"endingTimestamp": str(START_MS * 2)},
        "time-that-is-none": {"startingTimestamp": "today"},
        "time-before-offsets": {
            "startingOffsets": partitions(topic, p0=90),
            "startingTimestamp": "1",
            "startingOffsetsByTimestampStrategy": "latest",
        },
        "no-tasks": {"minPartitions": "0"},
        "seven-tasks": {"minPartitions": "7"},
        "ten-tasks": {"minPartitions": "10"},
        "small-tasks": {"maxRecordsPerPartition": "60", "minPartitions": "5"},
        "smaller-tasks": {"maxRecordsPerPartition": "13", "minPartitions": "14"},
        "no-records": {"maxRecordsPerPartition": "0"},
        "auto-offset-reset": {"kafka.auto.offset.reset": "latest"},
        "key-deserializer": {"kafka.key.deserializer": "x"},
        "value-deserializer": {"kafka.value.deserializer": "x"},
        "auto-commit": {"kafka.enable.auto.commit": "true"},
        "interceptors": {"kafka.interceptor.classes": "x"},
        "group": {"kafka.group.id": "mine", "groupIdPrefix": "mine"},
        "more-than-most": {"minOffsetsPerTrigger": "10", "maxOffsetsPerTrigger": "5"},
        "limits-of-a-stream": {"minOffsetsPerTrigger": "1", "maxOffsetsPerTrigger": "5"},
        "loss-maybe": {"failOnDataLoss": "maybe"},
        "headers-maybe": {"includeHeaders": "maybe"},
        "retries-maybe": {"fetchOffset.numRetries": "maybe"},
        "isolation-maybe": {"kafka.isolation.level": "maybe"},
    }


NAMES = sorted(cases("topic"))


@pytest.mark.parametrize("name", NAMES)
def test_kafka_raw_and_the_connector_give_the_same_rows_or_both_refuse(
    spark: "SparkSession", broker_process: BrokerProcess, topic: str, name: str
) -> None:
    options = {"kafka.bootstrap.servers": broker_process.bootstrap, **cases(topic)[name]}
    if "subscribePattern" not in options:
        options.setdefault("subscribe", topic)

    def answer(source: str) -> tuple[list[tuple[int, int]], int] | None:
        try:
            frame = spark.read.format(source).options(**options).load()
            found = sorted((row.partition, row.offset) for row in frame.select("partition", "offset").collect())
            return found, frame.rdd.getNumPartitions()
        except Exception:  # of several kinds: Py4J's, Spark's
            return None

    theirs, ours = answer("kafka"), answer("kafka_raw")
    assert (theirs and theirs[0]) == (ours and ours[0])
    if theirs and ours and "minPartitions" in options:
        assert theirs[1] == ours[1], "the number of tasks"


def test_kafka_raw_continues_a_stream_from_a_checkpoint_of_the_connector(
    spark: "SparkSession", broker_process: BrokerProcess, tmp_path: Path
) -> None:
    topic = new_topic(broker_process.bootstrap, 2)

    def run(source: str, checkpoint: Path) -> int:
        options = {"kafka.bootstrap.servers": broker_process.bootstrap, "subscribe": topic}
        rows = spark.readStream.format(source).options(**options, startingOffsets="earliest").load()
        writing = rows.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
        query = writing.trigger(availableNow=True).start()
        query.awaitTermination()
        return sum(progress.numInputRows for progress in query.recentProgress)

    checkpoint = tmp_path / "checkpoint"
    fill(broker_process.bootstrap, topic, 20)
    assert run("kafka", checkpoint) == 20
    fill(broker_process.bootstrap, topic, 15, first=20, partition=1)
    assert run("kafka_raw", checkpoint) == 15
    fill(broker_process.bootstrap, topic, 7, first=35)
    assert run("kafka_raw", checkpoint) == 7


def test_kafka_raw_has_the_rows_and_columns_of_the_connector(
    spark: "SparkSession", broker_process: BrokerProcess, topic: str
) -> None:
    def read(source: str) -> Any:
        options = {"kafka.bootstrap.servers": broker_process.bootstrap, "subscribe": topic, "includeHeaders": "true"}
        return spark.read.format(source).options(**options).load()

    theirs = read("kafka")
    ours = read("kafka_raw").select(*theirs.columns)
    assert ours.schema == theirs.schema
    assert ours.exceptAll(theirs).isEmpty()
    assert theirs.exceptAll(ours).isEmpty()
