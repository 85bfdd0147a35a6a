"""Client configuration: Kafka's names and defaults, and the messages for mistakes."""

import json
import re
from pathlib import Path

import pytest

from gregor.client.config import AdminConfig, ClientConfig, ConsumerConfig, ProducerConfig
from gregor.client.errors import ConfigError

KAFKA_CONFIGS = Path(__file__).resolve().parents[3] / "shared" / "protocol" / "configs-3.9.json"

OUR_OWN = {
    # Kafka 4's.
    "metadata_recovery_rebootstrap_trigger_ms",
    "fetch_as_stored",
    "fetch_batch_tags",
    "explicit",
    "security",
    "ssl_context",
    "sasl_oauthbearer_token_function",
    "api_version",
    "broker_addresses",
    "max_answer_bytes",
    "metadata_evict_ms",
    "partitioner_class",
}
DIFFERENT = {"partition_assignment_strategy", "retries"}


@pytest.mark.skipif(not KAFKA_CONFIGS.exists(), reason="Kafka's table of keys is not beside the repository")
@pytest.mark.parametrize(
    ("kind", "config_class"), [("producer", ProducerConfig), ("consumer", ConsumerConfig), ("admin", AdminConfig)]
)
def test_defaults_are_those_of_kafka(kind: str, config_class: type[ClientConfig]) -> None:
    table = json.loads(KAFKA_CONFIGS.read_text())[kind]
    defaults = vars(config_class())
    for name, ours in defaults.items():
        if name in OUR_OWN | DIFFERENT:
            continue
        key = next((key for key in table if key.replace(".", "_") == name), None)
        assert key is not None, f"Kafka has no {name}"
        theirs = table[key]["default"]
        if name == "receive_buffer_bytes" and kind == "admin":
            continue
        assert str(ours or "").lower() == str(theirs or "").lower(), name


def test_config_names_with_dots_and_text_values_are_accepted() -> None:
    config = ProducerConfig.from_properties({"linger.ms": "5", "enable.idempotence": "false", "acks": 1})
    assert (config.linger_ms, config.enable_idempotence, config.required_acks) == (5, False, 1)


def test_metadata_max_idle_ms_is_the_shipped_name_of_metadata_evict_ms() -> None:
    assert ProducerConfig.from_properties({"metadata.max.idle.ms": "6000"}).metadata_evict_ms == 6000


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"linger_mss": 1}, "did you mean 'linger_ms'"),
        ({"linger_ms": "soon"}, "linger_ms must be of type int"),
        ({"acks": "2"}, "acks must be one of"),
        ({"compression_type": "brotli"}, "compression_type"),
        ({"metadata_evict_ms": 100}, "at least 5000"),
        ({"enable_idempotence": True, "acks": "1"}, "acks=all"),
        ({"enable_idempotence": True, "max_in_flight_requests_per_connection": 6}, "at most 5"),
        ({"transactional_id": "t", "retries": 0}, "retries"),
        ({"delivery_timeout_ms": 10, "linger_ms": 5}, "delivery_timeout_ms"),
        ({"linger_ms": 0.5}, "linger_ms must be of type int"),
        ({"linger_ms": float("inf")}, "linger_ms must be of type int"),
        ({"linger_ms": True}, "linger_ms must be of type int"),
        ({"transactional_id": 5}, "transactional_id must be of type str"),
        ({"transactional_id": "t" * 40_000}, "transactional_id must be at most 32767 bytes"),
        ({"client_id": "\ud800"}, "client_id cannot be written"),
        ({"client_id": None}, "client_id must be of type str"),
        ({"api_version": "1.1"}, "api_version must be one of 0.8"),
        ({"transaction_timeout_ms": 0}, "at least 1"),
    ],
)
def test_config_errors_name_the_invalid_option(properties: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ProducerConfig.from_properties(properties)


@pytest.mark.skipif(not KAFKA_CONFIGS.exists(), reason="Kafka's table of keys is not beside the repository")
@pytest.mark.parametrize(
    ("kind", "config_class"), [("producer", ProducerConfig), ("consumer", ConsumerConfig), ("admin", AdminConfig)]
)
def test_numbers_have_the_limits_of_kafka(kind: str, config_class: type[ClientConfig]) -> None:
    table = json.loads(KAFKA_CONFIGS.read_text())[kind]
    numbers = {key: entry for key, entry in table.items() if entry["type"] in ("INT", "LONG")}
    checked = 0
    for key, entry in numbers.items():
        name = {"metadata.max.idle.ms": "metadata_evict_ms"}.get(key, key.replace(".", "_"))
        if name not in vars(config_class()):
            continue
        least = re.match(r"\[(-?\d+)", entry.get("valid", ""))
        if least is not None:
            with pytest.raises(ConfigError, match=f"{name} must be at least {least[1]}, not"):
                config_class.from_properties({key: int(least[1]) - 1})
            checked += 1
        most = 2**31 - 1 if entry["type"] == "INT" else 2**63 - 1
        with pytest.raises(ConfigError, match=f"{name} must be at most {most}, not"):
            config_class.from_properties({key: most + 1})
    assert checked >= 8


def test_default_idempotence_is_disabled_by_conflicting_configs() -> None:
    assert ProducerConfig.from_properties({}).is_idempotent
    assert not ProducerConfig.from_properties({"acks": "1"}).is_idempotent
    assert not ProducerConfig.from_properties({"retries": 0}).is_idempotent


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("heartbeat_interval_ms", 0),
        ("heartbeat_interval_ms", -1),
        ("heartbeat_interval_ms", 45_000),
        ("session_timeout_ms", 0),
        ("max_partition_fetch_bytes", -1),
        ("group_instance_id", ""),
    ],
)
def test_a_consumer_refuses_values_that_would_end_its_background_tasks(key: str, value: object) -> None:
    with pytest.raises(ConfigError, match=key):
        ConsumerConfig.from_properties({key: value})


def test_the_heartbeats_of_the_consumer_protocol_are_those_of_the_coordinator() -> None:
    ConsumerConfig.from_properties({"group_protocol": "consumer", "heartbeat_interval_ms": 60_000})


@pytest.mark.parametrize(("key", "value"), [("partitioner_class", "org.example.Partitioner"), ("transactional_id", "")])
def test_a_producer_refuses_values_that_would_fail_later(key: str, value: object) -> None:
    with pytest.raises(ConfigError, match=key):
        ProducerConfig.from_properties({key: value})
