"""Changes of dynamic configurations: their validation and storage (KIP-226, KIP-339, KIP-412, KIP-714).

All changes of a resource are validated before the first one is applied.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import NamedTuple

from ...protocol.errors import BrokerError, ErrorCode
from ...security.errors import SecuritySettingError
from ..config import ConfigError
from ..config.broker_config import (
    check_connections_per_ip,
    check_faults_allowed,
    refused_reconfiguration,
    validate_broker_change,
)
from ..config.fault_keys import InvalidFaultError
from ..config.keys import ConfigType
from ..config.table import SUPPORTED_KEYS
from ..config.topic_keys import TOPIC_KEYS
from ..metadata.new_topics import validate_properties
from ..metadata.state import ResourceType
from ..metadata.topic_names import validate_topic_name
from ..monitoring.loggers import LEVELS, ROOT, logger_levels, reset_level, set_level
from ..monitoring.subscriptions import validate_subscription
from .services import Services


class Operation(IntEnum):
    """An operation on a configuration key (Kafka `AlterConfigOp.OpType`)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigChange(NamedTuple):
    """A change of one key; DELETE has no value."""

    name: str
    operation: Operation
    value: str | None


def alter(services: Services, kind: int, name: str, changes: Sequence[ConfigChange], validate_only: bool) -> None:
    """Change keys of one resource. Raises BrokerError with Kafka's code and message."""
    if max(Counter(change.name for change in changes).values(), default=0) > 1:
        raise _invalid("Error due to duplicate config keys")
    nulls = [change.name for change in changes if change.value is None and change.operation is not Operation.DELETE]
    if nulls:
        raise _invalid(f"Null value not supported for : {','.join(nulls)}")
    if kind == ResourceType.BROKER_LOGGER:
        _alter_loggers(services, name, changes, validate_only)
        return
    resource = _checked_resource(services, kind, name)
    configs = _changed(services, resource, name, changes)
    _store(services, resource, name, configs, {change.name for change in changes}, validate_only)


def replace(
    services: Services, kind: int, name: str, wanted: Iterable[tuple[str, str | None]], validate_only: bool
) -> None:
    """Replace the whole configuration of one resource by ``wanted``.

    Raises BrokerError with Kafka's code and message.
    """
    pairs = list(wanted)
    nulls = [key for key, value in pairs if value is None]
    if nulls:
        raise _invalid(f"Null value not supported for : {','.join(nulls)}")
    configs = {key: value or "" for key, value in pairs}
    resource = _checked_resource(services, kind, name)
    _store(services, resource, name, configs, set(configs), validate_only)


def _checked_resource(services: Services, kind: int, name: str) -> ResourceType:
    """Return the type of a resource that exists or may be created. Raises BrokerError for any other."""
    if kind == ResourceType.TOPIC:
        if not name:
            raise _invalid("Default topic resources are not allowed.")
        validate_topic_name(name)
        if name not in services.metadata.topics:
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
        return ResourceType.TOPIC
    if kind == ResourceType.BROKER:
        if name:
            _check_node(services, name, "Unexpected broker id, expected {}, but received {}")
        return ResourceType.BROKER
    if kind == ResourceType.CLIENT_METRICS:
        if not name:
            raise _invalid("Subscription name can't be empty")
        return ResourceType.CLIENT_METRICS
    raise _invalid(f"Unknown resource type {kind}")


def _check_node(services: Services, name: str, message: str) -> None:
    node_id = parsed_node_id(name)
    if node_id is None:
        raise _invalid(f"Node id must be an integer, but it is: {name}")
    if node_id != services.metadata.node_id and (
        services.metadata.is_alone or services.metadata.broker(node_id) is None
    ):
        raise _invalid(message.format(services.metadata.node_id, name))


def parsed_node_id(name: str) -> int | None:
    """Return the number that Java's `Integer.parseInt` reads from a broker's name, or None if it fails."""
    if re.fullmatch("[+-]?[0-9]{1,20}", name) is None or not -(2**31) <= int(name) < 2**31:
        return None
    return int(name)


def _changed(services: Services, kind: ResourceType, name: str, changes: Sequence[ConfigChange]) -> dict[str, str]:
    configs = dict(services.metadata.configs_of(kind, name))
    for change in changes:
        if change.operation is Operation.DELETE:
            configs.pop(change.name, None)
        elif change.operation is Operation.SET:
            configs[change.name] = change.value or ""
        else:
            elements = _list_elements(services, kind, change, configs)
            named = [element.strip() for element in (change.value or "").split(",")]
            if change.operation is Operation.APPEND:
                elements += [element for element in named if element not in elements]
            else:
                elements = [element for element in elements if element not in named]
            configs[change.name] = ",".join(elements)
    return configs


def _list_elements(services: Services, kind: ResourceType, change: ConfigChange, configs: dict[str, str]) -> list[str]:
    """Return the current elements of a list key, or the default's. Raises BrokerError if the key is not a list."""
    row = TOPIC_KEYS.get(change.name) if kind is ResourceType.TOPIC else None
    key = row.key if row else SUPPORTED_KEYS.get(change.name) if kind is ResourceType.BROKER else None
    if kind is not ResourceType.CLIENT_METRICS and (key is None or key.type is not ConfigType.LIST):
        what = change.operation.name
        raise BrokerError(ErrorCode.INVALID_CONFIG, f"Can't {what} to key {change.name} because its type is not LIST.")
    default = services.config.topic_default(change.name) if row else services.config.text(change.name)
    current = configs.get(change.name, default) or ""
    return [element.strip() for element in current.split(",")] if current else []


def _store(
    services: Services, kind: ResourceType, name: str, configs: dict[str, str], touched: set[str], validate_only: bool
) -> None:
    if kind is ResourceType.TOPIC:
        validate_properties(configs)
    elif kind is ResourceType.CLIENT_METRICS:
        validate_subscription(configs)
    else:
        _check_broker(services, name, configs, touched)
    if not validate_only:
        again = touched if kind is ResourceType.BROKER else ()
        services.metadata.set_configs(kind, name, configs, again)


def _check_broker(services: Services, name: str, configs: dict[str, str], touched: set[str]) -> None:
    """Check a broker's changed keys, and on the broker itself also the stores that they name. Raises BrokerError."""
    for key in sorted(touched & set(configs)):
        try:
            validate_broker_change(key, configs[key], per_broker=bool(name))
            check_faults_allowed(services.config, key)
        except InvalidFaultError as error:
            raise BrokerError(ErrorCode.INVALID_CONFIG, str(error)) from None
        except ConfigError as error:
            raise _invalid(str(error)) from None
    _check_connections_per_ip(services, configs)
    if parsed_node_id(name) == services.metadata.node_id:
        _check_stores(services, configs, touched)


def check_own_stores(services: Services, wanted: Iterable[tuple[str, str | None]]) -> None:
    """Check that this broker's listeners can use the stores that a whole new configuration names.

    Raises BrokerError with Kafka's code and message.
    """
    configs = {key: value or "" for key, value in wanted}
    _check_stores(services, configs, set(configs))


def check_own_changed_stores(services: Services, changes: Sequence[ConfigChange]) -> None:
    """Check as `check_own_stores` does, for changes of single keys."""
    configs = _changed(services, ResourceType.BROKER, str(services.metadata.node_id), changes)
    _check_stores(services, configs, {change.name for change in changes})


def _check_stores(services: Services, configs: dict[str, str], touched: set[str]) -> None:
    removed = services.metadata.configs_of(ResourceType.BROKER, str(services.metadata.node_id)).keys() - configs.keys()
    try:
        services.guards.check_change(touched | removed, configs)
    except SecuritySettingError as error:
        raise _invalid(refused_reconfiguration(str(error))) from None


def _check_connections_per_ip(services: Services, configs: dict[str, str]) -> None:
    most, overrides = "max.connections.per.ip", "max.connections.per.ip.overrides"
    try:
        check_connections_per_ip(
            configs.get(most, ""), configs.get(overrides, services.config.max_connections_per_ip_overrides)
        )
    except ConfigError as error:
        raise _invalid(str(error)) from None


def _alter_loggers(services: Services, name: str, changes: Sequence[ConfigChange], validate_only: bool) -> None:
    _check_node(services, name, "Unexpected node id. Expected {}, but received {}")
    known = logger_levels()
    for change in changes:
        if change.operation in (Operation.APPEND, Operation.SUBTRACT):
            raise _invalid(f"{change.operation.name} operation is not allowed for the BROKER_LOGGER resource")
        if change.name not in known:
            raise BrokerError(ErrorCode.INVALID_CONFIG, f"Logger {change.name} does not exist!")
        if change.operation is Operation.DELETE and change.name == ROOT:
            raise _invalid("Removing the log level of the root logger is not allowed")
        if change.operation is Operation.SET and change.value not in LEVELS:
            raise BrokerError(
                ErrorCode.INVALID_CONFIG,
                f"Cannot set the log level of {change.name} to {change.value} as it is not a supported log level. "
                f"Valid log levels are {', '.join(sorted(LEVELS))}",
            )
    if validate_only:
        return
    for change in changes:
        if change.operation is Operation.DELETE:
            reset_level(change.name)
        else:
            set_level(change.name, change.value or "")


def _invalid(reason: str) -> BrokerError:
    return BrokerError(ErrorCode.INVALID_REQUEST, reason)
