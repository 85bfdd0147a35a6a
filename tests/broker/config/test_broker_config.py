"""The broker's configuration: sources of values, refused values, messages for the operator."""

from pathlib import Path

import pytest

from gregor.broker.config import BrokerConfig, ConfigError
from gregor.broker.config.broker_config import validate_broker_change
from gregor.broker.config.listeners import parse_endpoints


def test_a_configuration_without_keys_has_defaults() -> None:
    config = BrokerConfig()
    assert config.node_id == 1
    assert config.listeners == ("PLAINTEXT://localhost:9092",)
    assert config.log_dirs == ("./gregor-data",)
    assert config.auto_create_topics_enable is True


def test_values_are_parsed_from_text_by_kafkas_key_names() -> None:
    config = BrokerConfig({"num.partitions": " 3 ", "log.dirs": "/a, /b", "delete.topic.enable": "FALSE"})
    assert config.num_partitions == 3
    assert config.log_dirs == ("/a", "/b")
    assert config.delete_topic_enable is False


def test_values_can_be_set_by_attribute() -> None:
    assert BrokerConfig(num_partitions=3, log_dirs=("/a",)).text("log.dirs") == "/a"


def test_overrides_take_precedence_over_the_properties_file(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text("num.partitions=2\nfetch.max.bytes=2048\n")
    config = BrokerConfig.load(path, ["num.partitions=5"])
    assert (config.num_partitions, config.fetch_max_bytes) == (5, 2048)


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"num.partitions": "x"}, "Invalid value x for configuration num.partitions: Not a number of type INT"),
        ({"num.partitions": "0"}, "Invalid value 0 for configuration num.partitions: Value must be at least 1"),
        ({"num.partitions": "1_000"}, "Not a number of type INT"),
        ({"message.max.bytes": "9999999999"}, "Not a number of type INT"),
        ({"log.cleaner.min.cleanable.ratio": "2"}, "Value must be no more than 1"),
        ({"log.cleaner.min.cleanable.ratio": "nan"}, "Not a number of type DOUBLE"),
        ({"compression.gzip.level": "0"}, "Value must be between 1 and 9 or equal to -1"),
        ({"compression.type": "brotli"}, "String must be one of: uncompressed, zstd, lz4, snappy, gzip, producer"),
        ({"log.cleanup.policy": "compact,burn"}, "String must be one of: compact, delete"),
        ({"log.preallocate": "maybe"}, "Expected value to be either true or false"),
        ({"log.message.format.version": "9.9.9.9"}, "Version 9.9.9.9 is not a valid version"),
        ({"node.id": "1", "broker.id": "2"}, "node.id=1 and broker.id=2 differ: remove broker.id"),
        ({"listeners": "localhost:9092"}, "'localhost:9092' is not of the form NAME://host:port"),
        ({"listeners": "OTHER://:1"}, "listener OTHER has no security protocol"),
        ({"listeners": "C://:1", "controller.listener.names": "C"}, "listeners names no listener for clients"),
        ({"advertised.listeners": "OUTSIDE://h:1"}, "advertised.listeners names OUTSIDE, which listeners does not"),
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:1"}, "cannot use the nonroutable meta-address 0.0.0.0"),
    ],
)
def test_invalid_values_are_refused_with_a_reason_of_one_line(properties: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        BrokerConfig(properties)
    assert message in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_an_override_without_a_value_is_refused() -> None:
    with pytest.raises(ConfigError, match="write it as key=value"):
        BrokerConfig.load(None, ["num.partitions"])


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        BrokerConfig.load(tmp_path / "none.properties")


def test_broker_id_sets_the_node_id() -> None:
    assert BrokerConfig({"broker.id": "7"}).node_id == 7


def test_listeners_of_controllers_need_no_protocol() -> None:
    config = BrokerConfig(
        {"listeners": "PLAINTEXT://:9092,CONTROLLER://:9093", "controller.listener.names": "CONTROLLER"}
    )
    assert config.listeners == ("PLAINTEXT://:9092", "CONTROLLER://:9093")


def test_empty_items_of_listeners_are_skipped() -> None:
    config = BrokerConfig({"listeners": "PLAINTEXT://:9092,", "advertised.listeners": ",PLAINTEXT://h:1, ,"})
    (advertised,) = parse_endpoints("advertised.listeners", config.advertised_listeners)
    assert str(advertised) == "PLAINTEXT://h:1"


def test_keys_of_kafka_without_effect_are_logged_in_one_line() -> None:
    info, warnings = BrokerConfig({"zookeeper.connect": "z:2181", "num.io.threads": "4"}).notices()
    assert info == ["accepted without effect: num.io.threads, zookeeper.connect"]
    assert warnings == []


def test_an_unknown_key_warns_with_the_nearest_known_name() -> None:
    _, warnings = BrokerConfig({"num.partition": "4", "quite.another": "1"}).notices()
    assert warnings == [
        "unknown configuration num.partition is ignored; did you mean num.partitions?",
        "unknown configuration quite.another is ignored",
    ]


def test_the_key_with_the_finest_time_unit_gives_a_topics_default() -> None:
    assert BrokerConfig().topic_default("retention.ms") == "604800000"
    assert BrokerConfig({"log.retention.hours": "1"}).topic_default("retention.ms") == "3600000"
    assert BrokerConfig({"log.retention.hours": "-1"}).topic_default("retention.ms") == "-1"
    both = BrokerConfig({"log.retention.hours": "1", "log.retention.minutes": "2"})
    assert both.topic_default("retention.ms") == "120000"
    assert BrokerConfig({"log.roll.hours": "2"}).log_config().segment_ms == 7_200_000
    assert BrokerConfig({"log.flush.scheduler.interval.ms": "50"}).log_config().flush_ms == 50


def test_a_topics_own_configuration_prevails() -> None:
    config = BrokerConfig({"log.segment.bytes": "1000"})
    assert config.log_config().segment_bytes == 1000
    assert config.log_config({"segment.bytes": "500"}).segment_bytes == 500


def test_dynamic_values_override_the_properties_file_and_can_be_deleted() -> None:
    config = BrokerConfig({"message.max.bytes": "100"})
    config.override({"message.max.bytes": "200"}, {})
    assert config.message_max_bytes == 200
    config.override({"message.max.bytes": "200"}, {"message.max.bytes": "300"})
    assert config.message_max_bytes == 300
    assert config.topic_default("max.message.bytes") == "300"
    config.override({}, {})
    assert config.message_max_bytes == 100


def test_invalid_or_static_dynamic_values_are_ignored() -> None:
    config = BrokerConfig()
    config.override({"log.retention.ms": "x", "message.max.bytes": "5"}, {"listeners": "SSL://:1"})
    assert config.listeners == ("PLAINTEXT://localhost:9092",)
    assert config.log_retention_ms is None
    assert config.message_max_bytes == 5


@pytest.mark.parametrize(
    ("name", "value", "per_broker", "message"),
    [
        ("num.partitions", "3", True, "Cannot update these configs dynamically: Set(num.partitions)"),
        (
            "ssl.keystore.location",
            "/k",
            True,
            "only per-listener using the listener prefix: Set(ssl.keystore.location)",
        ),
        ("listener.name.a.ssl.keystore.location", "/k", False, "broker id must be specified: Set(listener.name.a.ssl."),
        ("listener.name.a.ssl.principal.mapping.rules", "DEFAULT", True, "Cannot update these configs dynamically"),
        ("listeners", "PLAINTEXT://:1", True, "Cannot update these configs dynamically: Set(listeners)"),
        ("log.retention.ms", "abc", False, "Invalid value abc for configuration log.retention.ms"),
    ],
)
def test_dynamic_changes_of_static_or_invalid_keys_are_refused(
    name: str, value: str, per_broker: bool, message: str
) -> None:
    with pytest.raises(ConfigError) as refusal:
        validate_broker_change(name, value, per_broker=per_broker)
    assert message in str(refusal.value)


def test_keys_of_plug_ins_may_change() -> None:
    validate_broker_change("my.plugin.key", "x", per_broker=False)


def test_a_listener_may_have_limits_of_its_own() -> None:
    config = BrokerConfig(
        {
            "listeners": "A://:1,B://:2",
            "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT",
            "listener.name.a.max.connections": "7",
        }
    )
    assert config.listener_limit("max.connections", "A") == 7
    assert config.listener_limit("max.connections", "B") == config.listener_limit("max.connection.creation.rate", "A")
    config.override({}, {"listener.name.b.max.connections": "9"})
    assert config.listener_limit("max.connections", "B") == 9
    with pytest.raises(ConfigError, match="Not a number"):
        BrokerConfig({"listener.name.plaintext.max.connections": "many"})


def test_zookeeper_listeners_together_with_an_authorizer_give_a_warning() -> None:
    authorizer = "kafka.security.authorizer.AclAuthorizer"
    keys = {"gregor.zookeeper.listeners": "zookeeper://:2181", "authorizer.class.name": authorizer}
    _, (warning,) = BrokerConfig(keys).notices()
    assert "everybody who reaches these listeners sees the names of all topics" in warning
    for name in keys:
        assert BrokerConfig({name: keys[name]}).notices()[1] == []
