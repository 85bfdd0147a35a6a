"""The brokers that a client may connect to, with their addresses for the client."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from ..server import advertised
from ..server.advertised import advertised_address
from .services import Services


class AddressedClient(advertised.AddressedClient, Protocol):
    """A client that is told addresses: that of a request (a `RequestContext`), or one of another protocol."""

    @property
    def services(self) -> Services: ...


class VisibleBroker(NamedTuple):
    """A broker that a client may connect to, with its address for the client's listener."""

    node_id: int
    host: str
    port: int
    rack: str | None


def visible_brokers(context: AddressedClient) -> list[VisibleBroker]:
    """Return the brokers of the cluster that are not fenced and have the client's listener."""
    services = context.services
    metadata = services.metadata
    if metadata.is_alone or not metadata.has_other_brokers:
        host, port = advertised_address(services.config, context)
        return [VisibleBroker(metadata.node_id, host, port, services.config.broker_rack)]
    visible = []
    for node_id in metadata.broker_ids:
        known = metadata.state.brokers[node_id]
        address = known.endpoints.get(context.listener_name)
        if address is not None:
            visible.append(VisibleBroker(node_id, *address, known.rack))
    return visible
