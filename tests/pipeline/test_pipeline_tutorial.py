"""The examples of docs/pipeline.md: its programs run in order, and print its output."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.broker_process import BrokerProcess

pytest.importorskip("pyspark", reason="the pipeline needs gregor-broker[spark]")

pytestmark = pytest.mark.peer

TUTORIAL = Path(__file__).resolve().parents[2] / "docs" / "pipeline.md"
EXAMPLE = re.compile(r"```python\n(.*?)```(?:\n\n```text\n(.*?)```)?", re.DOTALL)
LIMIT_S = 1_800


def test_every_program_prints_what_the_page_says(broker_process: BrokerProcess) -> None:
    examples = EXAMPLE.findall(TUTORIAL.read_text())
    assert len(examples) >= 3
    for program, expected in examples:
        program = program.replace("localhost:9092", broker_process.bootstrap)
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=LIMIT_S)
        assert done.stdout == expected, program + done.stderr[-3000:]
        assert done.returncode == 0, done.stderr[-3000:]
