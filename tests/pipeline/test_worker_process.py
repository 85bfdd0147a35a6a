"""What a Python process of Spark pays for beside its rows: imports, and the collection of garbage after each task."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="the pipeline needs gregor-broker[spark]")

from pyspark import TaskContext
from pyspark.sql import SparkSession

from gregor.pipeline import worker_daemon, worker_process

READ = """
import sys
from gregor.pipeline.columns.record_batches import RecordBatches, RecordOptions
from gregor.pipeline.kafka import kafka_raw, kafka_raw_stream
from gregor.pipeline.logs import kafka_log
from gregor.pipeline.synthetic.synthetic import Recipe
from gregor.protocol.records.compression import Codec

for codec in Codec:
    recipe = Recipe(seed=1, records=50, partitions=1, value_bytes=100, codec=codec)
    stored = b"".join(recipe.batches(0))
    batches = list(RecordBatches("t", 0, RecordOptions()).read(memoryview(stored)))
    assert sum(batch.num_rows for batch in batches) == 50
"""
WRITE = """
from gregor.pipeline.sink import kafka_sink
from gregor.pipeline.sink.batch_building import BatchBuilder

for topic in ("t", None):
    builder = BatchBuilder(topic, Codec.NONE, 1000, lambda name: 3, lambda: 1_900_000_000_000, 0)
    built = [*builder.add(batches[0]), *builder.rest()]
    assert built
"""
NO_PANDAS = 'assert "pandas" not in sys.modules, "pandas was imported"'


@pytest.mark.parametrize("program", [READ, READ + WRITE], ids=["read", "read and write"])
def test_rows_are_converted_without_an_import_of_pandas(program: str) -> None:
    done = subprocess.run([sys.executable, "-c", program + NO_PANDAS], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_readers_of_a_topic_import_no_trio() -> None:
    program = "import sys\nfrom gregor.pipeline.kafka import kafka_raw_stream\nassert 'trio' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def freezes(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    calls: list[str] = []
    monkeypatch.setattr(gc, "freeze", lambda: calls.append("freeze"))
    worker_process._freeze_once.cache_clear()
    yield calls
    worker_process._freeze_once.cache_clear()


def test_a_worker_freezes_its_imports_once(monkeypatch: pytest.MonkeyPatch, freezes: list[str]) -> None:
    monkeypatch.setattr(TaskContext, "get", lambda: object())
    worker_process.prepare_worker()
    worker_process.prepare_worker()
    assert freezes == ["freeze"]


def test_a_process_without_a_task_freezes_nothing(freezes: list[str]) -> None:
    worker_process.prepare_worker()
    assert freezes == []


def test_the_daemon_has_the_modules_of_tasks_and_no_pandas() -> None:
    program = (
        "import gc, sys\nfrom gregor.pipeline import worker_daemon\nworker_daemon.import_modules()\n"
        "assert set(worker_daemon.IMPORTED) <= set(sys.modules)\nassert gc.get_freeze_count()\n"
    )
    done = subprocess.run([sys.executable, "-c", program + NO_PANDAS], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_session_of_this_machine_forks_its_workers_from_our_daemon(spark: SparkSession) -> None:
    def parent(numbers: Iterator[int]) -> Iterator[str]:
        assert list(numbers)
        assert "gregor.pipeline.kafka.kafka_raw" in sys.modules
        yield Path(f"/proc/{os.getppid()}/cmdline").read_text()

    commands = spark.sparkContext.parallelize([1, 2], 2).mapPartitions(parent).collect()
    assert [worker_daemon.MODULE in command.split("\0") for command in commands] == [True, True]
