"""The state of a client's connection for handlers, while the connection is open."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import trio

from ...protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ...protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ...security.principal import ANONYMOUS, KafkaPrincipal
from .listener_activity import ListenerActivity

Address = tuple[str, int]


class SaslSession(Protocol):
    """A SASL session as the handlers of SaslHandshake and SaslAuthenticate use it to authenticate again (KIP-368)."""

    @property
    def can_begin_again(self) -> bool:
        """Whether the client can authenticate again: it has sent SaslAuthenticate v1 or newer."""

    def handshake(self, request: SaslHandshakeRequest, version: int) -> SaslHandshakeResponse:
        """Begin to authenticate again. Refuses where that is not possible."""

    def authenticate(self, request: SaslAuthenticateRequest, version: int) -> SaslAuthenticateResponse:
        """Continue with the client's next token."""


class Hangup(Protocol):
    """An event of a client's disconnect, for which pending requests wait as well."""

    async def wait(self) -> None:
        """Wait until the client has closed its side of the connection."""


class FrameLane(Protocol):
    """A lane that answers the usual requests of one connection from their bytes (`FollowerLane`)."""

    def answer(self, frame: memoryview) -> Any:
        """Return the answer, or a pending one; None, with nothing done, if the request is not usual."""


class ClientGoneError(Exception):
    """An error for a client that has disconnected while its request was pending: no answer is possible."""


class UnanswerableError(Exception):
    """An error for a request that Kafka answers by closing the connection; its text is the one line in the log."""

    log_level = logging.INFO
    """DEBUG for a reason that the log has named once, for all connections."""


@dataclass(slots=True, eq=False)
class ConversionCost:
    """A sum of the costs of converting records to another format."""

    record_count: int = 0
    stored_bytes: int = 0
    """Bytes of the converted records, as stored."""
    cpu_ns: int = 0
    temporary_bytes: int = 0
    """Bytes that were in memory for conversions, though never all at once (Kafka's TemporaryMemoryBytes)."""

    def add(self, record_count: int, stored_bytes: int, cpu_ns: int, temporary_bytes: int = 0) -> None:
        """Count one conversion."""
        self.record_count += record_count
        self.stored_bytes += stored_bytes
        self.cpu_ns += cpu_ns
        self.temporary_bytes += temporary_bytes

    def ended(self) -> None:
        """Handle the end of one conversion, after its last `add`."""

    def take(self, other: ConversionCost) -> None:
        """Move the counts of ``other`` to this one."""
        self.add(other.record_count, other.stored_bytes, other.cpu_ns, other.temporary_bytes)
        other.record_count = other.stored_bytes = other.cpu_ns = other.temporary_bytes = 0


def not_connected() -> None:
    """Do nothing: the value of `ClientConnection.disconnect` before a connection serves the client."""


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
    activity: ListenerActivity = field(default_factory=ListenerActivity)
    """Counts the connections and logins of the listener."""
    software_name: str = ""
    software_version: str = ""
    is_admitted: bool = True
    """Whether the client has authenticated, where its listener demands that; before, its names are not recorded."""
    security_protocol: str = "PLAINTEXT"
    """The security protocol of the listener: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL."""
    principal: KafkaPrincipal = ANONYMOUS
    """The authenticated identity of the client; re-authentication (KIP-368) never changes it."""
    is_trusted: bool = False
    """Whether this process itself sends the requests, so that no authorizer is asked."""
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
    is_follower: bool = False
    """Whether another broker fetches over this connection to copy partitions."""
    lane: FrameLane | None = None
    """Answers usual requests of this connection before they are decoded, if there is a lane for them."""
    peer_broker_id: int | None = None
    """The broker at the other end, once a request has revealed it; set only with fault injection."""
    sasl: SaslSession | None = None
    """The SASL session; None on a listener without SASL."""
    session_expires_at: float | None = None
    """Time on trio's clock by which the client must authenticate again; None if its session has no end (KIP-368)."""
    is_refused: bool = False
    """Whether the present answer refuses the client, so that the connection ends after the answer."""
    throttle_ms: int = 0
    """Time in ms that the connection is not read after the present answer, for a quota; the connection resets it."""

    @property
    def host(self) -> str:
        """The client's address, without its port."""
        return self.peer[0]

    disconnect: Callable[[], None] = not_connected
    """Ends the connection at once, for a request that was passed on to another broker and can get no answer."""
