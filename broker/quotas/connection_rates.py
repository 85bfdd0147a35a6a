"""Rates of new connections, to the broker and from an address (KIP-612).

Above ``max.connection.creation.rate`` the broker delays accepting. If an address exceeds the quota
``connection_creation_rate``, its connection is closed, but only after the throttle time, so that an immediate retry
gains nothing. Source: Kafka `ConnectionQuotas`.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from ...storage.clock import Clock
from ..server.sampled_rate import SampledRate, Window
from .client_quotas import IP
from .rates import Rates

if TYPE_CHECKING:
    from ..metadata.state import Entity

CONNECTION_CREATION_RATE = "connection_creation_rate"
UNLIMITED = (1 << 31) - 1


class RateSettings(Protocol):
    """A view of the configured rates (a `BrokerConfig`); they may change at any time."""

    max_connection_creation_rate: int
    quota_window_num: int
    quota_window_size_seconds: int

    def listener_limit(self, name: str, listener: str) -> int:
        """Return the limit of one listener alone."""


class ConnectionRates:
    """A meter of the rates of new connections, with their limits."""

    def __init__(self, settings: RateSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        window = Window(settings.quota_window_num, settings.quota_window_size_seconds * 1000)
        self._longest_wait_ms = window.sample_ms
        self._of_broker = SampledRate(window)
        self._by_listener = Rates[str, SampledRate](lambda: SampledRate(window))
        self._by_address = Rates[str, SampledRate](lambda: SampledRate(window))
        self._limits: dict[str | None, float] = {}

    def take(self, quotas: Mapping[Entity, Mapping[str, float]]) -> None:
        """Replace all quotas of addresses by these."""
        self._limits = {
            None if name is None else _canonical(name): values[CONNECTION_CREATION_RATE]
            for entity, values in quotas.items()
            for kind, name in entity
            if kind == IP and CONNECTION_CREATION_RATE in values
        }

    def connected(self, listener: str, *, is_protected: bool = False) -> int:
        """Count a connection to a listener of this broker; return how many milliseconds it must wait.

        Connections to the protected listener, which other brokers use, wait only for the rate of that listener.
        """
        own = self._settings.listener_limit("max.connection.creation.rate", listener)
        wait_ms = 0 if own >= UNLIMITED else self._count(self._by_listener.of(listener), own)
        limit = self._settings.max_connection_creation_rate
        of_broker_ms = 0 if limit >= UNLIMITED else self._count(self._of_broker, limit)
        return wait_ms if is_protected else max(wait_ms, of_broker_ms)

    def connected_from(self, address: str) -> int:
        """Count a connection from an address; return after how many milliseconds to close it, 0 to keep it."""
        limit = self._limits.get(address, self._limits.get(None)) if self._limits else None
        if limit is None:
            return 0
        rate = self._by_address.of(address)
        throttle_ms = self._count(rate, limit)
        if throttle_ms:
            rate.record(-1, self._clock.now_ms())
        return throttle_ms

    def _count(self, rate: SampledRate, limit: float) -> int:
        now_ms = self._clock.now_ms()
        rate.record(1, now_ms)
        if not limit:
            return self._longest_wait_ms
        return min(rate.throttle_ms(limit, now_ms), self._longest_wait_ms)


def _canonical(name: str) -> str:
    """Return an address as sockets write it; a host name is returned unchanged, and matches no client."""
    try:
        return ipaddress.ip_address(name).compressed
    except ValueError:
        return name
