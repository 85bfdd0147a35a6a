"""Clients that Apache Kafka 4 refuses: they fail with Kafka 4, and work with a gateway in front of it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.conformance.conftest import running_kafka
from tests.free_ports import FIRST
from tests.gateway.kafka_4 import gateway_before

KAFKA_4 = "4.3.0"
OLD = "java-0.8.2,java-0.9,java-0.10.0,kcat-fallback-0.8.2,kcat-fallback-0.9,kafka-python-1.4.7-0.8.2,pykafka"
NEW = "confluent-kafka,franz-go,java-4.4,kafkajs"
PORTS = f"{FIRST - 90}-{FIRST - 85}"

pytestmark = pytest.mark.peer


@pytest.fixture(scope="module")
def kafka(shared: Path) -> Iterator[str]:
    """Provide one Kafka 4 for all tests: the topics to read are filled once, and those to write are new in each run."""
    with running_kafka(shared, release=KAFKA_4) as bootstrap:
        yield bootstrap


def zoo(shared: Path, bootstrap: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run clients of the zoo to their end."""
    program = shared / "clients" / "zoo"
    if not program.exists():
        pytest.skip("no ../shared/clients")
    return subprocess.run([program, bootstrap, *options], capture_output=True, text=True, timeout=3600, env=os.environ)


@pytest.mark.parametrize("settings", [{}, {"gregor.gateway.broker.ports": PORTS}], ids=["one address", "ports"])
def test_old_and_new_clients_pass_through_a_gateway(shared: Path, kafka: str, settings: Mapping[str, str]) -> None:
    """All modes of each client, in front of the newest Kafka 4."""
    with gateway_before(kafka, settings) as gateway:
        run = zoo(shared, f"127.0.0.1:{gateway.listening[0].port}", "--only", f"{OLD},{NEW}")
    print(run.stdout[-4000:])
    assert "| FAIL |" not in run.stdout
    assert run.returncode == 0, run.stderr[-2000:]


def test_an_old_client_fails_at_kafka_4_itself(shared: Path, kafka: str) -> None:
    """This failure is the reason for the gateway."""
    run = zoo(shared, kafka, "--only", "kafka-python-1.4.7-0.8.2", "--modes", "produce")
    assert "| FAIL |" in run.stdout
