"""The state of a client's connection for handlers, while the connection is open."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Protocol

import trio

Address = tuple[str, int]


class Hangup(Protocol):
    """An event of a client's disconnect, for which pending requests wait as well."""

    async def wait(self) -> None:
        """Wait until the client has closed its side of the connection."""


class ClientGoneError(Exception):
    """An error for a client that has disconnected while its request was pending: no answer is possible."""


@dataclass(slots=True, eq=False)
class ConversionCost:
    """A sum of the costs of converting records to another format."""

    record_count: int = 0
    stored_bytes: int = 0
    """Bytes of the converted records, as stored."""
    cpu_ns: int = 0

    def add(self, record_count: int, stored_bytes: int, cpu_ns: int) -> None:
        """Count one conversion."""
        self.record_count += record_count
        self.stored_bytes += stored_bytes
        self.cpu_ns += cpu_ns

    def take(self, other: ConversionCost) -> None:
        """Move the counts of ``other`` to this one."""
        self.add(other.record_count, other.stored_bytes, other.cpu_ns)
        other.record_count = other.stored_bytes = other.cpu_ns = 0


ANONYMOUS = "ANONYMOUS"
"""Name of a user without authentication (Kafka: KafkaPrincipal.ANONYMOUS)."""


@dataclass(slots=True, eq=False)
class ClientConnection:
    """A connected client; fields that ApiVersions or authentication set start empty."""

    peer: Address
    local_address: Address
    """The address that the client dialled: Metadata returns it unless ``advertised.listeners`` is set."""
    listener_name: str
    connection_id: str
    hangup: trio.Event
    """Set once the client has closed its side."""
    software_name: str = ""
    software_version: str = ""
    user: str = ANONYMOUS
    is_forwarded: bool = False
    """Whether the client is connected to another broker, which has forwarded its request to the controller."""
    client_id: str | None = None
    """The client id of the latest request."""
    client_id_bytes: bytes | None = None
    """The same as on the wire; None before the first request, empty for a client without one."""
    request_counts: defaultdict[tuple[int, int], int] = field(default_factory=lambda: defaultdict(int))
    """Requests by API and version, until `client_census` takes them."""
    down_conversion: ConversionCost = field(default_factory=ConversionCost)
    up_conversion: ConversionCost = field(default_factory=ConversionCost)
    peer_broker_id: int | None = None
    """The broker at the other end, once a request has revealed it; set only with fault injection."""
    throttle_ms: int = 0
    """How long a quota keeps this connection from being read after the present answer; the connection resets it."""
