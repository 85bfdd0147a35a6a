"""ListClientMetricsResources (key 74)."""

from __future__ import annotations

from ..schema import Int16, Int32, Message, String, Struct


class ListClientMetricsResourcesRequest(Message, versions="0", flexible="0+"):
    """Nothing but the header."""


class ClientMetricsResource(Struct):
    name: String = ""


class ListClientMetricsResourcesResponse(Message, versions="0", flexible="0+"):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    client_metrics_resources: list[ClientMetricsResource] = []
