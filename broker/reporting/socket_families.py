"""The software of connected clients (KIP-511), and the queues of Kafka's `RequestChannel`."""

from __future__ import annotations

from collections.abc import Iterator

from ..monitoring.listener_families import PREFIX, PROCESSOR
from ..monitoring.metrics import NO_LABELS, Family
from ..server.server import Server


def socket_families(server: Server) -> Iterator[Family]:
    """Yield the metrics of one server's connections, besides those of each listener."""
    yield Family(
        f"{PREFIX}connections_software",
        [
            (
                {
                    "clientSoftwareName": name,
                    "clientSoftwareVersion": version,
                    "listener": listener,
                    **PROCESSOR,
                },
                count,
            )
            for (listener, name, version), count in server.software_counts().items()
        ],
    )
    yield Family("kafka_network_requestchannel_requestqueuesize", [(NO_LABELS, server.unhandled_count())])
    yield Family("kafka_network_requestchannel_responsequeuesize", [(NO_LABELS, server.unsent_count())])
