"""Metrics of listeners: ``kafka.server:type=socket-server-metrics``, by listener and network processor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..server.listener_activity import ListenerActivity
from .metrics import NO_LABELS, Family

PREFIX = "kafka_server_socket_server_metrics_"
PROCESSOR = {"networkProcessor": "0"}
"""Kafka has a network processor for each thread; here one event loop does their work."""
METERS = (
    "connection_creation",
    "connection_close",
    "successful_authentication",
    "failed_authentication",
    "successful_reauthentication",
    "failed_reauthentication",
)
NUMBERS = (
    "connection_count",
    "successful_authentication_no_reauth_total",
    "expired_connections_killed_count",
)


def listener_families(listeners: Mapping[str, ListenerActivity]) -> Iterator[Family]:
    """Yield the connections and logins of each listener; ``listeners`` has the listeners by name."""
    open_count = sum(activity.connection_count for activity in listeners.values())
    yield Family("kafka_network_socketserver_connections", [(NO_LABELS, open_count)])
    labelled = [({"listener": name, **PROCESSOR}, activity) for name, activity in listeners.items()]
    for meter in METERS:
        values = [(labels, getattr(activity, meter)) for labels, activity in labelled]
        yield Family(f"{PREFIX}{meter}_total", [(labels, counted.total) for labels, counted in values])
        yield Family(f"{PREFIX}{meter}_rate", [(labels, counted.per_second()) for labels, counted in values])
    for number in NUMBERS:
        yield Family(PREFIX + number, [(labels, getattr(activity, number)) for labels, activity in labelled])
