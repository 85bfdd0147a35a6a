"""`gregor pipeline generate` into a broker: the recipe's records, and the rest of them after a run that ended early."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="the pipeline needs gregor-broker[spark]")
pytest.importorskip("pyspark", reason="the pipeline needs gregor-broker[spark]")

from gregor.pipeline.errors import PipelineError
from gregor.pipeline.jobs import generate as generate_job
from gregor.pipeline.synthetic.synthetic import Recipe
from tests.broker_process import BrokerProcess
from tests.pipeline.archive_rows import end_offsets, make_topic, produce
from tests.pipeline.job_desk import run_job, run_tasks_here


@pytest.fixture(autouse=True)
def _tasks_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generate_job, "run_tasks", run_tasks_here)


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_a_topic_is_generated_in_each_message_format(broker_process: BrokerProcess, magic: int) -> None:
    command = ["--bootstrap-server", broker_process.bootstrap, "--topic", f"made-v{magic}", "--records", "3000"]
    command += ["--format", str(magic), "--value-bytes", "100", "--keys", "50", "--codec", "gzip"]
    run_job("generate", *command)
    recipe = Recipe(seed=1, records=3000, partitions=3, value_bytes=100, keys=50)
    assert end_offsets(broker_process, f"made-v{magic}") == recipe.partition_records()
    summary, _ = run_job("generate", *command)
    assert [row[3] for row in summary.rows] == [0, 0, 0]


def test_generate_continues_after_an_interruption(
    broker_process: BrokerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ["--bootstrap-server", broker_process.bootstrap, "--topic", "grown", "--batch-records", "100"]
    with monkeypatch.context() as patch:
        patch.setattr(Recipe, "partition_records", lambda recipe: [300, 100, 0])
        run_job("generate", *command, "--records", "400")
    summary, _ = run_job("generate", *command, "--records", "1000")
    assert [row[2:] for row in summary.rows] == [(300, 34), (100, 233), (0, 333)]
    assert end_offsets(broker_process, "grown") == [334, 333, 333]


def test_a_topic_of_another_recipe_is_refused(broker_process: BrokerProcess, tmp_path: Path) -> None:
    make_topic(broker_process, "foreign", 3)
    produce(broker_process, "foreign", [b"1"] * 7, 3)
    with pytest.raises(PipelineError, match="foreign-0 ends at offset 3, where no batch of this recipe does"):
        run_job("generate", "--bootstrap-server", broker_process.bootstrap, "--topic", "foreign")
