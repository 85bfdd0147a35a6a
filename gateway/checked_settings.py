"""Settings of a gateway that are valid by themselves, but with which no client could be served."""

from __future__ import annotations

from collections.abc import Iterable

from ..broker.config import BrokerConfig, ConfigError
from ..broker.config.listener_rules import ANY_ADDRESS
from ..broker.config.listeners import Endpoint, security_protocol
from ..client.errors import ConfigError as ClientConfigError
from ..client.wire.cluster import parse_servers
from ..security.sasl import SCRAM_MECHANISMS

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


def check_settings(config: BrokerConfig, endpoints: Iterable[Endpoint]) -> None:
    """Check the endpoints of a gateway against the upstream brokers and the logins. Raises ConfigError."""
    endpoints = list(endpoints)
    for host, port in upstream_servers(config):
        own = next((endpoint for endpoint in endpoints if _is_at(endpoint, host, port)), None)
        if own is not None:
            raise ConfigError(
                f"gregor.gateway.upstream: {host}:{port} is an address of the gateway itself; change it or {own.key}"
            )
    names = {endpoint.name for endpoint in endpoints}
    uses_sasl = any(security_protocol(name, config.security_protocols).startswith("SASL_") for name in names)
    if uses_sasl and config.gregor_gateway_sasl_pass_through:
        raise ConfigError(
            "gregor.gateway.sasl.pass.through: the brokers authenticate clients, so listeners must be PLAINTEXT or SSL"
        )
    mechanisms = set(config.sasl_enabled_mechanisms)
    if uses_sasl and mechanisms and mechanisms <= set(SCRAM_MECHANISMS):
        raise ConfigError(
            "sasl.enabled.mechanisms: a gateway stores no SCRAM credentials; enable PLAIN or OAUTHBEARER, or let the "
            "brokers authenticate the clients (gregor.gateway.sasl.pass.through)"
        )


def upstream_servers(config: BrokerConfig) -> list[tuple[str, int]]:
    """Return the hosts and ports of `gregor.gateway.upstream`. Raises ConfigError for none, or one that is invalid."""
    if not config.gregor_gateway_upstream:
        raise ConfigError("gregor.gateway.upstream names no broker: set it, or give --upstream HOST:PORT")
    try:
        return parse_servers(config.gregor_gateway_upstream)
    except ClientConfigError as error:
        raise ConfigError(f"gregor.gateway.upstream: {error}") from None


def _is_at(endpoint: Endpoint, host: str, port: int) -> bool:
    """Return whether an upstream address is that of a listener, as far as the names tell."""
    if port != endpoint.port:
        return False
    return host == endpoint.host or (host in LOOPBACK and endpoint.host in {*LOOPBACK, *ANY_ADDRESS})
