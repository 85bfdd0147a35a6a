"""DescribeClients, which only Gregor's own tools send: the clients of this broker and their usage."""

from __future__ import annotations

from ....protocol.messages.describe_clients import (
    ConversionWork,
    DescribeClientsRequest,
    DescribeClientsResponse,
    DescribedClient,
    UsedApiVersion,
)
from ...server.client_census import ClientUsage
from ...server.client_connection import ConversionCost
from ..contract import RequestContext


async def handle_describe_clients(request: DescribeClientsRequest, context: RequestContext) -> DescribeClientsResponse:
    """Return all client usages that the census has recorded."""
    census = context.services.clients
    return DescribeClientsResponse(
        forgotten_clients=census.forgotten_clients, clients=[_described(usage) for usage in census.usages()]
    )


def _described(usage: ClientUsage) -> DescribedClient:
    identity = usage.identity
    return DescribedClient(
        client_id=identity.client_id,
        host=identity.host,
        software_name=identity.software_name,
        software_version=identity.software_version,
        connection_count=usage.connection_count,
        first_seen_ms=usage.first_seen_ms,
        last_seen_ms=usage.last_seen_ms,
        down_conversion=_work(usage.down_conversion),
        up_conversion=_work(usage.up_conversion),
        refused_down_conversions=usage.refused_down_conversions,
        api_versions=[
            UsedApiVersion(api_key=key, api_version=version, request_count=count)
            for (key, version), count in sorted(usage.requests.items())
        ],
    )


def _work(cost: ConversionCost) -> ConversionWork:
    return ConversionWork(
        record_count=cost.record_count, stored_bytes=cost.stored_bytes, cpu_micros=cost.cpu_ns // 1000
    )
