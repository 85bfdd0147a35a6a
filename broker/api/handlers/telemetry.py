"""Metrics that clients push (KIP-714): GetTelemetrySubscriptions, PushTelemetry, ListClientMetricsResources."""

from __future__ import annotations

from uuid import UUID, uuid4

from ....protocol.errors import ErrorCode
from ....protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from ....protocol.messages.list_client_metrics_resources import (
    ClientMetricsResource,
    ListClientMetricsResourcesRequest,
    ListClientMetricsResourcesResponse,
)
from ....protocol.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from ....protocol.records.compression import Codec
from ....protocol.schema import NO_UUID
from ...metadata.state import ResourceType
from ...monitoring.subscriptions import ClientSubscription, subscription_for
from ..contract import RequestContext

ACCEPTED_CODECS = [Codec.ZSTD, Codec.LZ4, Codec.GZIP, Codec.SNAPPY]


def handle_get_telemetry_subscriptions(
    request: GetTelemetrySubscriptionsRequest, context: RequestContext
) -> GetTelemetrySubscriptionsResponse:
    """Return the metrics that a client should push, and an instance id for a new client."""
    instance_id = uuid4() if request.client_instance_id == NO_UUID else request.client_instance_id
    subscription = _subscription(instance_id, context)
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=instance_id,
        subscription_id=subscription.subscription_id,
        accepted_compression_types=list(ACCEPTED_CODECS),
        push_interval_ms=subscription.interval_ms,
        telemetry_max_bytes=context.services.config.telemetry_max_bytes,
        delta_temporality=True,
        requested_metrics=list(subscription.metrics),
    )


def _subscription(instance_id: UUID, context: RequestContext) -> ClientSubscription:
    configs = context.services.metadata.state.configs
    subscriptions = {name: own for (kind, name), own in configs.items() if kind is ResourceType.CLIENT_METRICS}
    host, port = context.peer
    client = {
        "client_instance_id": str(instance_id),
        "client_id": context.client_id or "",
        "client_software_name": context.software_name,
        "client_software_version": context.software_version,
        "client_source_address": host,
        "client_source_port": str(port),
    }
    return subscription_for(subscriptions, client, str(instance_id))


def handle_push_telemetry(request: PushTelemetryRequest, context: RequestContext) -> PushTelemetryResponse:
    """Validate pushed metrics as Kafka does, then discard them: nothing reads them yet."""
    if request.client_instance_id == NO_UUID:
        return PushTelemetryResponse(error_code=ErrorCode.INVALID_REQUEST)
    if request.subscription_id != _subscription(request.client_instance_id, context).subscription_id:
        return PushTelemetryResponse(error_code=ErrorCode.UNKNOWN_SUBSCRIPTION_ID)
    if request.compression_type not in (Codec.NONE, *ACCEPTED_CODECS):
        return PushTelemetryResponse(error_code=ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
    if len(request.metrics) > context.services.config.telemetry_max_bytes:
        return PushTelemetryResponse(error_code=ErrorCode.TELEMETRY_TOO_LARGE)
    return PushTelemetryResponse()


def handle_list_client_metrics_resources(
    request: ListClientMetricsResourcesRequest, context: RequestContext
) -> ListClientMetricsResourcesResponse:
    """List the names of the client metrics subscriptions."""
    configs = context.services.metadata.state.configs
    names = [name for (kind, name), own in configs.items() if kind is ResourceType.CLIENT_METRICS and own]
    return ListClientMetricsResourcesResponse(
        client_metrics_resources=[ClientMetricsResource(name=name) for name in names]
    )
