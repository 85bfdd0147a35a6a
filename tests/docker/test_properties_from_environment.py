"""The image's environment rules, as the apache/kafka and bitnami images document them."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from gregor.broker.config import BrokerConfig
from gregor.broker.config.table import SUPPORTED_KEYS
from gregor.storage.disk.properties import parse_properties

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
        ("KAFKA_CREATE_TOPICS", "gregor.create.topics"),
        ("KAFKA_LOG4J_ROOT_LOGLEVEL", "gregor.log.level"),
        ("GREGOR_METRICS_LISTENER", "gregor.metrics.listener"),
        ("GREGOR_BOOTSTRAP_SERVER", None),
        ("KAFKA_HEAP_OPTS", None),
        ("PATH", None),
    ],
)
def test_environment_variables_map_to_configuration_keys(variable: str, key: str | None) -> None:
    assert script.key_of(variable) == key


def test_listeners_follow_the_advertised_ones_on_all_addresses() -> None:
    found = script.settings({"KAFKA_ADVERTISED_LISTENERS": "HOST://localhost:9092,INNER://broker:19092"})
    assert found["listeners"] == "HOST://0.0.0.0:9092,INNER://0.0.0.0:19092"


@pytest.mark.parametrize(
    ("connect", "listeners"),
    [
        ("localhost:2181", "zookeeper://0.0.0.0:2181"),
        ("127.0.0.1:32181/kafka", "zookeeper://0.0.0.0:32181"),
        ("zookeeper:2181", None),
    ],
)
def test_a_zookeeper_of_the_same_container_is_a_listener_of_the_broker(connect: str, listeners: str | None) -> None:
    found = script.settings({"KAFKA_ZOOKEEPER_CONNECT": connect})
    assert found.get("gregor.zookeeper.listeners") == listeners


def written(folder: Path, **environment: str) -> dict[str, str]:
    """Return the settings that the script writes, the last line of each."""
    run = subprocess.run([sys.executable, SCRIPT, folder], env=environment, capture_output=True, text=True, check=True)
    return dict(line.split("=", 1) for line in run.stdout.splitlines() if line)


def test_every_configuration_key_that_the_script_sets_exists() -> None:
    for key in {
        "gregor.zookeeper.listeners",
        *script.OWN_KEYS.values(),
        *script.MAPPED_BY_DEFAULT,
        *script.IMAGE_DEFAULTS,
    }:
        assert key in SUPPORTED_KEYS


@pytest.mark.parametrize(("told", "level"), [("WARN", "WARN"), ("debug, stdout", "DEBUG"), ("OFF", "FATAL")])
def test_levels_of_log4j_are_levels_of_the_broker(told: str, level: str) -> None:
    found = script.settings({"KAFKA_LOG4J_ROOT_LOGLEVEL": told})
    assert BrokerConfig(found).gregor_log_level == level


def test_localhost_is_advertised_to_the_host_unless_listeners_are_set(tmp_path: Path) -> None:
    key = "gregor.gateway.advertised.listeners"
    assert written(tmp_path)[key] == "PLAINTEXT://localhost:9092"
    assert written(tmp_path, GREGOR_GATEWAY_ADVERTISED_LISTENERS="PLAINTEXT://a:1")[key] == "PLAINTEXT://a:1"
    assert key not in written(tmp_path, KAFKA_LISTENERS="HOST://:9092")
    assert key not in written(tmp_path, KAFKA_ADVERTISED_LISTENERS="HOST://a:9092")
    (tmp_path / "server.properties").write_text("listeners=HOST://:9092\n")
    assert key not in written(tmp_path)


def test_the_environment_wins_over_the_mounted_file(tmp_path: Path) -> None:
    (tmp_path / "server.properties").write_text("num.partitions=3\nlog.dirs=/mounted\n")
    (tmp_path / "site.properties").write_text("num.partitions=4\nmessage.max.bytes=9\n")
    (tmp_path / "log4j.properties").write_text("log4j.rootLogger=INFO, stdout\n")
    last = written(tmp_path, KAFKA_NUM_PARTITIONS="7")
    assert last["message.max.bytes"] == "9"
    assert "log4j.rootLogger" not in last
    assert last["num.partitions"] == "7"
    assert last["log.dirs"] == "/mounted"
    assert last["listeners"] == "PLAINTEXT://0.0.0.0:9092"


def test_files_of_secrets_are_read_as_in_kafkas_images(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("store-secret\n")
    (tmp_path / "key").write_text("key secret = \\x")
    environment = {
        "KAFKA_SSL_KEYSTORE_FILENAME": "broker.p12",
        "KAFKA_SSL_KEYSTORE_CREDENTIALS": "store",
        "KAFKA_SSL_KEY_CREDENTIALS": "key",
        "KAFKA_SSL_TRUSTSTORE_FILENAME": "trust.p12",
        "KAFKA_SSL_TRUSTSTORE_CREDENTIALS": "store",
        "KAFKA_OPTS": "-Xmx1g '-Djava.security.auth.login.config=/etc/kafka/secrets/jaas file.conf' -Dx=y",
    }
    found = script.secret_settings(environment, tmp_path)
    assert found == {
        "ssl.keystore.location": str(tmp_path / "broker.p12"),
        "ssl.keystore.password": "store-secret",
        "ssl.key.password": "key secret = \\x",
        "ssl.truststore.location": str(tmp_path / "trust.p12"),
        "ssl.truststore.password": "store-secret",
        "gregor.sasl.jaas.file": "/etc/kafka/secrets/jaas file.conf",
    }
    assert script.settings(environment) == {}
    config = BrokerConfig(parse_properties("\n".join(script.property_line(*item) for item in found.items())))
    assert config.ssl_key_password is not None
    assert config.ssl_key_password.value == "key secret = \\x"
    assert config.notices() == ([], [])
    with pytest.raises(SystemExit, match=r"KAFKA_SSL_KEY_CREDENTIALS names .*absent, which cannot be read: No such"):
        script.secret_settings({"KAFKA_SSL_KEY_CREDENTIALS": "absent"}, tmp_path)
    with pytest.raises(SystemExit, match="KAFKA_OPTS has a quote that does not end"):
        script.secret_settings({"KAFKA_OPTS": "-Dplanted='"}, tmp_path)
