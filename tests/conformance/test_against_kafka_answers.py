"""Raw requests of every API and version, compared with the answers that Apache Kafka 3.9.1 gave."""

import fnmatch
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.peer

BETTER_THAN_KAFKA = {
    ("offset-commit-v0", "*"): "0.8 clients meant ZooKeeper; Kafka without one refuses (35), we keep the offsets",
    ("offset-fetch-v0", "*"): "the same for reading them back",
    (
        "consumer-group-protocol",
        "*",
    ): "Kafka 3.9 serves KIP-848 only where a feature is switched on (35); here it is on",
    ("api-versions", "offers ConsumerGroup*"): "likewise, and v1 of the heartbeat, which librdkafka asks for",
    ("list-offsets*", "*time in v0 records*"): (
        "v0 records have no time, and Kafka finds none (-1, and the first record as that of the greatest time, -3); "
        "we find them by the time of their receipt"
    ),
    ("list-offsets*", "*leader epoch of v0 and v1 records*"): (
        "-1, as the stored batch tells none; Kafka makes v2 batches of them, which do (0 on a broker of one)"
    ),
} | {
    ("fetch-limits-v[0-2]", f"partition max bytes {limit}{content}"): (
        "Kafka sends nothing where the stored batch exceeds the limit, so that the client asks for ever; we send the "
        "messages that fit, else the beginning of one, by which the client sees that its limit is too small"
    )
    for limit in (1, 100, 470)
    for content in ("", " content")
}
"""Differences that are wanted, by scenario and label (patterns), each with the reason."""

STORED_AS_PRODUCED = ("fetch-stored-formats-*", "fetch-topic-settings-*")
"""Scenarios in which one answer may hold more or fewer records than Kafka's, since Kafka stored other batches.

Kafka makes one v2 batch of a produced v0 or v1 set, so that an answer begins with its first record; ours begins with
the record asked for. And the promised size (KIP-283), where an answer is cut, follows from the stored size.
"""

LARGER_ANSWERS = ("fetch-large-conversions",)
"""Scenarios in which an answer may hold more records than Kafka's, since our gzip batches are smaller there."""


def begins_as_kafkas(difference: dict[str, Any]) -> bool:
    """Return whether our answer holds all records of Kafka's, in its order, and then more."""
    theirs, ours = difference["oracle"], difference["candidate"]
    return (
        isinstance(ours, list)
        and isinstance(theirs, list)
        and len(ours) > len(theirs)
        and ours[: len(theirs)] == theirs
    )


def is_same_where_both_answer(difference: dict[str, Any]) -> bool:
    """Return whether both answers hold records, and the same ones at all offsets that both hold."""
    if not difference["label"].endswith("content") or not isinstance(difference["candidate"], list):
        return False
    theirs, ours = ({record[0]: record for record in difference[side]} for side in ("oracle", "candidate"))
    common = theirs.keys() & ours.keys()
    return bool(common) and all(theirs[offset] == ours[offset] for offset in common)


def is_accounted_for(difference: dict[str, Any]) -> bool:
    """Return whether a difference is one of those named above."""
    scenario, label = difference["scenario"], difference["label"]
    if any(fnmatch.fnmatch(scenario, pattern) for pattern in STORED_AS_PRODUCED):
        return is_same_where_both_answer(difference)
    if scenario in LARGER_ANSWERS and begins_as_kafkas(difference):
        return True
    return any(
        fnmatch.fnmatch(scenario, pattern) and fnmatch.fnmatch(label, label_pattern)
        for pattern, label_pattern in BETTER_THAN_KAFKA
    )


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
    run = subprocess.run(command, capture_output=True, text=True, timeout=3600)
    assert report.exists(), run.stdout[-2000:] + run.stderr[-2000:]
    result = json.loads(report.read_text())
    unwanted = [
        f"{difference['scenario']}: {difference['label']} at {difference['path']}"
        for difference in result["differences"]
        if not is_accounted_for(difference)
    ]
    print(run.stdout.splitlines()[-1])
    assert result["checks"] > 10_000
    assert not unwanted, "\n".join(unwanted[:40])
