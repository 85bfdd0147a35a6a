"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs."""

import logging

import pytest

from gregor.broker.api.config_alteration import ConfigChange, Operation, alter
from gregor.broker.api.handlers.configs import (
    handle_alter_configs,
    handle_describe_configs,
    handle_incremental_alter_configs,
)
from gregor.broker.metadata.state import ResourceType
from gregor.protocol.errors import BrokerError, ErrorCode
from gregor.protocol.messages import alter_configs, incremental_alter_configs
from gregor.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResult,
)
from tests.asking import Asking

SET, DELETE, APPEND, SUBTRACT = range(4)


async def described(
    asking: Asking, kind: int, name: str, *keys: str, version: int = 4, documentation: bool = False
) -> DescribeConfigsResult:
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=list(keys) or None)
        ],
        include_synonyms=True,
        include_documentation=documentation,
    )
    (result,) = (await asking.ask(handle_describe_configs, request, version)).results
    assert isinstance(result, DescribeConfigsResult)
    return result


async def entry(asking: Asking, kind: int, name: str, key: str, **options: int) -> DescribeConfigsResourceResult:
    (found,) = (await described(asking, kind, name, key, **options)).configs  # type: ignore[arg-type]
    return found


async def change(
    asking: Asking, kind: int, name: str, *changes: tuple[str, int, str | None], validate_only: bool = False
) -> tuple[ErrorCode, str | None]:
    resource = incremental_alter_configs.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            incremental_alter_configs.AlterableConfig(name=key, config_operation=operation, value=value)
            for key, operation, value in changes
        ],
    )
    request = incremental_alter_configs.IncrementalAlterConfigsRequest(
        resources=[resource], validate_only=validate_only
    )
    (response,) = (await asking.ask(handle_incremental_alter_configs, request)).responses
    return ErrorCode(response.error_code), response.error_message


async def test_describe_configs_returns_the_synonyms_of_a_topic_config(asking: Asking) -> None:
    asking.broker.services.metadata.create_topic("a", configs={"max.message.bytes": "10"})
    found = await entry(asking, ResourceType.TOPIC, "a", "max.message.bytes")
    assert (found.value, found.config_source, found.config_type, found.read_only) == ("10", 1, 3, False)
    assert [(s.name, s.value, s.source) for s in found.synonyms] == [
        ("max.message.bytes", "10", 1),
        ("message.max.bytes", "1048588", 5),
    ]


async def test_kafkas_36_keys_of_a_topic_and_one_of_ours_are_described_with_a_sentence(asking: Asking) -> None:
    asking.broker.services.metadata.create_topic("a")
    result = await described(asking, ResourceType.TOPIC, "a", documentation=True)
    assert len(result.configs) == 37
    assert all(config.documentation for config in result.configs)


async def test_describe_configs_v0_has_is_default_instead_of_the_config_source(asking: Asking) -> None:
    asking.broker.services.metadata.create_topic("a", configs={"max.message.bytes": "10"})
    assert not (await entry(asking, ResourceType.TOPIC, "a", "max.message.bytes", version=0)).is_default
    assert (await entry(asking, ResourceType.TOPIC, "a", "retention.ms", version=0)).is_default


@pytest.mark.parametrize("properties", [{"log.retention.ms": "5", "ssl.key.password": "secret", "my.plugin": "x"}])
async def test_a_broker_shows_its_keys_but_no_secrets(asking: Asking) -> None:
    result = await described(asking, ResourceType.BROKER, "1")
    configs = {config.name: config for config in result.configs}
    assert (configs["log.retention.ms"].value, configs["log.retention.ms"].config_source) == ("5", 4)
    assert (configs["num.partitions"].read_only, configs["log.retention.ms"].read_only) == (True, False)
    assert configs["inter.broker.protocol.version"].value == "3.9-IV0"
    assert configs["zookeeper.connect"].value is None
    for secret in ("ssl.key.password", "my.plugin"):
        assert (configs[secret].value, configs[secret].is_sensitive) == (None, True)
    assert "log.initial.task.delay.ms" not in configs


@pytest.mark.parametrize(
    ("kind", "name", "code", "message"),
    [
        (2, "none", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ""),
        (2, "", ErrorCode.INVALID_TOPIC_EXCEPTION, "Topic name is invalid: the empty string is not allowed"),
        (4, "7", ErrorCode.INVALID_REQUEST, "Unexpected broker id, expected 1 or empty string, but received 7"),
        (4, "x", ErrorCode.INVALID_REQUEST, "Broker id must be an integer, but it is: x"),
        (8, "", ErrorCode.INVALID_REQUEST, "Broker id must not be empty"),
        (16, "", ErrorCode.INVALID_REQUEST, "Client metrics subscription name must not be empty"),
    ],
)
async def test_describe_configs_refuses_unknown_resources(
    asking: Asking, kind: int, name: str, code: ErrorCode, message: str
) -> None:
    result = await described(asking, kind, name)
    assert (result.error_code, result.error_message, result.configs) == (code, message, [])


async def test_a_dynamic_config_of_one_broker_overrides_the_cluster_default(asking: Asking) -> None:
    asking.broker.services.metadata.create_topic("a")
    assert await change(asking, 4, "", ("log.retention.ms", SET, "10")) == (ErrorCode.NONE, None)
    assert await change(asking, 4, "1", ("log.retention.ms", SET, "20")) == (ErrorCode.NONE, None)
    of_broker = await entry(asking, ResourceType.BROKER, "1", "log.retention.ms")
    of_topic = await entry(asking, ResourceType.TOPIC, "a", "retention.ms")
    expected = [("log.retention.ms", "20", 2), ("log.retention.ms", "10", 3), ("log.retention.hours", "168", 5)]
    for found in (of_broker, of_topic):
        assert (found.value, found.config_source) == ("20", 2)
        assert [(s.name, s.value, s.source) for s in found.synonyms] == expected
    assert (await entry(asking, ResourceType.BROKER, "", "log.retention.ms")).value == "10"
    await change(asking, 4, "1", ("log.retention.ms", DELETE, None))
    await change(asking, 4, "", ("log.retention.ms", DELETE, None))
    assert asking.broker.services.partitions.get("a", 0).log.config.retention_ms == 604_800_000


async def test_append_and_subtract_change_a_list_config(asking: Asking) -> None:
    topic = asking.broker.services.metadata.create_topic("a")
    await change(asking, 2, "a", ("cleanup.policy", APPEND, "compact"))
    assert topic.configs == {"cleanup.policy": "delete,compact"}
    await change(asking, 2, "a", ("cleanup.policy", SUBTRACT, "delete"))
    assert topic.configs == {"cleanup.policy": "compact"}


@pytest.mark.parametrize(
    ("kind", "name", "changes", "code", "message"),
    [
        (2, "a", [("nope", SET, "1")], ErrorCode.INVALID_CONFIG, "Unknown topic config name: nope"),
        (
            2,
            "a",
            [("retention.ms", SET, "1"), ("retention.ms", DELETE, None)],
            ErrorCode.INVALID_REQUEST,
            "Error due to duplicate config keys",
        ),
        (
            2,
            "a",
            [("retention.ms", APPEND, "1")],
            ErrorCode.INVALID_CONFIG,
            "Can't APPEND to key retention.ms because its type is not LIST.",
        ),
        (
            2,
            "a",
            [("retention.ms", SET, None)],
            ErrorCode.INVALID_REQUEST,
            "Null value not supported for : retention.ms",
        ),
        (2, "none", [], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The topic 'none' does not exist."),
        (2, "", [], ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed."),
        (
            4,
            "1",
            [("num.partitions", SET, "2")],
            ErrorCode.INVALID_REQUEST,
            "Cannot update these configs dynamically: Set(num.partitions)",
        ),
        (4, "7", [], ErrorCode.INVALID_REQUEST, "Unexpected broker id, expected 1, but received 7"),
        (8, "1", [("no.such", SET, "INFO")], ErrorCode.INVALID_CONFIG, "Logger no.such does not exist!"),
        (16, "s", [("nope", SET, "1")], ErrorCode.INVALID_REQUEST, "Unknown client metrics configuration: nope"),
        (16, "s", [("match", SET, "x=y")], ErrorCode.INVALID_CONFIG, "Illegal client matching pattern: x=y"),
        (1, "x", [], ErrorCode.INVALID_REQUEST, "Unknown resource type 1"),
    ],
)
async def test_incremental_alter_configs_refuses_invalid_changes(
    asking: Asking, kind: int, name: str, changes: list[tuple[str, int, str | None]], code: ErrorCode, message: str
) -> None:
    asking.broker.services.metadata.create_topic("a")
    assert await change(asking, kind, name, *changes) == (code, message)


async def test_one_invalid_change_rejects_all_changes_of_the_resource(asking: Asking) -> None:
    topic = asking.broker.services.metadata.create_topic("a")
    code, _ = await change(asking, 2, "a", ("retention.ms", SET, "5"), ("segment.bytes", SET, "x"))
    assert (code, topic.configs) == (ErrorCode.INVALID_CONFIG, {})


async def test_incremental_alter_configs_with_validate_only_changes_nothing(asking: Asking) -> None:
    topic = asking.broker.services.metadata.create_topic("a")
    assert (await change(asking, 2, "a", ("retention.ms", SET, "5"), validate_only=True))[0] == ErrorCode.NONE
    assert topic.configs == {}


async def test_alter_configs_replaces_all_configs_of_the_resource(asking: Asking) -> None:
    topic = asking.broker.services.metadata.create_topic("a", configs={"retention.ms": "5", "segment.bytes": "100"})
    resource = alter_configs.AlterConfigsResource(
        resource_type=2,
        resource_name="a",
        configs=[alter_configs.AlterableConfig(name="retention.ms", value="6")],
    )
    response = await asking.ask(handle_alter_configs, alter_configs.AlterConfigsRequest(resources=[resource]))
    assert response.responses[0].error_code == ErrorCode.NONE
    assert topic.configs == {"retention.ms": "6"}


async def test_a_resource_named_twice_is_not_changed(asking: Asking) -> None:
    topic = asking.broker.services.metadata.create_topic("a", configs={"retention.ms": "5"})
    twice = [alter_configs.AlterConfigsResource(resource_type=2, resource_name="a") for _ in range(2)]
    response = await asking.ask(handle_alter_configs, alter_configs.AlterConfigsRequest(resources=twice))
    assert [result.error_code for result in response.responses] == [ErrorCode.INVALID_REQUEST] * 2
    assert topic.configs == {"retention.ms": "5"}


async def test_a_loggers_level_can_be_set_and_reset(asking: Asking) -> None:
    name = "gregor.broker.metadata.store"
    try:
        assert await change(asking, 8, "1", (name, SET, "DEBUG")) == (ErrorCode.NONE, None)
        assert (await entry(asking, ResourceType.BROKER_LOGGER, "1", name)).value == "DEBUG"
        assert await change(asking, 8, "1", (name, DELETE, None)) == (ErrorCode.NONE, None)
    finally:
        logging.getLogger(name).setLevel(logging.NOTSET)


async def test_a_client_metrics_subscription_can_be_set_and_described(asking: Asking) -> None:
    changes = (("interval.ms", SET, "5000"), ("metrics", SET, "a."))
    assert await change(asking, 16, "s", *changes) == (ErrorCode.NONE, None)
    result = await described(asking, ResourceType.CLIENT_METRICS, "s")
    assert [(config.name, config.value, config.config_source) for config in result.configs] == [
        ("interval.ms", "5000", 7),
        ("metrics", "a.", 7),
    ]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("max.connections", "0"),
        ("max.connections", "-1"),
        ("max.connection.creation.rate", "0"),
        ("max.connections.per.ip", "0"),
        ("max.connections.per.ip.overrides", "x"),
        ("max.connections.per.ip.overrides", "127.0.0.1:"),
    ],
)
async def test_dynamic_changes_that_would_lock_out_all_clients_are_refused(
    asking: Asking, key: str, value: str
) -> None:
    """Kafka 3.9.1 refuses each of these changes with error 42, since no client could connect to undo the change."""
    config = asking.broker.services.config
    before = config.text(key)
    change = ConfigChange(key, Operation.SET, value)
    with pytest.raises(BrokerError) as refused:
        alter(asking.broker.services, ResourceType.BROKER, "1", [change], validate_only=False)
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    # A value that an older broker has stored has no effect, so that a restart repairs the configuration.
    if key != "max.connections.per.ip":
        config.override({key: value}, {key: value})
    assert config.text(key) == before
