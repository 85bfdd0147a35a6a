"""The metrics listener of a broker."""

from __future__ import annotations

from collections.abc import Iterator

from ..api.services import Services
from ..http.limits import HttpLimits
from ..monitoring.metrics import Family
from ..monitoring.pages import MetricPages
from ..server.server import Server
from .confluent_names import with_confluent_names
from .event_loop import EventLoopIdle
from .metric_families import broker_families
from .socket_families import socket_families


def open_monitoring(services: Services, address: str, server: Server) -> MetricPages:
    """Open a broker's metrics listener at ``address``, ``http://host:port``. Raises ListenerError."""
    EventLoopIdle(services.metrics)

    def families() -> Iterator[Family]:
        yield from with_confluent_names(socket_families(server))
        yield from with_confluent_names(broker_families(services))

    return MetricPages(address, HttpLimits.of(services.config), families, lambda: services.serving.is_ready)
