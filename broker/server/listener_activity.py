"""The numbers of connections and logins of one listener (Kafka ``Selector.SelectorMetrics``)."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

from .meter import Meter
from .recent_values import RecentValues
from .sampled_rate import Window

ACCEPT_WINDOW = Window(sample_count=11, sample_ms=1000)
"""The window of rates of accepted connections: Kafka's defaults of ``quota.window.num`` and
``quota.window.size.seconds``."""


@dataclass(slots=True, eq=False)
class ListenerActivity:
    """A record of what has happened on one listener since the start."""

    connection_creation: Meter = field(default_factory=Meter)
    connection_close: Meter = field(default_factory=Meter)
    successful_authentication: Meter = field(default_factory=Meter)
    """First logins by SASL or TLS; clients of a PLAINTEXT listener do not log in."""
    failed_authentication: Meter = field(default_factory=Meter)
    successful_reauthentication: Meter = field(default_factory=Meter)
    failed_reauthentication: Meter = field(default_factory=Meter)
    reauthentication_latency_ms: RecentValues = field(default_factory=RecentValues)
    """The time of each successful login on a live connection, from its SaslHandshake on."""
    connection_accept: Meter = field(default_factory=partial(Meter, ACCEPT_WINDOW))
    accept_throttle_ms: RecentValues = field(default_factory=RecentValues)
    """The times for which new connections waited because of ``max.connection.creation.rate``, without zeros."""
    ip_accept_throttle_ms: RecentValues = field(default_factory=RecentValues)
    """The same because of the quotas of addresses."""
    acceptor_blocked_s: Meter = field(default_factory=Meter)
    """The seconds in which no connection was accepted because of ``max.connections`` or the rate."""
    successful_authentication_no_reauth_total: int = 0
    """First logins of clients that cannot authenticate again (KIP-368)."""
    expired_connections_killed_count: int = 0
    """Connections that were closed as their session had expired."""

    @property
    def connection_count(self) -> int:
        """The number of open connections."""
        return int(self.connection_creation.total - self.connection_close.total)
