"""A connected client, as the broker knows it while the connection is open."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Protocol

import trio

Address = tuple[str, int]


class Hangup(Protocol):
    """The moment when a client goes away; a parked request waits for it beside what it is parked for."""

    async def wait(self) -> None:
        """Return once the client has closed its side of the connection."""


class ClientGoneError(Exception):
    """The client hung up while its request was parked: there is nobody to answer."""


@dataclass(slots=True, eq=False)
class ConversionCost:
    """What converting records to another format has cost."""

    record_count: int = 0
    stored_bytes: int = 0
    """Bytes of the stretches that were converted, as stored."""
    cpu_ns: int = 0

    def add(self, record_count: int, stored_bytes: int, cpu_ns: int) -> None:
        """Count one conversion."""
        self.record_count += record_count
        self.stored_bytes += stored_bytes
        self.cpu_ns += cpu_ns

    def take(self, other: ConversionCost) -> None:
        """Move what ``other`` has counted to this one."""
        self.add(other.record_count, other.stored_bytes, other.cpu_ns)
        other.record_count = other.stored_bytes = other.cpu_ns = 0


ANONYMOUS = "ANONYMOUS"
"""Name of the user that has not logged in (Kafka: KafkaPrincipal.ANONYMOUS)."""


@dataclass(slots=True, eq=False)
class ClientConnection:
    """One connected client, as long as it stays; fields that ApiVersions or a login fill in start empty."""

    peer: Address
    local_address: Address
    """The address that the client dialled: what Metadata tells it unless ``advertised.listeners`` is set."""
    listener_name: str
    connection_id: str
    hangup: trio.Event
    """Set once the client has closed its side."""
    software_name: str = ""
    software_version: str = ""
    user: str = ANONYMOUS
    is_forwarded: bool = False
    """Whether it came to another broker, which has sent its request on to the controller."""
    client_id: str | None = None
    """Of its latest request."""
    client_id_bytes: bytes | None = None
    """The same as on the wire; None before the first request, empty for a client without one."""
    request_counts: defaultdict[tuple[int, int], int] = field(default_factory=lambda: defaultdict(int))
    """Requests by API and version, until `client_census` takes them."""
    down_conversion: ConversionCost = field(default_factory=ConversionCost)
    up_conversion: ConversionCost = field(default_factory=ConversionCost)
    peer_broker_id: int | None = None
    """The broker at the other end, once a request has told; only asked where faults are injected."""
    throttle_ms: int = 0
    """How long a quota keeps this connection from being read after the present answer; the connection resets it."""
