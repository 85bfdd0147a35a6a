"""The address at which a client is told to find this broker."""

from __future__ import annotations

from functools import lru_cache

from ..requests import Address, RequestContext
from .listeners import parse_endpoints


def advertised_address(context: RequestContext) -> Address:
    """Host and port for a client: as ``advertised.listeners`` says for its listener, else as it dialled.

    An address that the client has just reached is one that it can reach again, whether it came over the host's
    network, a container's or a tunnel.
    """
    configured = _by_listener(tuple(context.broker.config.advertised_listeners))
    return configured.get(context.listener_name, context.local_address)


@lru_cache(maxsize=8)
def _by_listener(advertised: tuple[str, ...]) -> dict[str, Address]:
    endpoints = parse_endpoints("advertised.listeners", advertised)
    return {endpoint.name: (endpoint.host, endpoint.port) for endpoint in endpoints}
