"""Bounds of HTTP listeners."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from ..config import BrokerConfig


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """A record of what one listener's clients may use."""

    max_connections: int = 32
    """Connections at a time; a further one disconnects the oldest without a request, else the oldest of all."""
    max_header_bytes: int = 16384
    """Bytes of the request line and the headers."""
    max_body_bytes: int = 1048576
    timeout_s: float = 10.0
    """Time in which a request must arrive as a whole, and in which the client must take each piece of the answer."""

    @classmethod
    def of(cls, config: BrokerConfig) -> Self:
        """Return the limits that the keys ``gregor.http.*`` set."""
        return cls(
            config.gregor_http_max_connections,
            config.gregor_http_max_header_bytes,
            config.gregor_http_max_body_bytes,
            config.gregor_http_timeout_ms / 1000,
        )
