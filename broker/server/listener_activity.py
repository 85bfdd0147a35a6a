"""The numbers of connections and logins of one listener (Kafka ``Selector.SelectorMetrics``)."""

from __future__ import annotations

from dataclasses import dataclass, field

import trio

from .sampled_rate import SampledRate, Window

WINDOW = Window(sample_count=2, sample_ms=30_000)
"""The window of rates: Kafka's defaults of ``metrics.num.samples`` and ``metrics.sample.window.ms``."""


class Meter:
    """A count of events with their rate (Kafka ``Meter``)."""

    __slots__ = ("_rate", "total")

    def __init__(self) -> None:
        self.total = 0
        """The number of events since the start."""
        self._rate = SampledRate(WINDOW)

    def record(self) -> None:
        """Count an event that happens now."""
        self.total += 1
        self._rate.record(1, _now_ms())

    def per_second(self) -> float:
        """Return the rate of the last 30 to 60 seconds, in events per second."""
        return self._rate.per_second(_now_ms())


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
    successful_authentication_no_reauth_total: int = 0
    """First logins of clients that cannot authenticate again (KIP-368)."""
    expired_connections_killed_count: int = 0
    """Connections that were closed as their session had expired."""

    @property
    def connection_count(self) -> int:
        """The number of open connections."""
        return self.connection_creation.total - self.connection_close.total


def _now_ms() -> int:
    return int(trio.current_time() * 1000)
