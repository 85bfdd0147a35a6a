"""Consistency rules for the keys of listeners (Kafka ``KafkaConfig.validateValues``)."""

from __future__ import annotations

from collections.abc import Container, Iterable

from .keys import ConfigError
from .listeners import Endpoint, ListenerError, parse_endpoints, parse_protocol_map, security_protocol
from .table import SupportedKeys

ANY_ADDRESS = ("", "0.0.0.0", "::")  # noqa: S104 (addresses that must not be advertised)


def check_listeners(config: SupportedKeys, *, is_broker: bool) -> None:
    """Raise :class:`ConfigError` for configured listeners that cannot be opened or must not be advertised."""
    controllers = {name.upper() for name in config.controller_listener_names}
    protocol_map = parse_protocol_map(config.listener_security_protocol_map)
    try:
        listeners = parse_endpoints("listeners", config.listeners)
        advertised = parse_endpoints("advertised.listeners", config.advertised_listeners)
        by_gateway = parse_endpoints("gregor.gateway.advertised.listeners", config.gregor_gateway_advertised_listeners)
        protocols = {
            endpoint.name: security_protocol(endpoint.name, protocol_map)
            for endpoint in listeners
            if endpoint.name not in controllers
        }
    except ListenerError as error:
        raise ConfigError(str(error)) from None
    if is_broker and not protocols:
        raise ConfigError("listeners names no listener for clients: add one, PLAINTEXT://localhost:9092 for example")
    _check_advertised("advertised.listeners", advertised, protocols)
    _check_advertised("gregor.gateway.advertised.listeners", by_gateway, protocols)


def _check_advertised(key: str, endpoints: Iterable[Endpoint], protocols: Container[str]) -> None:
    for endpoint in endpoints:
        if endpoint.name not in protocols:
            raise ConfigError(f"{key} names {endpoint.name}, which listeners does not: Gregor does not listen there")
        if endpoint.host in ANY_ADDRESS:
            raise ConfigError(
                f"{key} cannot use the nonroutable meta-address {endpoint.host or '0.0.0.0'}. "  # noqa: S104
                "Use a routable IP address."
            )
