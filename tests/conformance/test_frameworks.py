"""Spring Boot, Quarkus and Micronaut from Maven Central, with their usual settings: an application of each.

Each application has its topic created by its framework, if the framework does so, sends a record and receives it, and
prints what the framework reports about its brokers. The first run builds them, which takes some minutes.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from uuid import uuid4

import pytest

from gregor.testing import Broker
from tests.conformance.maven_builds import JAVA, SOURCES, built
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.peer


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(runs_in="thread") as broker:
        yield broker


def said(*command: str, environment: dict[str, str] | None = None) -> str:
    """Run an application to its end; return its output."""
    run = subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE_S, env={**os.environ, **(environment or {})}
    )
    assert run.returncode == 0, run.stdout[-4000:] + run.stderr[-4000:]
    return run.stdout


def spring(*settings: str, environment: dict[str, str] | None = None) -> str:
    target = built("spring")
    usual = (
        "--spring.kafka.consumer.auto-offset-reset=earliest",
        "--spring.kafka.consumer.isolation-level=read_committed",
        "--spring.kafka.producer.transaction-id-prefix=tx-",
        "--spring.kafka.admin.fail-fast=true",
    )
    class_path = f"{target}/classes:{target}/lib/*"
    return said(*JAVA, "-cp", class_path, "app.Main", *usual, *settings, environment=environment)


def test_a_spring_boot_application_sends_and_receives(broker: Broker) -> None:
    """KafkaAdmin creates a topic, KafkaTemplate sends in a transaction, and a @KafkaListener receives."""
    output = spring(f"--topic=t-{uuid4().hex}", f"--spring.kafka.bootstrap-servers={broker.bootstrap_servers}")
    assert "partitions 3\n" in output
    assert "received from spring\n" in output


def test_a_quarkus_application_sends_and_receives_and_is_ready(broker: Broker) -> None:
    """Two channels of SmallRye Reactive Messaging, and the readiness checks of both and of the Kafka client."""
    jar = built("quarkus") / "quarkus-app" / "quarkus-run.jar"
    settings = (f"-Dtopic=t-{uuid4().hex}", f"-Dkafka.bootstrap.servers={broker.bootstrap_servers}")
    output = said(*JAVA, *settings, "-jar", str(jar))
    assert "received from quarkus\n" in output
    (ready,) = [line for line in output.splitlines() if line.startswith("ready ")]
    assert '"name":"Kafka connection health check","status":"UP"' in ready
    assert '"in":"[OK]","out":"[OK]"' in ready


def test_a_micronaut_application_sends_and_receives_and_is_healthy(broker: Broker) -> None:
    """A NewTopic bean, a @KafkaClient, a @KafkaListener, and the health indicator, which reads a broker's settings."""
    target = built("micronaut")
    settings = (
        f"-Dtopic=t-{uuid4().hex}",
        f"-Dkafka.bootstrap.servers={broker.bootstrap_servers}",
        "-Dkafka.health.enabled=true",
    )
    output = said(*JAVA, *settings, "-cp", f"{target}/classes:{target}/lib/*", "app.Main")
    assert "received from micronaut\n" in output
    assert "health UP {brokerId=1, nodes=1," in output


@pytest.mark.parametrize("client", ["micronaut", "spring"], ids=["AdminClient 3.9", "AdminClient 4"])
def test_admin_client_calls_of_akhq_and_kafbat_are_answered(broker: Broker, client: str) -> None:
    """No registry has these two consoles: their calls of the AdminClient are repeated, with the clients built above."""
    topic, group = f"t-{uuid4().hex}", f"g-{uuid4().hex}"
    server = ("--bootstrap-server", broker.bootstrap_servers)
    for words, text in (
        (("produce", "--topic", topic), "one\ntwo\n"),
        (("consume", "--topic", topic, "--group", group, "--from-beginning", "--max-messages", "2"), ""),
    ):
        command = [sys.executable, "-m", "gregor.command_line", *words, *server]
        subprocess.run(command, input=text, text=True, check=True, timeout=PATIENCE_S, capture_output=True)
    class_path = f"{built(client)}/lib/*"
    program = str(SOURCES / "ConsoleRequests.java")
    output = said(*JAVA, "-cp", class_path, program, broker.bootstrap_servers, topic, group)
    lines = [line[2:] for line in output.splitlines() if line.startswith("> ")]
    assert lines == [
        "cluster: 22 1 7",
        "delete.topic.enable: true",
        "metadata.version: true",
        "acls: true",
        "log directories: true",
        "quorum: 1",
        "topics: true",
        "described: 1",
        "synonyms and documentation: true",
        "offsets: 0 2",
        "producers: 1",
        "groups: true",
        "members: 0",
        "committed: 2",
        "purged: 1",
        "quotas: {producer_byte_rate=1000000.0}",
    ]
