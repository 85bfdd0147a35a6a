"""The address at which a client reaches this server, as Metadata gives it."""

from __future__ import annotations

import socket
import sys
from functools import lru_cache
from pathlib import Path
from typing import Protocol

from ..config.listeners import parse_endpoints
from .client_connection import Address

ROUTE_BY_GATEWAY = 0x2
"""RTF_GATEWAY of linux/route.h."""


class AdvertisedListeners(Protocol):
    """A view of the configured addresses, by Kafka's names (a `BrokerConfig`)."""

    advertised_listeners: tuple[str, ...]
    gregor_gateway_advertised_listeners: tuple[str, ...]


class AddressedClient(Protocol):
    """A client that is told addresses (a `ClientConnection`, or a view of one)."""

    @property
    def listener_name(self) -> str: ...
    @property
    def peer(self) -> Address: ...
    @property
    def local_address(self) -> Address:
        """The address that the client dialled."""


def advertised_address(config: AdvertisedListeners, client: AddressedClient) -> Address:
    """Return the host and port for a client: from ``advertised.listeners``, else the address that the client dialled.

    A client can dial the same address again unless something translates addresses in between: behind a published port
    of a container, the socket has the container's address whatever address the client dialled. Such clients come from
    the container's default gateway and receive the address in ``gregor.gateway.advertised.listeners``.
    """
    name = client.listener_name
    configured = _by_listener("advertised.listeners", tuple(config.advertised_listeners))
    if name in configured:
        return configured[name]
    if config.gregor_gateway_advertised_listeners and client.peer[0] == default_gateway():
        mapped = _by_listener("gregor.gateway.advertised.listeners", tuple(config.gregor_gateway_advertised_listeners))
        return mapped.get(name, client.local_address)
    return client.local_address


@lru_cache(maxsize=1)
def default_gateway(routes: Path = Path("/proc/net/route")) -> str | None:
    """Return the IPv4 address of this network's default gateway, or None if there is no such gateway."""
    try:
        lines = routes.read_text().splitlines()[1:]
    except OSError:
        return None
    for line in lines:
        # Columns: interface, destination and gateway in hexadecimal with the byte order of this machine, flags, ...
        fields = line.split()
        if len(fields) > 3 and fields[1] == "00000000" and int(fields[3], 16) & ROUTE_BY_GATEWAY:
            return socket.inet_ntoa(int(fields[2], 16).to_bytes(4, sys.byteorder))
    return None


@lru_cache(maxsize=8)
def _by_listener(key: str, advertised: tuple[str, ...]) -> dict[str, Address]:
    endpoints = parse_endpoints(key, advertised)
    return {endpoint.name: (endpoint.host, endpoint.port) for endpoint in endpoints}
