"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs, for every kind of resource."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol, TypedDict, TypeVar

from ....protocol.errors import BrokerError, ErrorCode
from ....protocol.messages import alter_configs, incremental_alter_configs
from ....protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from ...metadata.config_entries import (
    ConfigEntry,
    ConfigSource,
    describe_broker,
    describe_cluster_default,
    describe_topic,
)
from ...metadata.state import ResourceType
from ...metadata.topic_names import validate_topic_name
from ...monitoring.loggers import logger_levels
from ..config_alteration import ConfigChange, Operation, alter, parsed_node_id, replace
from ..contract import RequestContext

UNDESCRIBABLE = (
    "This most likely occurs because of a request being malformed by the client library or the message was sent to an "
    "incompatible broker. See the broker logs for more details."
)
TWICE = "Each resource must appear at most once."


async def handle_describe_configs(request: DescribeConfigsRequest, context: RequestContext) -> DescribeConfigsResponse:
    """Describe the configuration of each resource, with synonyms and documentation if requested."""
    return DescribeConfigsResponse(results=[_described(resource, request, context) for resource in request.resources])


def _described(
    resource: DescribeConfigsResource, request: DescribeConfigsRequest, context: RequestContext
) -> DescribeConfigsResult:
    result = DescribeConfigsResult(resource_type=resource.resource_type, resource_name=resource.resource_name)
    try:
        entries = _entries(resource, context)
    except BrokerError as error:
        result.error_code, result.error_message = error.code, error.message or ""
        return result
    # Kafka takes an empty list of keys to mean all keys (KAFKA-9338).
    wanted = set(resource.configuration_keys or ())
    result.configs = [_shown(entry, request, context) for entry in entries if not wanted or entry.name in wanted]
    return result


def _entries(resource: DescribeConfigsResource, context: RequestContext) -> Iterable[ConfigEntry]:
    describers: dict[int, Callable[[str, RequestContext], Iterable[ConfigEntry]]] = {
        ResourceType.TOPIC: _topic_entries,
        ResourceType.BROKER: _broker_entries,
        ResourceType.BROKER_LOGGER: _logger_entries,
        ResourceType.CLIENT_METRICS: _client_metrics_entries,
    }
    describer = describers.get(resource.resource_type)
    if describer is None:
        raise BrokerError(ErrorCode.INVALID_REQUEST, UNDESCRIBABLE)
    return describer(resource.resource_name, context)


def _topic_entries(name: str, context: RequestContext) -> Iterable[ConfigEntry]:
    validate_topic_name(name)
    return describe_topic(context.services.config, context.services.metadata.topic(name).configs)


def _broker_entries(name: str, context: RequestContext) -> Iterable[ConfigEntry]:
    if not name:
        return describe_cluster_default(context.services.config)
    _check_node(name, context, "expected {} or empty string,")
    return describe_broker(context.services.config)


def _logger_entries(name: str, context: RequestContext) -> Iterable[ConfigEntry]:
    if not name:
        raise BrokerError(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
    _check_node(name, context, "expected {}")
    source = ConfigSource.DYNAMIC_BROKER_LOGGER
    return (ConfigEntry(logger, level, source) for logger, level in logger_levels().items())


def _client_metrics_entries(name: str, context: RequestContext) -> Iterable[ConfigEntry]:
    if not name:
        raise BrokerError(ErrorCode.INVALID_REQUEST, "Client metrics subscription name must not be empty")
    configs = context.services.metadata.configs_of(ResourceType.CLIENT_METRICS, name)
    return (ConfigEntry(key, value, ConfigSource.CLIENT_METRICS) for key, value in configs.items())


def _check_node(name: str, context: RequestContext, expected: str) -> None:
    """Raise BrokerError INVALID_REQUEST unless ``name`` is this broker's number."""
    node_id = context.services.metadata.node_id
    named = parsed_node_id(name)
    if named is None:
        raise BrokerError(ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}")
    if named != node_id:
        raise BrokerError(
            ErrorCode.INVALID_REQUEST, f"Unexpected broker id, {expected.format(node_id)} but received {name}"
        )


def _shown(
    entry: ConfigEntry, request: DescribeConfigsRequest, context: RequestContext
) -> DescribeConfigsResourceResult:
    synonyms = entry.synonyms if request.include_synonyms else ()
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        is_default=context.api_version == 0 and entry.source is ConfigSource.DEFAULT,
        config_source=entry.source,
        is_sensitive=entry.sensitive,
        synonyms=[DescribeConfigsSynonym(name=s.name, value=s.value, source=s.source) for s in synonyms],
        config_type=entry.type,
        documentation=entry.documentation if request.include_documentation else None,
    )


def changes_metadata(
    request: alter_configs.AlterConfigsRequest | incremental_alter_configs.IncrementalAlterConfigsRequest,
) -> bool:
    """Return whether a request changes more than loggers, which belong to each broker alone."""
    return any(resource.resource_type != ResourceType.BROKER_LOGGER for resource in request.resources)


async def handle_alter_configs(
    request: alter_configs.AlterConfigsRequest, context: RequestContext
) -> alter_configs.AlterConfigsResponse:
    """Replace the whole configuration of each resource."""

    def apply(resource: alter_configs.AlterConfigsResource) -> None:
        wanted = [(config.name, config.value) for config in resource.configs]
        replace(context.services, resource.resource_type, resource.resource_name, wanted, request.validate_only)

    responses = [
        alter_configs.AlterConfigsResourceResponse(**outcome) for outcome in _outcomes(request.resources, apply)
    ]
    return alter_configs.AlterConfigsResponse(responses=responses)


async def handle_incremental_alter_configs(
    request: incremental_alter_configs.IncrementalAlterConfigsRequest, context: RequestContext
) -> incremental_alter_configs.IncrementalAlterConfigsResponse:
    """Change single keys of each resource (KIP-339)."""

    def apply(resource: incremental_alter_configs.AlterConfigsResource) -> None:
        changes = [_change(config) for config in resource.configs]
        alter(context.services, resource.resource_type, resource.resource_name, changes, request.validate_only)

    responses = [
        incremental_alter_configs.AlterConfigsResourceResponse(**outcome)
        for outcome in _outcomes(request.resources, apply)
    ]
    return incremental_alter_configs.IncrementalAlterConfigsResponse(responses=responses)


class _NamedResource(Protocol):
    resource_type: int
    resource_name: str


_Resource = TypeVar("_Resource", bound=_NamedResource)


class _Outcome(TypedDict):
    """A dictionary of the fields that both answers share."""

    error_code: int
    error_message: str | None
    resource_type: int
    resource_name: str


def _outcomes(resources: Sequence[_Resource], apply: Callable[[_Resource], None]) -> Iterator[_Outcome]:
    """Apply the changes of each resource in turn, and yield the outcome of each."""
    counts = Counter((resource.resource_type, resource.resource_name) for resource in resources)
    for resource in resources:
        kind, name = resource.resource_type, resource.resource_name
        outcome = _Outcome(error_code=ErrorCode.NONE, error_message=None, resource_type=kind, resource_name=name)
        try:
            if counts[kind, name] > 1:
                raise BrokerError(ErrorCode.INVALID_REQUEST, TWICE)
            apply(resource)
        except BrokerError as error:
            outcome["error_code"], outcome["error_message"] = error.code, error.message
        yield outcome


def _change(config: incremental_alter_configs.AlterableConfig) -> ConfigChange:
    if config.config_operation not in set(Operation):
        raise BrokerError(ErrorCode.INVALID_REQUEST, f"Unknown operation type {config.config_operation}")
    return ConfigChange(config.name, Operation(config.config_operation), config.value)
