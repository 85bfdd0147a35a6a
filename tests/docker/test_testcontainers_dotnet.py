"""The steps of Testcontainers.Kafka 4.12.0 for .NET with the image.

No .NET SDK can be had on the machines of these tests, so the steps of the module's classes `KafkaBuilder`,
`ApacheConfiguration` and `ConfluentConfiguration` are repeated with docker commands: this is no run of the module.
"""

from __future__ import annotations

import re
import socket
from pathlib import Path

import pytest

from tests.docker.engine import Engine
from tests.docker.test_image import round_trip_on_host
from tests.waiting import wait_until

pytestmark = pytest.mark.peer

STARTUP_SCRIPT = "/testcontainers.sh"
VARIABLES = {
    "KAFKA_LISTENERS": "PLAINTEXT://:9092,BROKER://:9093,CONTROLLER://:9094",
    "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "KAFKA_INTER_BROKER_LISTENER_NAME": "BROKER",
    "KAFKA_BROKER_ID": "1",
    "KAFKA_NODE_ID": "1",
    "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@localhost:9094",
    "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
    "KAFKA_OFFSETS_TOPIC_NUM_PARTITIONS": "1",
    "KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR": "1",
    "KAFKA_TRANSACTION_STATE_LOG_MIN_ISR": "1",
    "KAFKA_LOG_FLUSH_INTERVAL_MESSAGES": "9223372036854775807",
    "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
    "CLUSTER_ID": "4L6g3nShT-eMCtK--X86sw",
}
KRAFT = {"KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER", "KAFKA_PROCESS_ROLES": "broker,controller"}
ZOOKEEPER = {"KAFKA_ZOOKEEPER_CONNECT": "localhost:2181"}
START_OF_ZOOKEEPER = """\
echo '' > /etc/confluent/docker/ensure
echo 'clientPort=2181' > zookeeper.properties
echo 'dataDir=/var/lib/zookeeper/data' >> zookeeper.properties
echo 'dataLogDir=/var/lib/zookeeper/log' >> zookeeper.properties
zookeeper-server-start zookeeper.properties &
"""


@pytest.mark.parametrize(
    ("variables", "start_of_zookeeper", "run", "ready"),
    [
        (KRAFT, "", "/etc/kafka/docker/run", r".*Transitioning from RECOVERY to RUNNING.*"),
        (KRAFT, "", "/etc/confluent/docker/run", r".*Transitioning from RECOVERY to RUNNING.*"),
        (ZOOKEEPER, START_OF_ZOOKEEPER, "/etc/confluent/docker/run", r"\[KafkaServer id=\d+\] started"),
    ],
    ids=["Apache with KRaft", "Confluent with KRaft", "Confluent with ZooKeeper"],
)
def test_the_image_starts_with_the_steps_of_the_dotnet_module(
    engine: Engine, tmp_path: Path, variables: dict[str, str], start_of_zookeeper: str, run: str, ready: str
) -> None:
    waiting = f"while [ ! -f {STARTUP_SCRIPT} ]; do sleep 0.1; done; {STARTUP_SCRIPT}"
    published = [9092, 9093, 2181] if start_of_zookeeper else [9092, 9093]
    ports = [word for port in published for word in ("--publish", f"127.0.0.1::{port}")]
    name = engine.run("--entrypoint", "/bin/sh", *ports, command=("-c", waiting), variables=VARIABLES | variables)

    def port_of(port: int) -> int:
        return int(engine.docker("port", name, str(port)).rpartition(":")[2])

    inside = engine.inspect(name)["NetworkSettings"]["IPAddress"]
    script = tmp_path / "testcontainers.sh"
    # The module writes a comma at the end if there are no further listeners.
    script.write_text(
        f"#!/bin/bash\n{start_of_zookeeper}"
        f"export KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://127.0.0.1:{port_of(9092)},BROKER://{inside}:9093,\nexec {run}\n"
    )
    script.chmod(0o755)
    engine.docker("cp", str(script), f"{name}:{STARTUP_SCRIPT}")
    wait_until(lambda: re.search(ready, engine.docker("logs", name)) is not None or not engine.is_running(name))
    assert engine.is_running(name), engine.docker("logs", name)
    round_trip_on_host(port_of(9092))
    if start_of_zookeeper:
        with socket.create_connection(("127.0.0.1", port_of(2181)), 10):
            pass
