"""Stock testcontainers modules from the package registries start the image, of which only the name is given."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conformance.test_frameworks import spring
from tests.docker.engine import BUILD_PATIENCE_S, IMAGE, Engine
from tests.docker.test_image import round_trip_on_host
from tests.free_ports import free_address
from tests.waiting import wait_until

pytestmark = pytest.mark.peer

MODULES = Path(__file__).with_name("modules")
AS_CP_KAFKA = "confluentinc/cp-kafka:7.6.0"
"""Some modules choose their way of starting by the image's name and version."""
PYTHON_MODULE = ("testcontainers==4.15.0", "packaging", "confluent-kafka")
NODE_MODULE = ("@testcontainers/kafka@11.14.0", "kafkajs@2.2.4")
"""The last version for the Node.js 20 of this machine: 12 needs Node.js 22."""
GO_MODULE = ("github.com/testcontainers/testcontainers-go/modules/kafka@v0.40.0", "github.com/twmb/franz-go@v1.22.2")


def run(engine: Engine, folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder, with the engine in its environment."""
    # The machine has no registry with the images of the modules' reaper and of their look-up of the host's address.
    own = {"TESTCONTAINERS_RYUK_DISABLED": "true", "TESTCONTAINERS_HOST_OVERRIDE": "localhost"}
    return subprocess.run(
        command,
        cwd=folder,
        env=engine.environment | own,
        capture_output=True,
        text=True,
        timeout=BUILD_PATIENCE_S,
        check=False,
    )


def prepare(engine: Engine, folder: Path, *command: str) -> None:
    """Run a command that installs something, or skip the test with the reason."""
    if shutil.which(command[0]) is None:
        pytest.skip(f"there is no {command[0]} here")
    installed = run(engine, folder, *command)
    if installed.returncode != 0:
        pytest.skip(f"the module cannot be installed here: {(installed.stderr or installed.stdout).strip()[-300:]}")


def trips(engine: Engine, folder: Path, *command: str) -> list[str]:
    """Run a program of round trips; return the names of the successful ones."""
    done = run(engine, folder, *command)
    assert done.returncode == 0, done.stderr
    return [line.removesuffix(": a round trip") for line in done.stdout.splitlines()]


def test_each_container_class_of_the_java_module_starts_the_image(engine: Engine, tmp_path: Path) -> None:
    """Also through a listener that `withListener` adds for the other containers of a network."""
    shutil.copytree(MODULES / "java", tmp_path, dirs_exist_ok=True)
    prepare(engine, tmp_path, "mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=lib")
    engine.docker("tag", IMAGE, "gregor:7.6.0")
    assert trips(engine, tmp_path, "java", "-cp", "lib/*", "RoundTrips.java", "gregor:7.6.0") == [
        "kafka.KafkaContainer",
        "kafka.ConfluentKafkaContainer",
        "containers.KafkaContainer with ZooKeeper",
        "containers.KafkaContainer with KRaft",
        "a listener of a network",
    ]


def test_the_python_module_starts_the_image_with_zookeeper_and_kraft(engine: Engine, tmp_path: Path) -> None:
    """It sources bash-config in a plain sh, edits and runs configure, formats the storage, and waits for a log line."""
    python = str(tmp_path / "venv" / "bin" / "python")
    prepare(engine, tmp_path, sys.executable, "-m", "venv", str(tmp_path / "venv"))
    prepare(engine, tmp_path, python, "-m", "pip", "install", "--quiet", *PYTHON_MODULE)
    engine.docker("tag", IMAGE, AS_CP_KAFKA)
    assert trips(engine, tmp_path, python, str(MODULES / "python_module.py"), AS_CP_KAFKA) == ["zookeeper", "kraft"]


def test_the_go_module_starts_the_image(engine: Engine, tmp_path: Path) -> None:
    """It appends `kafka-storage format` to configure, empties ensure, and runs configure and launch."""
    shutil.copy2(MODULES / "go" / "main.go", tmp_path)
    prepare(engine, tmp_path, "go", "mod", "init", "roundtrips")
    prepare(engine, tmp_path, "go", "get", *GO_MODULE)
    prepare(engine, tmp_path, "go", "mod", "tidy")
    prepare(engine, tmp_path, "go", "build", "-o", "trips", ".")
    assert trips(engine, tmp_path, "./trips", IMAGE) == ["kafka.Run", "kafka.Run with a cluster id"]


def test_the_node_module_starts_the_image_with_zookeeper_and_kraft(engine: Engine, tmp_path: Path) -> None:
    shutil.copy2(MODULES / "node" / "round_trips.mjs", tmp_path)
    prepare(engine, tmp_path, "npm", "install", "--no-audit", "--no-fund", "--prefix", str(tmp_path), *NODE_MODULE)
    engine.docker("tag", IMAGE, "gregor:7.6.0")
    assert trips(engine, tmp_path, "node", "round_trips.mjs", "gregor:7.6.0") == ["ZooKeeper", "KRaft"]


def test_spring_boot_starts_the_image_by_a_service_connection(engine: Engine) -> None:
    """A `@ServiceConnection` on a KafkaContainer: Spring Boot starts the image and connects the application to it."""
    own = {"TESTCONTAINERS_RYUK_DISABLED": "true", "TESTCONTAINERS_HOST_OVERRIDE": "localhost"}
    environment = {"DOCKER_HOST": engine.environment["DOCKER_HOST"], **own}
    settings = ("--spring.profiles.active=container", f"--image={IMAGE}", "--topic=orders")
    assert "received from spring\n" in spring(*settings, environment=environment)


def test_the_image_starts_with_the_variables_of_quarkus_dev_services(engine: Engine, tmp_path: Path) -> None:
    """What `KafkaContainer` of quarkus-kafka-client-deployment 3.38 does, its default: not a run of Quarkus itself.

    Micronaut Test Resources uses the Java classes of the test above as they are.
    """
    script, port = "/tmp/testcontainers_start.sh", free_address()[1]
    variables = {
        "CLUSTER_ID": "4L6g3nShT-eMCtK--X86sw",
        "KAFKA_LISTENERS": "PLAINTEXT://0.0.0.0:9092,BROKER://0.0.0.0:9093,CONTROLLER://0.0.0.0:9094",
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "BROKER:PLAINTEXT,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "KAFKA_INTER_BROKER_LISTENER_NAME": "BROKER",
        "KAFKA_PROCESS_ROLES": "broker,controller",
        "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
        "KAFKA_NODE_ID": "1",
        "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@localhost:9094",
        "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
        "KAFKA_TRANSACTION_STATE_LOG_MIN_ISR": "1",
        "KAFKA_LOG_FLUSH_INTERVAL_MESSAGES": "9223372036854775807",
        "KAFKA_GROUP_COORDINATOR_REBALANCE_PROTOCOLS": "classic,consumer,share",
        "KAFKA_UNSTABLE_API_VERSIONS_ENABLE": "true",
        "KAFKA_SHARE_COORDINATOR_STATE_TOPIC_REPLICATION_FACTOR": "1",
    }
    waiting = ("sh", "-c", f"while [ ! -x {script} ]; do sleep 0.1; done; {script}")
    name = engine.run("--publish", f"127.0.0.1:{port}:9092", command=waiting, variables=variables)
    starter = tmp_path / "start.sh"
    advertised = f"PLAINTEXT://localhost:{port},BROKER://{engine.inspect(name)['Config']['Hostname']}:9093"
    starter.write_text(f"#!/bin/bash\nexport KAFKA_ADVERTISED_LISTENERS={advertised}\n/etc/kafka/docker/run\n")
    starter.chmod(0o777)
    engine.docker("cp", str(starter), f"{name}:{script}")
    ready = "Transitioning from RECOVERY to RUNNING"
    wait_until(lambda: ready in engine.docker("logs", name) or not engine.is_running(name))
    assert engine.is_running(name), engine.docker("logs", name)
    round_trip_on_host(port)
