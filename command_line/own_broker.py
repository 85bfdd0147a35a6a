"""The address at which clients in this process reach the broker of this process."""

from __future__ import annotations

from typing import Any

from ..broker.api.services import Services
from ..broker.config.listeners import security_protocol
from ..broker.faults.rule import SPARED_CLIENT_ID

ANY_HOST = ("", "0.0.0.0", "::")  # noqa: S104 (such a listener is reached over loopback)


def own_broker(services: Services) -> tuple[str, dict[str, Any]]:
    """Return the bootstrap servers and the client configurations for a running broker of this process.

    They lead to its PLAINTEXT listener, or else to its first one. Fault rules spare these clients.
    """
    config = services.config
    protocols = config.security_protocols
    endpoint = min(services.serving.listening, key=lambda each: security_protocol(each.name, protocols) != "PLAINTEXT")
    host = "localhost" if endpoint.host in ANY_HOST else endpoint.host
    properties: dict[str, Any] = {
        "client.id": SPARED_CLIENT_ID,
        # An advertised address may only be right for clients elsewhere, as with a container's published port.
        "broker_addresses": {config.node_id: (host, endpoint.port)},
    }
    return f"[{host}]:{endpoint.port}" if ":" in host else f"{host}:{endpoint.port}", properties
