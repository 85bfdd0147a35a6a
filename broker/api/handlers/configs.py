"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs, for every kind of resource."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol, TypedDict, TypeVar

from ....protocol.acls import CLUSTER_NAME, AclOperation, AclResourceType
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
from ..config_alteration import (
    ConfigChange,
    Operation,
    alter,
    check_own_changed_stores,
    check_own_stores,
    parsed_node_id,
    replace,
)
from ..contract import CheckedRequest, RequestContext

UNDESCRIBABLE = (
    "This most likely occurs because of a request being malformed by the client library or the message was sent to an "
    "incompatible broker. See the broker logs for more details."
)
ALTER = AclOperation.ALTER_CONFIGS
TWICE = "Each resource must appear at most once."


def handle_describe_configs(request: DescribeConfigsRequest, context: RequestContext) -> DescribeConfigsResponse:
    """Describe the configuration of each resource, with synonyms and documentation if requested."""
    return DescribeConfigsResponse(results=[_described(resource, request, context) for resource in request.resources])


def _described(
    resource: DescribeConfigsResource, request: DescribeConfigsRequest, context: RequestContext
) -> DescribeConfigsResult:
    result = DescribeConfigsResult(resource_type=resource.resource_type, resource_name=resource.resource_name)
    try:
        _authorize(AclOperation.DESCRIBE_CONFIGS, resource, context)
        entries = _entries(resource, context)
    except BrokerError as error:
        result.error_code, result.error_message = error.code, error.message or ""
        return result
    # Kafka takes an empty list of keys to mean all keys (KAFKA-9338).
    wanted = set(resource.configuration_keys or ())
    result.configs = [_shown(entry, request, context) for entry in entries if not wanted or entry.name in wanted]
    return result


class _NamedResource(Protocol):
    resource_type: int
    resource_name: str


def _authorize(operation: AclOperation, resource: _NamedResource, context: RequestContext) -> None:
    """Raise BrokerError unless the client may do that with a resource: what is not a topic's belongs to the cluster."""
    if resource.resource_type == ResourceType.TOPIC:
        context.authorize(operation, AclResourceType.TOPIC, resource.resource_name)
    elif resource.resource_type in (ResourceType.BROKER, ResourceType.BROKER_LOGGER, ResourceType.CLIENT_METRICS):
        context.authorize(operation, AclResourceType.CLUSTER, CLUSTER_NAME)


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


_AnyRequest = TypeVar(
    "_AnyRequest", alter_configs.AlterConfigsRequest, incremental_alter_configs.IncrementalAlterConfigsRequest
)


def refused_changes(request: _AnyRequest, context: RequestContext) -> CheckedRequest | None:
    """Refuse changes that name stores which this broker's listeners cannot use; return None if there are none.

    Only this broker can read its own files: it checks them before the controller gets the request.
    """
    services = context.services
    counts = Counter((resource.resource_type, resource.resource_name) for resource in request.resources)
    refused: list[tuple[_AnyRequest, BrokerError]] = []
    rest: list[Any] = []
    for resource in request.resources:
        place = (resource.resource_type, resource.resource_name)
        is_own = place[0] == ResourceType.BROKER and parsed_node_id(place[1]) == services.metadata.node_id
        # The controller refuses resources that are named twice, and clients without the right; the content of files is
        # not for them.
        if not is_own or counts[place] > 1 or not context.may(ALTER, AclResourceType.CLUSTER, CLUSTER_NAME):
            rest.append(resource)
            continue
        try:
            if isinstance(resource, alter_configs.AlterConfigsResource):
                check_own_stores(services, [(config.name, config.value) for config in resource.configs])
            else:
                check_own_changed_stores(services, [_change(config) for config in resource.configs])
        except BrokerError as error:
            refused.append((type(request)(resources=[resource]), error))
        else:
            rest.append(resource)
    if not refused:
        return None
    return CheckedRequest(type(request)(resources=rest, validate_only=request.validate_only) if rest else None, refused)


def handle_alter_configs(
    request: alter_configs.AlterConfigsRequest, context: RequestContext
) -> alter_configs.AlterConfigsResponse:
    """Replace the whole configuration of each resource."""

    def apply(resource: alter_configs.AlterConfigsResource) -> None:
        wanted = [(config.name, config.value) for config in resource.configs]
        replace(context.services, resource.resource_type, resource.resource_name, wanted, request.validate_only)

    responses = [
        alter_configs.AlterConfigsResourceResponse(**outcome)
        for outcome in _outcomes(request.resources, apply, context)
    ]
    return alter_configs.AlterConfigsResponse(responses=responses)


def handle_incremental_alter_configs(
    request: incremental_alter_configs.IncrementalAlterConfigsRequest, context: RequestContext
) -> incremental_alter_configs.IncrementalAlterConfigsResponse:
    """Change single keys of each resource (KIP-339)."""

    def apply(resource: incremental_alter_configs.AlterConfigsResource) -> None:
        changes = [_change(config) for config in resource.configs]
        alter(context.services, resource.resource_type, resource.resource_name, changes, request.validate_only)

    responses = [
        incremental_alter_configs.AlterConfigsResourceResponse(**outcome)
        for outcome in _outcomes(request.resources, apply, context)
    ]
    return incremental_alter_configs.IncrementalAlterConfigsResponse(responses=responses)


_Resource = TypeVar("_Resource", bound=_NamedResource)


class _Outcome(TypedDict):
    """A dictionary of the fields that both answers share."""

    error_code: int
    error_message: str | None
    resource_type: int
    resource_name: str


def _outcomes(
    resources: Sequence[_Resource], apply: Callable[[_Resource], None], context: RequestContext
) -> Iterator[_Outcome]:
    """Apply the changes of each resource in turn, and yield the outcome of each."""
    counts = Counter((resource.resource_type, resource.resource_name) for resource in resources)
    for resource in resources:
        kind, name = resource.resource_type, resource.resource_name
        outcome = _Outcome(error_code=ErrorCode.NONE, error_message=None, resource_type=kind, resource_name=name)
        try:
            if counts[kind, name] > 1:
                raise BrokerError(ErrorCode.INVALID_REQUEST, TWICE)
            _authorize(AclOperation.ALTER_CONFIGS, resource, context)
            apply(resource)
        except BrokerError as error:
            outcome["error_code"], outcome["error_message"] = error.code, error.message
        yield outcome


def _change(config: incremental_alter_configs.AlterableConfig) -> ConfigChange:
    if config.config_operation not in set(Operation):
        raise BrokerError(ErrorCode.INVALID_REQUEST, f"Unknown operation type {config.config_operation}")
    return ConfigChange(config.name, Operation(config.config_operation), config.value)
