"""The security of connections to other nodes, from the keys of the listener of the other node."""

from __future__ import annotations

import logging

from ...security.client_security import PLAINTEXT, ClientSecurity
from ...security.errors import SecuritySettingError
from ...security.sasl import OAUTHBEARER
from ...security.tls import TLS_KEYS
from ..config import BrokerConfig, ConfigError
from ..config.listener_security import listener_text, tls_properties
from ..config.listeners import security_protocol
from ..config.roles import controller_protocols, inter_broker_listener
from .listener_guard import login_module

logger = logging.getLogger(__name__)


class OwnLogins:
    """The ways in which this node connects to the brokers and to the controller, with its present certificates."""

    def __init__(self, config: BrokerConfig) -> None:
        """Read the keys and stores. Raises ConfigError."""
        self._config = config
        self._to_brokers = inter_broker_security(config)
        self._to_controller = controller_security(config)

    def to_brokers(self) -> ClientSecurity:
        """Return the security of new connections to other brokers."""
        return self._to_brokers

    def to_controller(self) -> ClientSecurity:
        """Return the security of new connections to the controller."""
        return self._to_controller

    def take_changes(self) -> None:
        """Read the keys and stores once more; connections that exist keep theirs, and wrong stores have no effect."""
        try:
            self._to_brokers, self._to_controller = (
                inter_broker_security(self._config),
                controller_security(self._config),
            )
        except ConfigError as error:
            logger.error("this node keeps its certificates for other nodes: %s", error)


def inter_broker_security(config: BrokerConfig) -> ClientSecurity:
    """Return the security of connections between brokers. Raises ConfigError."""
    listener = inter_broker_listener(config)
    protocol = security_protocol(listener, config.security_protocols)
    return _security(config, listener, protocol, "sasl.mechanism.inter.broker.protocol")


def controller_security(config: BrokerConfig) -> ClientSecurity:
    """Return the security of connections to the controller. Raises ConfigError."""
    listener = (config.controller_listener_names or ("CONTROLLER",))[0].upper()
    protocol = security_protocol(listener, controller_protocols(config))
    return _security(config, listener, protocol, "sasl.mechanism.controller.protocol")


def _security(config: BrokerConfig, listener: str, protocol: str, mechanism_key: str) -> ClientSecurity:
    """Return the security of a client of ``listener``."""
    if protocol == "PLAINTEXT":
        return PLAINTEXT
    mechanism = listener_text(config, listener, mechanism_key) or "GSSAPI"
    tls = {name: text for name, text in tls_properties(config, listener).items() if name in TLS_KEYS}
    properties = {**tls, "security.protocol": protocol, "sasl.mechanism": mechanism}
    try:
        login = login_module(config, listener, mechanism) if protocol.startswith("SASL_") else None
        endpoint = listener_text(config, listener, "sasl.oauthbearer.token.endpoint.url", OAUTHBEARER)
        if endpoint and mechanism == OAUTHBEARER:
            properties["sasl.oauthbearer.token.endpoint.url"] = endpoint
        return ClientSecurity.from_properties(properties, login=login)
    except SecuritySettingError as error:
        if str(error).startswith("sasl.mechanism:"):
            raise ConfigError(str(error).replace("sasl.mechanism", mechanism_key, 1)) from None
        raise ConfigError(f"connections to other nodes, listener {listener}: {error}") from None
