"""Client usage of this broker: each client's API versions, and the cost of converting records for it.

A connection counts its own requests in a dictionary of its own, one increment each; the census collects these counts
when the connection ends, changes its client id, or the census is read. A client is identified by its client id, host,
software name and software version (KIP-511): a reconnect does not make it another client.

The census is bounded by ``gregor.client.census.max.clients``: the client that was disconnected longest ago is dropped
first.
"""

from __future__ import annotations

import logging
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ...protocol.apis import AnyApiKey, api_key
from ...protocol.kafka_4_floor import is_deprecated
from ...storage.clock import Clock
from .client_connection import ClientConnection, ConversionCost

logger = logging.getLogger(__name__)

NAME_LIMIT = 200
"""Characters of a client's names that are kept; a client may send 32 kB of each."""
OTHER_SOFTWARE = ("other", "")
"""Stands for all software beyond the census's bound, as clients may send any number of names."""


class ClientIdentity(NamedTuple):
    """An identity of a client, which is equal for all its connections."""

    client_id: str
    host: str
    software_name: str
    software_version: str


@dataclass(slots=True, eq=False)
class ClientUsage:
    """A record of one client's usage since the broker started; times in ms since the epoch."""

    identity: ClientIdentity
    first_seen_ms: int
    last_seen_ms: int
    """The time at which the client was last connected."""
    connection_count: int = 0
    """The number of open connections."""
    requests: Counter[tuple[AnyApiKey, int]] = field(default_factory=Counter)
    down_conversion: ConversionCost = field(default_factory=ConversionCost)
    up_conversion: ConversionCost = field(default_factory=ConversionCost)
    refused_down_conversions: int = 0
    """Fetches of partitions that ``message.downconversion.enable=false`` refused."""
    refused_zstd: int = 0
    """Fetches of partitions that were refused because the client does not read zstd (KIP-110)."""

    @property
    def deprecated_count(self) -> int:
        """The number of requests that Kafka 4.0 refuses."""
        return sum(count for (key, version), count in self.requests.items() if is_deprecated(key, version))


class ClientCensus:
    """A census of the clients that this broker has recorded."""

    def __init__(self, clock: Clock, max_clients: int) -> None:
        self._clock = clock
        self._max_clients = max_clients
        self._connected: set[ClientConnection] = set()
        self._usages: OrderedDict[ClientIdentity, ClientUsage] = OrderedDict()
        self._request_counts: Counter[tuple[AnyApiKey, int]] = Counter()
        self._deprecated_counts: Counter[tuple[AnyApiKey, int, str, str]] = Counter()
        self._software: set[tuple[str, str]] = set()
        self.forgotten_clients = 0
        """The number of clients that were dropped for others."""

    def connected(self, client: ClientConnection) -> None:
        """Record a client's new connection."""
        self._connected.add(client)

    def disconnected(self, client: ClientConnection) -> None:
        """Record the end of a client's connection."""
        self._fold(client)
        self._connected.discard(client)

    def client_id_changed(self, client: ClientConnection, client_id: str | None) -> None:
        """Record a connection's new client id; its earlier requests count for the old one."""
        self._fold(client)
        client.client_id = client_id

    def down_conversion_refused(self, client: ClientConnection, version: int, topic: str) -> None:
        """Count a fetch that disabled down-conversion refused; log a warning once for each client."""
        usage = self._usage_of(client)
        usage.refused_down_conversions += 1
        if usage.refused_down_conversions == 1:
            logger.warning(
                "client %r at %s (%s) sends Fetch v%d and gets nothing of %s, as message.downconversion.enable=false: "
                "upgrade the client to Kafka 0.11.0 or newer, or set message.downconversion.enable=true for the topic",
                client.client_id,
                client.peer[0],
                " ".join(filter(None, (client.software_name, client.software_version))) or "software unknown",
                version,
                topic,
            )

    def zstd_refused(self, client: ClientConnection) -> None:
        """Count a fetch that was refused because the client does not read zstd."""
        self._usage_of(client).refused_zstd += 1

    def usages(self) -> list[ClientUsage]:
        """Return the usage of every recorded client, in the order of last connection, the oldest first."""
        self._fold_all()
        open_connections = Counter(map(identity_of, self._connected))
        for identity, usage in self._usages.items():
            usage.connection_count = open_connections[identity]
        return list(self._usages.values())

    def request_counts(self) -> Mapping[tuple[AnyApiKey, int], int]:
        """Return the numbers of all requests by API and version."""
        self._fold_all()
        return self._request_counts

    def deprecated_request_counts(self) -> Mapping[tuple[AnyApiKey, int, str, str], int]:
        """Return the numbers of requests that Kafka 4 refuses, by API, version, software name and version (KIP-896)."""
        self._fold_all()
        return self._deprecated_counts

    def _fold_all(self) -> None:
        for client in self._connected:
            self._fold(client)

    def _fold(self, client: ClientConnection) -> None:
        if not client.is_admitted:
            # Names that anybody can send must not push known clients out of the census.
            return
        # The counts of a client have API keys as integers.
        counts = {(api_key(key), version): count for (key, version), count in client.request_counts.items()}
        if not counts and identity_of(client) not in self._usages:
            return
        usage = self._usage_of(client)
        usage.last_seen_ms = self._clock.now_ms()
        self._usages.move_to_end(usage.identity)
        usage.requests.update(counts)
        usage.down_conversion.take(client.down_conversion)
        usage.up_conversion.take(client.up_conversion)
        self._request_counts.update(counts)
        software = self._bounded_software(usage.identity)
        for (key, version), count in counts.items():
            if is_deprecated(key, version):
                self._deprecated_counts[key, version, *software] += count
        client.request_counts = defaultdict(int)

    def _usage_of(self, client: ClientConnection) -> ClientUsage:
        identity = identity_of(client)
        usage = self._usages.get(identity)
        if usage is None:
            now_ms = self._clock.now_ms()
            usage = self._usages[identity] = ClientUsage(identity, first_seen_ms=now_ms, last_seen_ms=now_ms)
            while len(self._usages) > self._max_clients:
                self._usages.popitem(last=False)
                self.forgotten_clients += 1
        return usage

    def _bounded_software(self, identity: ClientIdentity) -> tuple[str, str]:
        software = (identity.software_name, identity.software_version)
        if software not in self._software:
            if len(self._software) >= self._max_clients:
                return OTHER_SOFTWARE
            self._software.add(software)
        return software


def identity_of(client: ClientConnection) -> ClientIdentity:
    """Return the identity of a connection's client."""
    return ClientIdentity(
        (client.client_id or "")[:NAME_LIMIT],
        client.peer[0],
        client.software_name[:NAME_LIMIT],
        client.software_version[:NAME_LIMIT],
    )
