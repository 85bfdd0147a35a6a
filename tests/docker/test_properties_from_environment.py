"""The image's environment rules, as the apache/kafka and bitnami images document them."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "docker" / "properties_from_environment.py"
spec = importlib.util.spec_from_file_location("properties_from_environment", SCRIPT)
assert spec is not None
assert spec.loader is not None
script = importlib.util.module_from_spec(spec)
spec.loader.exec_module(script)


@pytest.mark.parametrize(
    ("variable", "key"),
    [
        ("KAFKA_LOG_RETENTION_MS", "log.retention.ms"),
        ("KAFKA_CFG_NUM_PARTITIONS", "num.partitions"),
        ("KAFKA_LISTENER_NAME_A__B_SSL_TYPE", "listener.name.a_b.ssl.type"),
        ("KAFKA_LISTENER_NAME_A___B_PORT", "listener.name.a-b.port"),
        ("CLUSTER_ID", "gregor.cluster.id"),
        ("KAFKA_HEAP_OPTS", None),
        ("PATH", None),
    ],
)
def test_variable_names_a_key(variable: str, key: str | None) -> None:
    assert script.key_of(variable) == key


def test_listeners_follow_the_advertised_ones_on_all_addresses() -> None:
    found = script.settings({"KAFKA_ADVERTISED_LISTENERS": "HOST://localhost:9092,INNER://broker:19092"})
    assert found["listeners"] == "HOST://0.0.0.0:9092,INNER://0.0.0.0:19092"


def test_the_environment_wins_over_the_mounted_file(tmp_path: Path) -> None:
    mounted = tmp_path / "server.properties"
    mounted.write_text("num.partitions=3\nlog.dirs=/mounted\n")
    run = subprocess.run(
        [sys.executable, SCRIPT, mounted], env={"KAFKA_NUM_PARTITIONS": "7"}, capture_output=True, text=True, check=True
    )
    last = dict(line.split("=", 1) for line in run.stdout.splitlines() if line)
    assert last["num.partitions"] == "7"
    assert last["log.dirs"] == "/mounted"
    assert last["listeners"] == "PLAINTEXT://0.0.0.0:9092"
