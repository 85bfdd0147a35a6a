"""Raw requests of every API and version, compared with the answers that Apache Kafka 3.9.1 gave."""

import fnmatch
import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.peer

BETTER_THAN_KAFKA = {
    "offset-commit-v0": "0.8 clients meant ZooKeeper; Kafka without one refuses (35), we keep the offsets",
    "offset-fetch-v0": "the same for reading them back",
    "consumer-group-protocol": "Kafka 3.9 serves KIP-848 only where a feature is switched on (35); here it is on",
}
"""Scenarios (patterns) whose differences are wanted, each with the reason."""


def test_raw_requests_are_answered_as_kafka_answers_them(
    shared: Path, differential_broker: str, tmp_path: Path
) -> None:
    """``framing`` and ``bytes`` are left out: Gregor stores what was produced, Kafka turns all of it into magic 2."""
    tester = shared / "diff" / "diff"
    if not tester.exists():
        pytest.skip("no ../shared/diff")
    oracle, report = shared / "diff" / "oracle.json.gz", tmp_path / "differences.json"
    command = [sys.executable, str(tester), differential_broker, "--oracle", str(oracle)]
    command += ["--skip", "framing,bytes", "--json", str(report)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert report.exists(), run.stdout[-2000:] + run.stderr[-2000:]
    result = json.loads(report.read_text())
    unwanted = [
        f"{difference['scenario']}: {difference['label']} at {difference['path']}"
        for difference in result["differences"]
        if not any(fnmatch.fnmatch(difference["scenario"], pattern) for pattern in BETTER_THAN_KAFKA)
    ]
    print(run.stdout.splitlines()[-1])
    assert result["checks"] > 10_000
    assert not unwanted, "\n".join(unwanted[:40])
