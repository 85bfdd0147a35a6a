"""The serving state of a broker: whether it serves clients, and its addresses."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..config.listeners import Endpoint
from .listener_activity import ListenerActivity


@dataclass(slots=True)
class ServingState:
    """A record of a broker's listeners, set by the broker while it starts and stops."""

    listening: list[Endpoint] = field(default_factory=list)
    """The addresses at which connections are accepted; empty before the listeners are open."""
    is_ready: bool = False
    """Whether clients are served."""
    metrics_address: Endpoint | None = None
    """The address of the metrics pages; None without `gregor.metrics.listener`."""
    activity: dict[str, ListenerActivity] = field(default_factory=dict)
    """The connections and logins of each listener, by name, with the controller's listener if this node has it."""
