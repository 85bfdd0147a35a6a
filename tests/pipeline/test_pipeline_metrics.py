"""Metrics of jobs and of streaming queries, as Prometheus gets them over HTTP."""

import json
import urllib.error
import urllib.request
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="the pipeline needs gregor-broker[spark]")
pytest.importorskip("pyspark", reason="the pipeline needs gregor-broker[spark]")
pytest.importorskip("prometheus_client", reason="metrics need gregor-broker[spark]")

from prometheus_client.parser import text_string_to_metric_families

from gregor.command_line import main
from gregor.command_line.pipeline import TerminalDesk, summary_fields
from gregor.pipeline.archive import writing
from gregor.pipeline.errors import OptionError, PipelineError
from gregor.pipeline.jobs import archive as archive_job
from gregor.pipeline.jobs.desk import Summary
from gregor.pipeline.metrics.exposition import Exposition
from gregor.pipeline.metrics.job_metrics import JobMetrics
from gregor.pipeline.metrics.stream_metrics import StreamMetrics, connector_metrics, offsets_behind_latest
from tests.broker_process import BrokerProcess
from tests.pipeline import job_desk
from tests.pipeline.archive_rows import arguments, make_topic, produce
from tests.pipeline.job_desk import run_job, run_tasks_here


def samples(text: str) -> dict[tuple[str, ...], float]:
    """Return the samples by their names and the values of their labels."""
    families = text_string_to_metric_families(text)
    return {
        (each.name, *(each.labels[name] for name in ("job", "query", "topic", "partition") if name in each.labels)): (
            each.value
        )
        for family in families
        for each in family.samples
    }


def test_what_a_job_writes_is_counted_while_it_runs(
    broker_process: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "run_tasks", run_tasks_here)
    make_topic(broker_process, "counted")
    produce(broker_process, "counted", [b"12345"] * 30 + [b"\xff"])
    exposition = Exposition("http://127.0.0.1:0")
    metrics = JobMetrics("archive", exposition)
    scraped: list[dict[tuple[str, ...], float]] = []
    url = f"http://127.0.0.1:{exposition.port}/metrics"

    def scrape() -> None:
        with urllib.request.urlopen(url) as answer:
            scraped.append(samples(answer.read().decode()))

    class MeasuredDesk(job_desk.TestDesk):
        def __init__(self) -> None:
            super().__init__()
            self.metrics = metrics

    monkeypatch.setattr(job_desk, "TestDesk", MeasuredDesk)
    seconds: list[float] = []

    def stop(interval: float) -> None:
        scrape()
        seconds.append(interval)
        if len(seconds) == 2:
            raise KeyboardInterrupt
        produce(broker_process, "counted", [b"1"] * 2)

    monkeypatch.setattr(archive_job, "time", SimpleNamespace(sleep=stop))
    command = arguments(broker_process, "counted", tmp_path, "--values", "string", "--follow")
    summary, desk = run_job("archive", *command)
    labels = ("archive", "counted", "0")
    sizes = 5 * 15 + 1 + sum(len(b"k%d" % number) for number in range(0, 31, 2))
    assert scraped[0]["gregor_pipeline_records_total", *labels] == 15
    assert scraped[0]["gregor_pipeline_bytes_total", *labels] == sizes
    assert scraped[0]["gregor_pipeline_dead_letters_total", *labels] == 1
    assert scraped[0]["gregor_pipeline_end_offset", *labels] == scraped[0]["gregor_pipeline_position", *labels] == 16
    assert scraped[1]["gregor_pipeline_records_total", *labels] == 16
    assert scraped[1]["gregor_pipeline_lag", *labels] == 0
    assert [line for line in desk.said if line.startswith("archived")] == [
        "archived 30 records (234 bytes)",
        "archived 2 records (6 bytes)",
    ]
    told = summary_fields("archive", summary)
    assert told["totals"] == {"dead_letters": 1, "records": 32, "bytes": 240}
    exposition.close()
    with pytest.raises(urllib.error.URLError):
        scrape()


def test_lag_is_the_distance_from_position_to_end_and_never_negative(tmp_path: Path) -> None:
    exposition = Exposition()
    metrics = JobMetrics("mirror", exposition)
    metrics.position("t", 1, 40, 100)
    assert samples(exposition.text())["gregor_pipeline_lag", "mirror", "t", "1"] == 60
    metrics.position("t", 1, 100, 90)
    assert samples(exposition.text())["gregor_pipeline_lag", "mirror", "t", "1"] == 0


@pytest.mark.parametrize("listener", ["127.0.0.1:9404", "https://127.0.0.1:1", "http://127.0.0.1", "http://h:1/x"])
def test_invalid_metrics_listeners_are_refused(listener: str) -> None:
    with pytest.raises(OptionError, match="a listener of metrics is like"):
        Exposition(listener)


def test_a_metrics_port_in_use_is_reported_in_one_line_before_the_job_starts(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    taken = Exposition("http://127.0.0.1:0")
    listener = f"http://127.0.0.1:{taken.port}"
    with pytest.raises(PipelineError, match=r"cannot serve metrics at .*: Address already in use"):
        Exposition(listener)
    command = ["pipeline", "dead-letters", "--archive", str(tmp_path), "--metrics-listener", listener]
    assert main(command) == 1
    told = capsys.readouterr().err
    assert told.startswith(f"Error: cannot serve metrics at {listener}")
    assert told.count("\n") == 1
    taken.close()


def test_metrics_without_a_listener_are_ignored() -> None:
    desk = TerminalDesk(None)
    desk.metrics.done("t", 0, records=1, size_bytes=1)
    desk.close()


def test_totals_are_sums_of_numbers() -> None:
    summary = Summary(("TOPIC", "RECORDS", "BYTES"), [("a", 2, "1 kB"), ("b", 3, 5)], totals={"more": 7})
    assert summary_fields("x", summary)["totals"] == {"records": 5, "more": 7}
    assert summary_fields("x", Summary(("RECORDS",), []))["totals"] == {"records": 0}


# --- streaming queries ---


def progress(latest: Any, end: Any, **more: Any) -> dict[str, Any]:
    sources = [{"latestOffset": latest, "endOffset": end}, {"latestOffset": None, "endOffset": "5"}]
    return {
        "id": "7-7",
        "name": None,
        "numInputRows": 5,
        "durationMs": {"triggerExecution": 250},
        **more,
        "sources": sources,
    }


OURS = {"offsets": {"t": {"0": 100, "1": 50}}, "topicIds": {"t": "x"}}
REACHED = {"offsets": {"t": {"0": 90}}, "topicIds": {"t": "x"}}


@pytest.mark.parametrize("encode", [lambda told: told, json.dumps])
def test_the_lag_of_a_streaming_query_is_computed_by_partition(encode: Any) -> None:
    assert offsets_behind_latest(progress(encode(OURS), encode(REACHED))) == {("t", 0): 10, ("t", 1): 0}
    theirs = progress(encode({"t": {"0": 9}}), encode({"t": {"0": 4}}))
    assert offsets_behind_latest(theirs) == {("t", 0): 5}
    assert offsets_behind_latest(SimpleNamespace(json=json.dumps(theirs))) == {("t", 0): 5}


def test_min_max_and_average_lag_have_the_names_of_the_spark_connector() -> None:
    assert connector_metrics(progress(OURS, REACHED)) == {
        "minOffsetsBehindLatest": "0",
        "maxOffsetsBehindLatest": "10",
        "avgOffsetsBehindLatest": "5.0",
    }
    assert connector_metrics(progress({"logOffset": 3}, "no JSON")) == {}


def test_lag_metrics_of_a_query_disappear_when_it_terminates() -> None:
    metrics = StreamMetrics(Exposition())
    metrics.onQueryStarted(SimpleNamespace(id="7-7", name="clicks"))
    metrics.onQueryProgress(
        SimpleNamespace(progress=SimpleNamespace(json=json.dumps(progress(OURS, REACHED, name="clicks"))))
    )
    metrics.take(progress(OURS, OURS, name="clicks"))
    found = samples(metrics.exposition.text())
    assert found["gregor_stream_offsets_behind_latest", "clicks", "t", "0"] == 0
    assert found["gregor_stream_rows_total", "clicks"] == 10
    assert found["gregor_stream_batches_total", "clicks"] == 2
    assert found["gregor_stream_batch_seconds", "clicks"] == 0.25
    metrics.take(progress({"offsets": {"t": {"1": 5}}, "topicIds": {}}, REACHED, name="clicks"))
    assert ("gregor_stream_offsets_behind_latest", "clicks", "t", "0") not in samples(metrics.exposition.text())
    metrics.onQueryIdle(SimpleNamespace())
    metrics.onQueryTerminated(SimpleNamespace(id="7-7"))
    left = samples(metrics.exposition.text())
    assert not [name for name in left if name[0] == "gregor_stream_offsets_behind_latest"]
    assert left["gregor_stream_rows_total", "clicks"] == 15
