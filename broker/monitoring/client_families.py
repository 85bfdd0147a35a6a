"""Metrics of requests and clients, from the census: who sends versions that Kafka 4 refuses, and at what cost."""

from __future__ import annotations

from collections.abc import Iterator

from ...protocol.apis import api_name
from ..server.client_census import ClientCensus, ClientUsage
from .metrics import NO_LABELS, Family, Labels

NS_PER_S = 1_000_000_000


def request_families(census: ClientCensus) -> Iterator[Family]:
    """Yield ``kafka.network:type=RequestMetrics``, with KIP-896's DeprecatedRequestsPerSec."""
    yield Family(
        "kafka_network_requestmetrics_requests_total",
        [
            ({"request": api_name(key), "version": str(version)}, count)
            for (key, version), count in census.request_counts().items()
        ],
    )
    yield Family(
        "kafka_network_requestmetrics_deprecatedrequests_total",
        [
            (
                {
                    "request": api_name(key),
                    "version": str(version),
                    "clientSoftwareName": name,
                    "clientSoftwareVersion": software_version,
                },
                count,
            )
            for (key, version, name, software_version), count in census.deprecated_request_counts().items()
        ],
    )


def client_families(census: ClientCensus) -> Iterator[Family]:
    """Yield metrics by client, which Kafka has only in its request log: clients with old versions."""
    usages = census.usages()
    old = [usage for usage in usages if usage.deprecated_count]
    yield Family("gregor_client_deprecated_requests_total", [(_client(usage), usage.deprecated_count) for usage in old])
    converting = [usage for usage in usages if usage.down_conversion.record_count]
    yield Family(
        "gregor_client_down_converted_records_total",
        [(_client(usage), usage.down_conversion.record_count) for usage in converting],
    )
    yield Family(
        "gregor_client_down_conversion_cpu_seconds_total",
        [(_client(usage), usage.down_conversion.cpu_ns / NS_PER_S) for usage in converting],
    )
    yield Family(
        "gregor_client_down_conversion_temporary_memory_bytes_total",
        [(_client(usage), usage.down_conversion.temporary_bytes) for usage in converting],
    )
    refused = [usage for usage in usages if usage.refused_down_conversions or usage.refused_zstd]
    yield Family(
        "gregor_client_refused_conversions_total",
        [(_client(usage), usage.refused_down_conversions + usage.refused_zstd) for usage in refused],
    )
    yield Family("gregor_clients_forgotten_total", [(NO_LABELS, census.forgotten_clients)])


def _client(usage: ClientUsage) -> Labels:
    client_id, host, software_name, software_version = usage.identity
    return {
        "clientId": client_id,
        "clientAddress": host,
        "clientSoftwareName": software_name,
        "clientSoftwareVersion": software_version,
    }
