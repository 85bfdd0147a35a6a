"""What a handler knows of a request besides its fields: the broker, the client and the connection."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from ..protocol.apis import ApiKey

if TYPE_CHECKING:
    from .broker import Broker

Address = tuple[str, int]


class Hangup(Protocol):
    """The moment when a client goes away; a parked request waits for it beside what it is parked for."""

    async def wait(self) -> None:
        """Return once the client has closed its side of the connection."""


class ClientGoneError(Exception):
    """The client hung up while its request was parked: there is nobody to answer."""


@dataclass(slots=True, eq=False)
class ClientConnection:
    """One connected client, as long as it stays; fields that ApiVersions or a login fill in start empty."""

    peer: Address
    local_address: Address
    """The address that the client dialled: what Metadata tells it unless ``advertised.listeners`` is set."""
    listener_name: str
    connection_id: str
    hangup: Hangup
    software_name: str = ""
    software_version: str = ""


@dataclass(slots=True, eq=False)
class RequestContext:
    """One request's surroundings, for its handler."""

    broker: Broker
    client: ClientConnection
    api_key: ApiKey
    api_version: int
    correlation_id: int = 0
    client_id: str | None = None
    closing: bool = field(default=False)
    """A handler that wants the connection closed after this answer (or instead of one) sets it."""

    @property
    def peer(self) -> Address:
        return self.client.peer

    @property
    def local_address(self) -> Address:
        return self.client.local_address

    @property
    def listener_name(self) -> str:
        return self.client.listener_name

    @property
    def connection_id(self) -> str:
        return self.client.connection_id

    @property
    def hangup(self) -> Hangup:
        return self.client.hangup

    @property
    def software_name(self) -> str:
        return self.client.software_name

    @property
    def software_version(self) -> str:
        return self.client.software_version
