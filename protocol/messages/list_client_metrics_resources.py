"""ListClientMetricsResources (key 74): the names of client metrics subscriptions (KIP-1000).

Kafka 4.1 calls the API ListConfigResources and lists other types of resources in v1 (KIP-1142).
"""

from __future__ import annotations

from typing import Annotated

from ..schema import IGNORABLE, ErrorCodeNumber, Int8, Int32, Message, String, Struct, Versions


class ListClientMetricsResourcesRequest(Message, versions="0-1", flexible="0+"):
    resource_types: Annotated[list[Int8], Versions("1+")] = []


class ClientMetricsResource(Struct):
    name: String = ""
    resource_type: Annotated[Int8, Versions("1+"), IGNORABLE] = 16


class ListClientMetricsResourcesResponse(Message, versions="0-1", flexible="0+"):
    throttle_time_ms: Int32 = 0
    error_code: ErrorCodeNumber = 0
    client_metrics_resources: list[ClientMetricsResource] = []
