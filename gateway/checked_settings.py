"""Settings of a gateway that are valid by themselves, but with which no client could be served."""

from __future__ import annotations

from ..broker.config import BrokerConfig, ConfigError
from ..broker.config.listener_rules import ANY_ADDRESS
from ..broker.config.listeners import Endpoint, parse_endpoints, security_protocol
from ..security.sasl import SCRAM_MECHANISMS

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


def check_settings(config: BrokerConfig) -> None:
    """Check the listeners against the upstream brokers and the logins. Raises ConfigError."""
    endpoints = parse_endpoints("listeners", config.listeners)
    for address in config.gregor_gateway_upstream:
        if any(_is_at(endpoint, address) for endpoint in endpoints):
            raise ConfigError(f"gregor.gateway.upstream: {address} is a listener of the gateway itself")
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


def _is_at(endpoint: Endpoint, address: str) -> bool:
    """Return whether an upstream address is that of a listener, as far as the names tell."""
    host, _, port = address.rpartition(":")
    if port != str(endpoint.port) or not endpoint.port:
        return False
    host = host.strip("[]")
    return host == endpoint.host or (host in LOOPBACK and endpoint.host in {*LOOPBACK, *ANY_ADDRESS})
