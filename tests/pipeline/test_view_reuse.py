"""The connections that one task of Spark leaves to the next in the same process."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator

import pytest

pytest.importorskip("pyspark", reason="the pipeline needs gregor-broker[spark]")

from pyspark import TaskContext

from gregor.pipeline.kafka import view_reuse
from gregor.pipeline.kafka.kafka_raw import KNOWN_OPTIONS, KafkaRawReader
from gregor.pipeline.kafka.read_plan import ReadPlan
from gregor.pipeline.kafka.wire import Wire
from gregor.pipeline.options import SourceOptions
from tests.broker_process import BrokerProcess
from tests.pipeline.topics import fill, new_topic


@pytest.fixture
def wires(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Wire]]:
    """Return the connections that are opened; this process counts as one of Spark's tasks."""
    opened: list[Wire] = []
    real = Wire.__init__

    def counted(wire: Wire, *arguments: object) -> None:
        opened.append(wire)
        real(wire, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Wire, "__init__", counted)
    monkeypatch.setattr(TaskContext, "get", lambda: object())
    monkeypatch.setattr("gregor.pipeline.worker_process._freeze_once", lambda: None)
    yield opened
    if view_reuse._keeper.kept is not None:
        view_reuse._keeper.kept.view.close()
        view_reuse._keeper.kept = None


@pytest.fixture
def topic(broker_process: BrokerProcess) -> str:
    name = new_topic(broker_process.bootstrap)
    fill(broker_process.bootstrap, name, 100)
    return name


def reader(broker: BrokerProcess, topic: str, **options: str) -> KafkaRawReader:
    given = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic, **options}
    return KafkaRawReader(ReadPlan(SourceOptions(given, KNOWN_OPTIONS)))


def numbers(source: KafkaRawReader) -> list[int]:
    return [
        int(row["value"]) for task in source.partitions() for batch in source.read(task) for row in batch.to_pylist()
    ]


def test_a_second_task_opens_no_connection(broker_process: BrokerProcess, topic: str, wires: list[Wire]) -> None:
    source = reader(broker_process, topic, maxRecordsPerPartition="50")
    first, second = source.partitions()
    planned = len(wires)
    assert sum(batch.num_rows for batch in source.read(first)) == 50
    opened = len(wires)
    assert opened > planned
    assert sum(batch.num_rows for batch in source.read(second)) == 50
    assert len(wires) == opened


def test_a_task_with_other_settings_opens_its_own_connections(
    broker_process: BrokerProcess, topic: str, wires: list[Wire]
) -> None:
    assert numbers(reader(broker_process, topic)) == list(range(100))
    opened = len(wires)
    assert numbers(reader(broker_process, topic, **{"kafka.client.id": "another"})) == list(range(100))
    # As many connections as the first: those of planning, and those of the task.
    assert len(wires) == 2 * opened


def test_connections_that_the_broker_has_closed_are_not_reused(
    broker_process: BrokerProcess, topic: str, wires: list[Wire]
) -> None:
    assert numbers(reader(broker_process, topic)) == list(range(100))
    for wire in wires:
        if wire._socket.fileno() >= 0:
            wire._socket.shutdown(socket.SHUT_RD)
    opened = len(wires)
    assert numbers(reader(broker_process, topic)) == list(range(100))
    assert len(wires) == 2 * opened


def test_a_task_that_is_not_read_to_its_end_leaves_no_connections(
    broker_process: BrokerProcess, topic: str, wires: list[Wire]
) -> None:
    fill(broker_process.bootstrap, topic, 100, first=100)
    source = reader(broker_process, topic, batchRows="10", **{"kafka.max.partition.fetch.bytes": "1000"})
    (task,) = source.partitions()
    rows = source.read(task)
    next(rows)
    rows.close()  # type: ignore[attr-defined]
    assert view_reuse._keeper.kept is None
    assert all(wire._socket.fileno() < 0 for wire in wires)
    assert numbers(source) == list(range(200))


def test_a_task_without_rows_to_wait_for_ends_at_its_last_offset(
    broker_process: BrokerProcess, topic: str, wires: list[Wire]
) -> None:
    bounds = {"startingOffsets": json.dumps({topic: {"0": 10}}), "endingOffsets": json.dumps({topic: {"0": 12}})}
    for _ in range(3):
        assert numbers(reader(broker_process, topic, **bounds)) == [10, 11]


def test_a_process_without_a_task_keeps_no_connections(broker_process: BrokerProcess, topic: str) -> None:
    assert numbers(reader(broker_process, topic)) == list(range(100))
    assert view_reuse._keeper.kept is None
