"""The compose files of this repository, started with docker-compose: healthy services, and passed records."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pytest

from tests.docker.engine import BUILD_PATIENCE_S, ROOT, Engine
from tests.docker.test_image import gregor, round_trip_on_host
from tests.free_ports import free_address
from tests.waiting import wait_until

pytestmark = pytest.mark.peer

KCAT = """
FROM debian:bookworm-slim
RUN apt-get update && apt-get install --yes --no-install-recommends kafkacat
ENTRYPOINT ["kcat"]
"""
"""A stand-in for edenhill/kcat, whose image cannot be pulled here: the same program from Debian."""
KAFKA_4 = r"""
FROM debian:bookworm-slim
RUN apt-get update && apt-get install --yes --no-install-recommends openjdk-17-jre-headless
COPY lib /opt/kafka/lib
RUN mkdir /opt/kafka/bin && cd /opt/kafka/bin && printf '%s\n' '#!/bin/bash' \
    'exec java -cp "/opt/kafka/lib/*" org.apache.kafka.tools.ConsoleProducer "$@"' > kafka-console-producer.sh \
    && chmod +x kafka-console-producer.sh
COPY run /run-kafka
CMD ["/run-kafka"]
"""
RUN_KAFKA = r"""#!/bin/bash
# As the image's own script: KAFKA_NODE_ID is node.id.
env | sed -nE 's/^KAFKA_([A-Z_]+)=(.*)/\1 \2/p' | while read -r name value; do
    name=${name,,}; echo "${name//_/.}=$value"
done > /tmp/server.properties
java -cp "/opt/kafka/lib/*" kafka.tools.StorageTool format -t 5L6g3nShT-eMCtK--X86sw -c /tmp/server.properties
exec java -Xmx400m -cp "/opt/kafka/lib/*" kafka.Kafka /tmp/server.properties
"""
"""A stand-in for apache/kafka:4.1.0: the broker and the console producer of Kafka 4.3.0's jars from Maven Central."""
PEER_VERSION = "4.3.0"
PEER_HOME = Path.home() / ".cache" / f"peer-kafka-{PEER_VERSION}"


def stand_in(engine: Engine, name: str, dockerfile: str, folder: Path) -> None:
    """Build an image under a name that the compose file has, unless it is there; skip the test if that fails."""
    content = dockerfile.encode() + b"".join(path.read_bytes() for path in folder.glob("run"))
    label = f"stand-in={hashlib.sha256(content).hexdigest()}"
    find = ("image", "ls", "--quiet", "--filter", f"label={label}", name)
    if engine.docker(*find):
        return
    (folder / "Dockerfile").write_text(dockerfile)
    said = engine.docker(
        "build", "--quiet", "--label", label, "--tag", name, str(folder), check=False, timeout_s=BUILD_PATIENCE_S
    )
    if not engine.docker(*find):
        pytest.skip(f"no stand-in for {name} can be built here: {said[-300:]}")


def stand_ins(engine: Engine, folder: Path) -> None:
    """Build the images of the clients and of Kafka 4; skip the test if that fails."""
    (folder / "kcat").mkdir()
    stand_in(engine, "edenhill/kcat:1.7.1", KCAT, folder / "kcat")
    if not (PEER_HOME / "lib" / ".done").exists():
        pytest.skip(f"no jars of Kafka {PEER_VERSION} in {PEER_HOME}: ../shared/peer/kafka39 fetches them")
    shutil.copytree(PEER_HOME / "lib", folder / "kafka" / "lib")
    (folder / "kafka" / "run").write_text(RUN_KAFKA)
    (folder / "kafka" / "run").chmod(0o755)
    stand_in(engine, "apache/kafka:4.1.0", KAFKA_4, folder / "kafka")


@contextmanager
def composed(engine: Engine, file: str, variables: Mapping[str, str]) -> Iterator[Callable[..., str]]:
    """Start the services of a compose file as a project of its own; yield a function for compose commands."""
    if shutil.which("docker-compose") is None:
        pytest.skip("there is no docker-compose here")
    words = ["docker-compose", "--project-name", f"gregor-{uuid4().hex[:8]}", "--file", str(ROOT / "docker" / file)]

    def compose(*command: str) -> str:
        done = subprocess.run(
            [*words, *command],
            env={**engine.environment, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=BUILD_PATIENCE_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout

    try:
        compose("up", "--detach")
        yield compose
    finally:
        compose("down", "--volumes", "--timeout", "5")


def test_a_composed_broker_passes_records_from_kafka_4_to_a_0_8_consumer(engine: Engine, tmp_path: Path) -> None:
    """A record goes from Kafka 4's console producer to a consumer that speaks as Kafka 0.8.2 did, and to the host."""
    stand_ins(engine, tmp_path)
    port = free_address()[1]
    with composed(engine, "compose.yaml", {"GREGOR_PORT": str(port)}) as compose:
        wait_until(lambda: " 20" in compose("logs", "--no-color", "consumer-of-0-8"))
        broker = compose("ps", "--quiet", "broker").strip()
        assert engine.inspect(broker)["State"]["Health"]["Status"] == "healthy"
        server = ("--bootstrap-server", f"localhost:{port}")
        read = gregor("consume", "--topic", "clock", "--from-beginning", "--max-messages", "1", *server)
        assert read.startswith("20")


def test_a_composed_secured_broker_serves_tls_and_sasl_clients(engine: Engine, tmp_path: Path) -> None:
    """A producer in a container has a certificate; a client on the host logs in as the file's first lines say."""
    port = free_address()[1]
    with composed(engine, "compose-security.yaml", {"GREGOR_PORT": str(port)}) as compose:
        broker = compose("ps", "--quiet", "broker").strip()
        engine.wait_until_healthy(broker)
        certificates = tmp_path / "gregor-certs"
        engine.docker("cp", f"{broker}:/etc/kafka/secrets", str(certificates))
        for path in (*certificates.glob("*.properties"), certificates / "librdkafka.conf"):
            path.write_text(path.read_text().replace("/etc/kafka/secrets", str(certificates)))
        login = ("--bootstrap-server", f"localhost:{port}", "--command-config", str(certificates / "client.properties"))
        read = gregor("consume", "--topic", "clock", "--from-beginning", "--max-messages", "1", *login)
        assert read.startswith("20")
        logs = compose("logs", "--no-color")
        assert "Failed authentication" not in logs, "the healthcheck is no failed login"
        for secret in re.findall(r'password="([^"]+)"', (certificates / "admin.properties").read_text()):
            assert secret not in logs


def test_a_composed_gateway_passes_records_from_kafka_4_to_a_0_8_consumer(engine: Engine, tmp_path: Path) -> None:
    """A record goes through Kafka 4 and the gateway to a consumer that Kafka 4 refuses, and to the host."""
    stand_ins(engine, tmp_path)
    port = free_address()[1]
    with composed(engine, "compose-gateway.yaml", {"GREGOR_PORT": str(port)}) as compose:
        wait_until(lambda: " 20" in compose("logs", "--no-color", "consumer-of-0-8"))
        gateway = compose("ps", "--quiet", "gateway").strip()
        assert engine.inspect(gateway)["State"]["Health"]["Status"] == "healthy"
        server = ("--bootstrap-server", f"localhost:{port}")
        read = gregor("consume", "--topic", "clock", "--from-beginning", "--max-messages", "1", *server)
        assert read.startswith("20")
        assert "consumer-of-2015" in gregor("clients", "--refused", *server)


def test_a_composed_cluster_of_three_brokers_is_healthy_and_serves_clients(engine: Engine) -> None:
    ports = [free_address()[1] for _ in range(3)]
    variables = {f"GREGOR_PORT_{number}": str(port) for number, port in enumerate(ports, 1)}
    with composed(engine, "compose-cluster.yaml", variables) as compose:
        for container in compose("ps", "--quiet").split():
            engine.wait_until_healthy(container)
        server = ("--bootstrap-server", f"localhost:{ports[0]}")
        gregor("topics", "--create", "--topic", "t", "--partitions", "3", "--replication-factor", "3", *server)
        described = gregor("topics", "--describe", "--topic", "t", *server)
        assert {line.partition("Leader: ")[2][:1] for line in described.splitlines()[1:]} == {"1", "2", "3"}
        for port in ports:
            round_trip_on_host(port)
