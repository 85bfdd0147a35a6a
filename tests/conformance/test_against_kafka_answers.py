"""Raw requests of every API and version, compared with the answers that Apache Kafka 3.9.1 gave."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.peer


def test_raw_requests_are_answered_as_kafka_answers_them(shared: Path, differential_broker: str) -> None:
    """``framing`` and ``bytes`` are left out: Gregor stores what was produced, Kafka turns all of it into magic 2."""
    tester = shared / "diff" / "diff"
    if not tester.exists():
        pytest.skip("no ../shared/diff")
    oracle = shared / "diff" / "oracle.json.gz"
    command = [sys.executable, str(tester), differential_broker, "--oracle", str(oracle)]
    run = subprocess.run([*command, "--skip", "framing,bytes"], capture_output=True, text=True, timeout=900)
    print(run.stdout[-6000:])
    assert run.returncode == 0, run.stdout[-6000:] + run.stderr[-2000:]
