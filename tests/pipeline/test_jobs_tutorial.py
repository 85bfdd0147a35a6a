"""The examples of docs/pipeline-jobs.md: its commands run in order, and print its output."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.broker_process import GREGOR, BrokerProcess

pytest.importorskip("pyspark", reason="the pipeline needs gregor-broker[spark]")

pytestmark = pytest.mark.peer

TUTORIAL = Path(__file__).resolve().parents[2] / "docs" / "pipeline-jobs.md"
EXAMPLE = re.compile(r"```(sh|python)\n(.*?)```(?:\n\n```text\n(.*?)```)?", re.DOTALL)
LIMIT_S = 1_800


def test_every_example_of_the_jobs_tutorial_runs(broker_process: BrokerProcess, tmp_path: Path) -> None:
    examples = EXAMPLE.findall(TUTORIAL.read_text())
    assert len(examples) >= 6
    for language, text, expected in examples:
        text = text.replace("localhost:9092", broker_process.bootstrap)
        if language == "python":
            assert run([sys.executable, "-c", text], tmp_path) == expected
            continue
        for line in text.splitlines():
            program, *arguments = line.split()
            assert program == "gregor"
            run([sys.executable, *GREGOR, *arguments], tmp_path)
    for page in ("stats.html", "keys.html"):
        assert "plotly" in (tmp_path / page).read_text()


def run(command: list[str], folder: Path) -> str:
    """Run a command without error; return its output."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr[-3000:]}"
    return done.stdout
