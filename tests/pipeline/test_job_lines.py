"""Messages of a job: one line for a mistake, and its result as JSON for programs."""

from __future__ import annotations

import json
import logging
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("pyarrow", reason="the pipeline needs gregor-broker[spark]")
pytest.importorskip("pyspark", reason="the pipeline needs gregor-broker[spark]")

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkRuntimeError, PythonException

from gregor.command_line import INTERRUPTED, main
from gregor.command_line.asking import TERMINATED
from gregor.command_line.pipeline import summary_fields
from gregor.command_line.quiet_jvm import JavaLog
from gregor.pipeline.errors import DamagedLogError
from gregor.pipeline.jobs import generate as generate_job
from gregor.pipeline.jobs.desk import Summary
from gregor.pipeline.session import NoJavaError
from gregor.pipeline.spark_failures import complaint_of
from tests.broker_process import GREGOR
from tests.pipeline.job_desk import run_job, run_tasks_once

LIMIT_S = 600.0
IN_A_TASK = """An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 0.0 failed 1 times
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/x/worker.py", line 1, in main
    process()
{raised}

\tat org.apache.spark.api.python.BasePythonRunner.handle(PythonRunner.scala:1)
"""


@pytest.mark.parametrize(
    ("command", "complaint"),
    [
        ("stats --log-dir s3a://bucket/logs", "argument --log-dir: s3a://bucket/logs: s3a is not supported"),
        ("archive --archive lake", "the following arguments are required: --bootstrap-server"),
        ("replay --archive a --bootstrap-server b --since soon", "argument --since: invalid milliseconds value"),
    ],
)
def test_invalid_arguments_are_reported_in_one_line(
    command: str, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["pipeline", *command.split()])
    assert ended.value.code == 2
    told = capsys.readouterr().err
    assert told.startswith(f"Error: {complaint}")
    assert told.count("\n") == 1


def java_error(text: str, thrown: str) -> Py4JJavaError:
    """Return an error as Py4J raises it, without a Java."""
    error = Py4JJavaError.__new__(Py4JJavaError)
    error.java_exception = SimpleNamespace(toString=lambda: thrown)
    error.__class__ = type("Error", (Py4JJavaError,), {"__str__": lambda self: text})
    return error


def test_errors_of_spark_become_one_line() -> None:
    damaged = IN_A_TASK.format(raised="gregor.pipeline.errors.DamagedLogError: t-0 offset 7: a wrong CRC")
    chained = IN_A_TASK.format(raised="x: gregor.pipeline.errors.PipelineError: t-0 offset 7: a wrong CRC")
    foreign = IN_A_TASK.format(raised="OSError: [Errno 28] No space left on device")
    master = "org.apache.spark.SparkException: Could not parse Master URL: 'nowhere'"
    for fault, line, is_all in (
        (DamagedLogError("t", 0, 7, "a wrong CRC"), "t-0 offset 7: a wrong CRC", True),
        (NoJavaError("install one"), "install one", True),
        (java_error(damaged, "x"), "t-0 offset 7: a wrong CRC", True),
        (java_error(chained, "x"), "t-0 offset 7: a wrong CRC", True),
        (java_error(foreign, "x"), "OSError: [Errno 28] No space left on device", False),
        (
            PythonException(message=f"thrown by a worker: {foreign}"),
            "OSError: [Errno 28] No space left on device",
            False,
        ),
        (java_error("pages", master), "Could not parse Master URL: 'nowhere'", False),
        (AnalysisException(message="no such column\n at line 5"), "no such column", False),
        (PySparkRuntimeError(message="[JAVA_GATEWAY_EXITED] Java has ended"), "Java has ended", False),
    ):
        assert complaint_of(fault) == (line, is_all)
    assert complaint_of(ZeroDivisionError("a fault of ours, to be seen whole")) is None


def test_the_json_summary_of_a_job_has_totals_rows_and_notes() -> None:
    columns = ("TOPIC", "DEAD-LETTERS", "BYTES/BATCH", "SPLIT-%", "P50-MS")
    fields = summary_fields("stats", Summary(columns, [("t", 1, 2.5, None, 4)], ["a note"], is_clean=False))
    row = {"topic": "t", "dead_letters": 1, "bytes_per_batch": 2.5, "split_percent": None, "p50_ms": 4}
    assert fields == {
        "job": "stats",
        "is_clean": False,
        "totals": {"dead_letters": 1},
        "rows": [row],
        "notes": ["a note"],
    }


def test_json_has_standard_output_to_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(generate_job, "run_tasks", run_tasks_once)
    command = ["--topic", "t", "--records", "10", "--partitions", "1", "--log-dir", str(tmp_path / "logs")]
    run_job("generate", *command)
    assert main(["pipeline", "generate", *command, "--json"]) == 0
    told = capsys.readouterr()
    assert json.loads(told.out)["rows"][0]["records"] == 10
    assert told.err == "1 of 1 segments are there already\n"
    assert main(["pipeline", "stats", "--log-dir", str(tmp_path / "nowhere"), "--json"]) == 1
    told = capsys.readouterr()
    assert "No such file" in json.loads(told.out)["error"]
    assert told.err.startswith("Error: path ")


def test_standard_error_of_java_is_kept_in_a_file_instead_of_printed(capfd: pytest.CaptureFixture[str]) -> None:
    log = JavaLog()
    with log.taken():
        subprocess.run([sys.executable, "-c", "import sys; sys.stderr.write('WARN everything')"], check=True)
    print("mine", file=sys.stderr)
    kept = log.keep()
    assert kept is not None
    assert kept.read_text() == "WARN everything"
    assert capfd.readouterr().err == "mine\n"
    kept.unlink()
    with log.taken():
        pass
    log.remove()
    assert log.keep() is None


@pytest.mark.peer
def test_a_damaged_batch_found_by_a_spark_task_is_reported_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generate_job, "run_tasks", run_tasks_once)
    run_job("generate", "--topic", "t", "--records", "2000", "--partitions", "1", "--log-dir", str(tmp_path / "logs"))
    (segment,) = (tmp_path / "logs" / "t-0").glob("*.log")
    stored = bytearray(segment.read_bytes())
    stored[len(stored) // 2] ^= 1
    segment.write_bytes(stored)
    command = ["convert", "--log-dir", "logs", "--to-log-dir", "out", "--to-format", "1"]
    done = subprocess.run(
        [sys.executable, *GREGOR, "pipeline", *command], cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT_S
    )
    assert done.returncode == 1
    assert done.stdout == "starting Spark on local[*] ...\n"
    assert done.stderr.startswith("Error: t-0 offset ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, INTERRUPTED), (signal.SIGTERM, TERMINATED)])
def test_a_signal_ends_a_job_in_order_with_its_own_exit_code(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
    number: signal.Signals,
    status: int,
) -> None:
    ended: list[str] = []

    def wait(options: object, desk: object) -> None:
        try:
            signal.raise_signal(number)
        except KeyboardInterrupt:
            # As Py4J does where it waits for an answer.
            logging.exception("KeyboardInterrupt while sending command.")  # noqa: LOG015
            raise
        finally:
            ended.append("in order")

    monkeypatch.setattr("gregor.pipeline.jobs.stats.run", wait)
    before = signal.getsignal(signal.SIGTERM)
    assert main(["pipeline", "stats", "--log-dir", str(tmp_path)]) == status
    assert ended == ["in order"]
    assert not caplog.records
    assert signal.getsignal(signal.SIGTERM) is before
