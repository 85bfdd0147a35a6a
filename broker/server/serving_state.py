"""Whether the broker serves clients, and where it listens."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..config.listeners import Endpoint


@dataclass(slots=True)
class ServingState:
    """The state of a broker's listeners, set by the broker while it starts and stops."""

    listening: list[Endpoint] = field(default_factory=list)
    """The addresses at which connections are accepted; empty before the listeners are open."""
    is_ready: bool = False
    """Whether clients are served."""
    metrics_address: Endpoint | None = None
    """The address of the metrics pages; None without `gregor.metrics.listener`."""
