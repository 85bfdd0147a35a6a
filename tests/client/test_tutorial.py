"""The examples of docs/client.md: its programs run in order, and print its output."""

import re
import subprocess
import sys
from pathlib import Path

from tests.broker_process import BrokerProcess
from tests.waiting import PATIENCE_S

TUTORIAL = Path(__file__).resolve().parents[2] / "docs" / "client.md"
EXAMPLE = re.compile(r"```python\n(.*?)```\n\n```text\n(.*?)```", re.DOTALL)


def test_every_program_prints_what_the_page_says(broker_process: BrokerProcess) -> None:
    page = TUTORIAL.read_text()
    examples = EXAMPLE.findall(page)
    assert len(examples) == page.count("```python"), "each program is followed by its output"
    for program, expected in examples:
        program = program.replace("localhost:9092", broker_process.bootstrap)
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, timeout=PATIENCE_S
        )
        assert (done.stdout, done.stderr) == (expected, ""), program
