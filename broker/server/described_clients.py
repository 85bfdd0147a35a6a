"""The census of clients as an answer to DescribeClients, which only Gregor's own tools ask for."""

from __future__ import annotations

from ...protocol.messages.describe_clients import (
    ConversionWork,
    DescribeClientsResponse,
    DescribedClient,
    UsedApiVersion,
)
from .client_census import ClientCensus, ClientUsage
from .client_connection import ConversionCost


def describe_clients(census: ClientCensus) -> DescribeClientsResponse:
    """Return all client usages that the census has recorded."""
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
        refused_zstd=usage.refused_zstd,
        api_versions=[
            UsedApiVersion(api_key=key, api_version=version, request_count=count)
            for (key, version), count in sorted(usage.requests.items())
        ],
    )


def _work(cost: ConversionCost) -> ConversionWork:
    return ConversionWork(
        record_count=cost.record_count,
        stored_bytes=cost.stored_bytes,
        cpu_micros=cost.cpu_ns // 1000,
        temporary_bytes=cost.temporary_bytes,
    )
