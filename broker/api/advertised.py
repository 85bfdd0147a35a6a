"""The addresses at which a client reaches this broker and the other brokers."""

from __future__ import annotations

import socket
import sys
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from ..config.listeners import parse_endpoints
from ..server.client_connection import Address
from .contract import RequestContext

ROUTE_BY_GATEWAY = 0x2
"""RTF_GATEWAY of linux/route.h."""


class VisibleBroker(NamedTuple):
    """A broker that a client may connect to, with its address for the client's listener."""

    node_id: int
    host: str
    port: int
    rack: str | None


def visible_brokers(context: RequestContext) -> list[VisibleBroker]:
    """Return the brokers of the cluster that are not fenced and have the client's listener."""
    metadata = context.services.metadata
    if metadata.is_alone or not metadata.has_other_brokers:
        return [VisibleBroker(metadata.node_id, *advertised_address(context), context.services.config.broker_rack)]
    visible = []
    for node_id in metadata.broker_ids:
        known = metadata.state.brokers[node_id]
        address = known.endpoints.get(context.listener_name)
        if address is not None:
            visible.append(VisibleBroker(node_id, *address, known.rack))
    return visible


def advertised_address(context: RequestContext) -> Address:
    """Return the host and port for a client: from ``advertised.listeners``, else the address that the client dialled.

    A client can dial the same address again unless something translates addresses in between: behind a published port
    of a container, the socket has the container's address whatever address the client dialled. Such clients come from
    the container's default gateway and receive the address in ``gregor.gateway.advertised.listeners``.
    """
    config, name = context.services.config, context.listener_name
    configured = _by_listener("advertised.listeners", tuple(config.advertised_listeners))
    if name in configured:
        return configured[name]
    if config.gregor_gateway_advertised_listeners and context.peer[0] == default_gateway():
        mapped = _by_listener("gregor.gateway.advertised.listeners", tuple(config.gregor_gateway_advertised_listeners))
        return mapped.get(name, context.local_address)
    return context.local_address


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
