"""Configurations of topics, brokers, loggers and groups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum

from ...protocol.messages import alter_configs
from ...protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from ...protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)
from ...protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from ...protocol.messages.list_client_metrics_resources import (
    ListClientMetricsResourcesRequest,
    ListClientMetricsResourcesResponse,
)
from ...protocol.schema import Message
from .base import AdminBase, Response, raise_for


class ResourceType(IntEnum):
    """The type of the resource that a configuration belongs to (Kafka's ConfigResource.Type)."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class AlterOperation(IntEnum):
    """The operation of IncrementalAlterConfigs on a key (KIP-339)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigAdmin(AdminBase):
    """The methods of the admin client for configurations."""

    async def describe_configs(
        self,
        resource_type: ResourceType,
        name: str,
        keys: Sequence[str] | None = None,
        *,
        include_synonyms: bool = False,
        include_documentation: bool = False,
    ) -> list[DescribeConfigsResourceResult]:
        """Return the configuration of a topic or group (by name) or a broker (by node id as text), or only these
        keys.
        """
        request = DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(
                    resource_type=resource_type,
                    resource_name=name,
                    configuration_keys=None if keys is None else list(keys),
                )
            ],
        )
        if include_synonyms:
            request.include_synonyms = True
        if include_documentation:
            request.include_documentation = True
        answer = await self._ask_resource(resource_type, name, request, DescribeConfigsResponse)
        for result in answer.results:
            raise_for(result.error_code, result.error_message or name)
        return [entry for result in answer.results for entry in result.configs]

    async def alter_configs(
        self,
        resource_type: ResourceType,
        name: str,
        changes: Iterable[tuple[AlterOperation, str, str | None]],
        *,
        validate_only: bool = False,
    ) -> None:
        """Change single keys, all or none: (operation, key, value), the value None for DELETE."""
        request = IncrementalAlterConfigsRequest(
            resources=[
                AlterConfigsResource(
                    resource_type=resource_type,
                    resource_name=name,
                    configs=[
                        AlterableConfig(config_operation=operation, name=key, value=value)
                        for operation, key, value in changes
                    ],
                )
            ],
            validate_only=validate_only,
        )
        answer = await self._ask_resource(resource_type, name, request, IncrementalAlterConfigsResponse)
        for result in answer.responses:
            raise_for(result.error_code, result.error_message or name)

    async def replace_configs(
        self, resource_type: ResourceType, name: str, configs: Mapping[str, str | None], *, validate_only: bool = False
    ) -> None:
        """Set these keys and reset all others to their defaults: AlterConfigs, for brokers before Kafka 2.3."""
        request = AlterConfigsRequest(
            resources=[
                alter_configs.AlterConfigsResource(
                    resource_type=resource_type,
                    resource_name=name,
                    configs=[alter_configs.AlterableConfig(name=key, value=value) for key, value in configs.items()],
                )
            ],
            validate_only=validate_only,
        )
        answer = await self._ask_resource(resource_type, name, request, AlterConfigsResponse)
        for result in answer.responses:
            raise_for(result.error_code, result.error_message or name)

    async def list_client_metrics_resources(self) -> list[str]:
        """Return the names of the metrics subscriptions (KIP-714)."""
        answer = await self.ask_any(ListClientMetricsResourcesRequest(), ListClientMetricsResourcesResponse)
        raise_for(answer.error_code, "ListClientMetricsResources")
        return [resource.name for resource in answer.client_metrics_resources]

    async def _ask_resource(
        self, resource_type: ResourceType, name: str, request: Message, answer: type[Response]
    ) -> Response:
        """Send a request to the broker that a broker resource names, or to any broker for all other resources."""
        if resource_type in (ResourceType.BROKER, ResourceType.BROKER_LOGGER) and name:
            return await self.ask(int(name), request, answer)
        return await self.ask_any(request, answer)
