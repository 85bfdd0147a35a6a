"""Settings of a console, and the cluster to which it connects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from ...broker.http.limits import HttpLimits
from ..own_broker import own_broker

if TYPE_CHECKING:
    from ...broker.api.services import Services
    from ...broker.config import BrokerConfig

KEY = "gregor.console.listeners"


@dataclass(frozen=True, slots=True)
class ConsoleSettings:
    """A record of a console's settings."""

    addresses: Sequence[str]
    """Addresses of the pages, each ``http://host:port``; without a host the console listens on loopback only."""
    hosts: Sequence[str] = ()
    """Host names by which browsers may reach the console, besides localhost and addresses."""
    client_config: str | None = None
    """A file with client configurations."""
    max_batch_bytes: int = 16_777_216
    read_only: bool = False
    schema_dir: str | None = None
    limits: HttpLimits = field(default_factory=HttpLimits)

    @classmethod
    def of(cls, config: BrokerConfig) -> Self:
        """Return the settings of a broker's own console."""
        return cls(
            config.gregor_console_listeners,
            config.gregor_console_hosts,
            config.gregor_console_client_config,
            config.gregor_console_max_batch_bytes,
            config.gregor_console_read_only,
            config.gregor_console_schema_dir,
            HttpLimits.of(config),
        )


@dataclass(frozen=True, slots=True)
class ShownCluster:
    """The cluster that a console shows: its bootstrap servers and the client configurations for them."""

    bootstrap_servers: str
    client_properties: Mapping[str, object]

    @classmethod
    def of_broker(cls, services: Services, properties: Mapping[str, object]) -> Self:
        """Return the cluster of a running broker, reached by its PLAINTEXT listener, or else by its first one."""
        bootstrap_servers, own = own_broker(services)
        return cls(bootstrap_servers, {**own, **properties})
