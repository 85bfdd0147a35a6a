"""Where a client is told to find this broker and the others."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from ..config.listeners import parse_endpoints
from ..server.client_connection import Address
from .contract import RequestContext


class VisibleBroker(NamedTuple):
    """A broker that a client may talk to, at the address that is meant for its listener."""

    node_id: int
    host: str
    port: int
    rack: str | None


def visible_brokers(context: RequestContext) -> list[VisibleBroker]:
    """The brokers of the cluster that are not fenced and have the client's listener."""
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
    """Host and port for a client: as ``advertised.listeners`` says for its listener, else as it dialled.

    An address that the client has just reached is one that it can reach again, whether it came over the host's
    network, a container's or a tunnel.
    """
    configured = _by_listener(tuple(context.services.config.advertised_listeners))
    return configured.get(context.listener_name, context.local_address)


@lru_cache(maxsize=8)
def _by_listener(advertised: tuple[str, ...]) -> dict[str, Address]:
    endpoints = parse_endpoints("advertised.listeners", advertised)
    return {endpoint.name: (endpoint.host, endpoint.port) for endpoint in endpoints}
