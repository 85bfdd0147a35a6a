"""The image in real containers: advertised addresses, variables, users, health, read-only root."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest

from gregor.command_line import COMMANDS
from tests.broker.authentication.secured_broker import PLAIN_MODULE
from tests.certificates import as_pem, authority, broker_identity, written
from tests.docker.engine import IMAGE, Engine
from tests.free_ports import free_address
from tests.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.peer

MOST_BYTES_ABOVE_THE_BASE = 40_000_000


def gregor(*words: str, text: str = "") -> str:
    """Run a command of this checkout on the host."""
    done = subprocess.run(
        [sys.executable, "-m", "gregor.command_line", *words],
        input=text,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def round_trip_on_host(port: int) -> None:
    topic, server = f"t-{uuid4().hex}", ("--bootstrap-server", f"localhost:{port}")
    gregor("produce", "--topic", topic, *server, text="from the host\n")
    read = gregor("consume", "--topic", topic, "--from-beginning", "--max-messages", "1", *server)
    assert read == "from the host\n"


def round_trip_in_container(engine: Engine, network: str, address: str) -> None:
    script = f"""
        echo inside | kafka-console-producer.sh --topic inside --bootstrap-server {address} &&
        kafka-console-consumer --topic inside --from-beginning --max-messages 1 --bootstrap-server {address}"""
    read = engine.docker("run", "--rm", "--network", network, IMAGE, "bash", "-c", script)
    assert "inside" in read.splitlines(), read


@pytest.fixture
def network(engine: Engine) -> str:
    return engine.new_network()


def test_one_listener_serves_the_host_on_a_published_port_and_other_containers(engine: Engine, network: str) -> None:
    port = free_address()[1]
    name = engine.serving(
        "--network", network, "--publish", f"127.0.0.1:{port}:9092",
        GREGOR_GATEWAY_ADVERTISED_LISTENERS=f"PLAINTEXT://localhost:{port}",
    )  # fmt: skip
    round_trip_on_host(port)
    round_trip_in_container(engine, network, f"{name}:9092")


def test_advertised_listeners_mean_what_they_mean_in_kafka(engine: Engine, network: str) -> None:
    port = free_address()[1]
    engine.serving(
        "--network", network, "--network-alias", "kafka", "--publish", f"127.0.0.1:{port}:19092",
        KAFKA_ADVERTISED_LISTENERS=f"INNER://kafka:9092,HOST://localhost:{port}",
        KAFKA_LISTENERS="INNER://:9092,HOST://:19092",
        KAFKA_LISTENER_SECURITY_PROTOCOL_MAP="INNER:PLAINTEXT,HOST:PLAINTEXT",
    )  # fmt: skip
    round_trip_on_host(port)
    round_trip_in_container(engine, network, "kafka:9092")


def test_variables_make_topics_a_cluster_id_and_a_log_level(engine: Engine) -> None:
    name = engine.serving(
        CLUSTER_ID="5L6g3nShT-eMCtK--X86sw",
        KAFKA_CREATE_TOPICS="orders:3:1,users:1:1:compact",
        KAFKA_LOG4J_ROOT_LOGLEVEL="WARN",
    )
    described = engine.docker("exec", name, "kafka-topics", "--describe")
    assert "Topic: orders\t" in described
    assert "PartitionCount: 3" in described
    assert "cleanup.policy=compact" in described
    properties = engine.docker("exec", name, "cat", "/var/lib/kafka/data/meta.properties")
    assert "cluster.id=5L6g3nShT-eMCtK--X86sw" in properties
    assert engine.docker("logs", name) == ""


@pytest.mark.parametrize(
    "options",
    [("--user", "1000770000:0"), ("--read-only",), ("--read-only", "--user", "1000770000:0", "--tmpfs", "/tmp")],
    ids=["arbitrary user", "read-only root", "both"],
)
def test_the_image_runs_as_any_user_of_group_0_and_with_a_read_only_root(
    engine: Engine, options: tuple[str, ...]
) -> None:
    name = engine.serving(*options)
    script = (
        "date | kafka-console-producer --topic t && kafka-console-consumer --topic t --from-beginning --max-messages 1"
    )
    assert "20" in engine.docker("exec", name, "bash", "-c", script)


def test_the_healthcheck_finds_the_listener(engine: Engine) -> None:
    engine.serving(
        KAFKA_LISTENERS="CONTROLLER://:9093,CLIENTS://:29092",
        KAFKA_LISTENER_SECURITY_PROTOCOL_MAP="CONTROLLER:PLAINTEXT,CLIENTS:PLAINTEXT",
        KAFKA_CONTROLLER_LISTENER_NAMES="CONTROLLER",
    )


def test_sigterm_stops_the_container_cleanly_and_mounted_properties_are_merged(engine: Engine) -> None:
    folder = "/mnt/shared/config"
    script = f"echo num.partitions=7 > {folder}/site.properties && exec /etc/kafka/docker/run"
    name = engine.run("--health-interval", "1s", command=("bash", "-c", script))
    engine.wait_until_healthy(name)
    engine.docker("exec", name, "kafka-topics", "--create", "--topic", "t")
    assert "PartitionCount: 7" in engine.docker("exec", name, "kafka-topics", "--describe", "--topic", "t")
    engine.docker("stop", "--time", str(int(PATIENCE_S)), name)
    assert engine.inspect(name)["State"]["ExitCode"] == 0
    assert "SIGTERM: stopping" in engine.docker("logs", name)


def test_the_layers_above_the_base_image_are_small(engine: Engine) -> None:
    sizes = [
        int(engine.docker("image", "inspect", "--format", "{{.Size}}", image)) for image in (IMAGE, "python:3.12-slim")
    ]
    assert sizes[0] - sizes[1] < MOST_BYTES_ABOVE_THE_BASE


def test_the_image_has_every_module_that_its_sources_import(engine: Engine) -> None:
    """docker/trim removes modules of packages: none that a command imports, be it late."""
    script = ("--volume", f"{Path(__file__).with_name('named_modules.py')}:/named_modules.py:ro")
    engine.docker("run", "--rm", *script, IMAGE, "/opt/gregor/bin/python", "/named_modules.py")


def test_each_command_runs_in_the_image(engine: Engine) -> None:
    helps = "; ".join(f"gregor {command} --help" for command in COMMANDS)
    shown = engine.docker("run", "--rm", IMAGE, "bash", "-ec", helps)
    assert [command for command in COMMANDS if f"usage: gregor {command} " not in shown] == []


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_records_of_each_codec_pass_through_the_image(engine: Engine, codec: str) -> None:
    script = f"""
        seq 1000 2000 | gregor produce --topic t --compression-codec {codec}
        gregor consume --topic t --from-beginning --max-messages 1001"""
    assert "1500\n" in engine.docker("exec", engine.serving(), "bash", "-ec", script)


def test_stores_credentials_and_logins_are_taken_as_kafkas_images_take_them(engine: Engine, tmp_path: Path) -> None:
    """Files in /etc/kafka/secrets, their passwords in further files, and users in the JAAS file of KAFKA_OPTS."""
    port = free_address()[1]
    secrets = tmp_path / "secrets"
    secrets.mkdir(mode=0o755)
    written(secrets, "broker.p12", broker_identity().pkcs12("store-planted"))
    written(secrets, "store-credentials", "store-planted\n")
    users = f'{PLAIN_MODULE} required username="admin" password="jaas-planted" user_admin="jaas-planted";'
    written(secrets, "jaas.conf", f"KafkaServer {{\n  {users}\n}};\n")
    name = engine.serving(
        "--volume", f"{secrets}:/etc/kafka/secrets:ro", "--publish", f"127.0.0.1:{port}:9093",
        KAFKA_ADVERTISED_LISTENERS=f"SASL_SSL://localhost:{port}",
        KAFKA_LISTENERS="SASL_SSL://0.0.0.0:9093",
        KAFKA_SSL_KEYSTORE_FILENAME="broker.p12",
        KAFKA_SSL_KEYSTORE_CREDENTIALS="store-credentials",
        KAFKA_SSL_KEY_CREDENTIALS="store-credentials",
        KAFKA_SASL_ENABLED_MECHANISMS="PLAIN,SCRAM-SHA-512",
        KAFKA_OPTS="-Xmx1g -Djava.security.auth.login.config=/etc/kafka/secrets/jaas.conf",
    )  # fmt: skip
    client = tmp_path / "client.properties"
    ca = written(tmp_path, "ca.pem", as_pem(authority().certificate))
    client.write_text(
        "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\n"
        f'sasl.jaas.config={PLAIN_MODULE} required username="admin" password="jaas-planted";\n'
        f"ssl.truststore.type=PEM\nssl.truststore.location={ca}\n"
    )
    login = ("--bootstrap-server", f"localhost:{port}", "--command-config", str(client))
    gregor("topics", "--create", "--topic", "t", *login)
    assert "t" in gregor("topics", "--list", *login).splitlines()
    shown = engine.docker("logs", name) + engine.docker("exec", name, "ps", "aux", check=False)
    assert "planted" not in shown
    assert "Failed authentication" not in shown, "the healthcheck is no failed login"
    mode = engine.docker("exec", name, "stat", "-c", "%a", "/etc/kafka/kafka.properties")
    assert mode == "600", "the settings hold the password of the store"


def test_users_may_be_added_before_the_first_start(engine: Engine) -> None:
    """As testcontainers' module for Node starts Kafka with SCRAM."""
    script = """
        printf '%s\\n' listeners=SASL_PLAINTEXT://:9092 sasl.enabled.mechanisms=SCRAM-SHA-256 \
            log.dirs=/var/lib/kafka/data > /tmp/server.properties
        kafka-storage format --ignore-formatted -t=5L6g3nShT-eMCtK--X86sw -c /tmp/server.properties \
            --add-scram 'SCRAM-SHA-256=[name=app,password=app-planted]'
        exec gregor serve /tmp/server.properties"""
    name = engine.run("--health-interval", "1s", command=("bash", "-ec", script))
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    client = "\\n".join(
        (
            "security.protocol=SASL_PLAINTEXT",
            "sasl.mechanism=SCRAM-SHA-256",
            f'sasl.jaas.config={module} required username="app" password="app-planted";',
        )
    )
    tool = (
        f"printf '{client}' > /tmp/c && kafka-topics --list --bootstrap-server localhost:9092 --command-config /tmp/c"
    )
    wait_until(lambda: "Kafka Server started" in engine.docker("logs", name))
    engine.docker("exec", name, "bash", "-c", tool)
    assert "planted" not in engine.docker("logs", name)
