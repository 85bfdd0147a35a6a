"""Metrics of listeners: ``kafka.server:type=socket-server-metrics``, by listener and network processor."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from ..server.listener_activity import ListenerActivity
from ..server.recent_values import RecentValues
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
LATENCIES: Mapping[str, Callable[[RecentValues], float]] = {
    "avg": RecentValues.average,
    "max": RecentValues.maximum,
}
THROTTLE_TIMES: Mapping[str, Callable[[ListenerActivity], RecentValues]] = {
    "connection_accept_throttle_time": lambda activity: activity.accept_throttle_ms,
    "ip_connection_accept_throttle_time": lambda activity: activity.ip_accept_throttle_ms,
}
"""Averages in milliseconds of throttle times that are not zero."""
NS_PER_S = 1_000_000_000
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
    for name, statistic in LATENCIES.items():
        values_ms = [(labels, statistic(activity.reauthentication_latency_ms)) for labels, activity in labelled]
        yield Family(f"{PREFIX}reauthentication_latency_{name}", values_ms)
    for number in NUMBERS:
        yield Family(PREFIX + number, [(labels, getattr(activity, number)) for labels, activity in labelled])
    yield from _acceptor_families(listeners)


def _acceptor_families(listeners: Mapping[str, ListenerActivity]) -> Iterator[Family]:
    """Yield the metrics of Kafka's ``ConnectionQuotas`` and ``Acceptor``, by listener."""
    labelled = [({"listener": name}, activity) for name, activity in listeners.items()]
    rates = [(labels, activity.connection_accept.per_second()) for labels, activity in labelled]
    yield Family(f"{PREFIX}connection_accept_rate", rates)
    yield Family(f"{PREFIX}broker_connection_accept_rate", [(NO_LABELS, sum(rate for _, rate in rates))])
    for name, read in THROTTLE_TIMES.items():
        yield Family(PREFIX + name, [(labels, read(activity).average()) for labels, activity in labelled])
    blocked = [(labels, activity.acceptor_blocked_s) for labels, activity in labelled]
    yield Family("kafka_network_acceptor_acceptorblocked_percent", [(labels, s.per_second()) for labels, s in blocked])
    nanoseconds = [(labels, int(s.total * NS_PER_S)) for labels, s in blocked]
    yield Family("kafka_network_acceptor_acceptorblockedpercent_count", nanoseconds)
