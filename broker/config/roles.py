"""The roles of a node in its cluster, from ``process.roles`` and related keys (Kafka ``KafkaConfig``).

Kafka's controllers are a quorum. Gregor has one controller: the first of several voters.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from .keys import ConfigError
from .listener_security import listener_text
from .listeners import Endpoint, ListenerError, parse_endpoints, parse_protocol_map, security_protocol
from .table import SupportedKeys

UNKNOWN_NODE = -1
"""The controller's id if only its address is configured."""

_VOTER = re.compile(r"(?P<id>\d+)@(?:\[(?P<v6>[0-9a-fA-F:.%]+)\]|(?P<host>[^:\[\]]+)):(?P<port>\d+)")
_SERVER = re.compile(r"(?:\[(?P<v6>[0-9a-fA-F:.%]+)\]|(?P<host>[^:\[\]]+)):(?P<port>\d+)")


@dataclass(frozen=True, slots=True)
class Voter:
    """A controller: its node id and its listener's address."""

    node_id: int
    host: str
    port: int


@dataclass(frozen=True)
class Roles:
    """A record of one node's roles."""

    is_broker: bool
    is_controller: bool
    controller: Voter | None
    """The controller to follow; None for the controller itself."""
    controller_listener: Endpoint | None
    """The controller's listener for other nodes; None if they cannot connect."""
    passed_over: tuple[Voter, ...] = ()
    """The voters after the first one, which Gregor ignores."""

    @cached_property
    def is_alone(self) -> bool:
        """Whether no other node can join the cluster."""
        return self.is_controller and self.controller_listener is None


def roles_of(config: SupportedKeys) -> Roles:
    """Return the roles of this node. Raises :class:`ConfigError`, mostly with Kafka's messages."""
    try:
        return _roles_of(config)
    except ListenerError as error:
        raise ConfigError(str(error)) from None


def _roles_of(config: SupportedKeys) -> Roles:
    roles = set(config.process_roles)
    if not roles:
        return Roles(is_broker=True, is_controller=True, controller=None, controller_listener=None)
    voters = [_voter(text) for text in config.controller_quorum_voters]
    servers = [_server(text) for text in config.controller_quorum_bootstrap_servers]
    listed = ",".join(config.controller_quorum_voters)
    first = voters[0] if voters else None
    if "controller" in roles:
        if voters and config.node_id not in {voter.node_id for voter in voters}:
            raise ConfigError(
                f"If process.roles contains the 'controller' role, the node id {config.node_id} must be included in "
                f"the set of voters controller.quorum.voters={listed}"
            )
        if first is None or first.node_id == config.node_id:
            return Roles("broker" in roles, True, None, _controller_listener(config), tuple(voters[1:]))
        if "broker" not in roles:
            raise ConfigError(
                f"controller.quorum.voters names node {first.node_id} first, and Gregor has one controller only: "
                f"do not start node {config.node_id}"
            )
        return Roles(True, False, first, None, tuple(voters[1:]))
    if config.node_id in {voter.node_id for voter in voters}:
        raise ConfigError(
            f"If process.roles contains just the 'broker' role, the node id {config.node_id} must not be included in "
            f"the set of voters controller.quorum.voters={listed}"
        )
    if first is None and not servers:
        raise ConfigError(
            "If using process.roles, either controller.quorum.bootstrap.servers must contain the set of bootstrap "
            "controllers or controller.quorum.voters must contain a parseable set of controllers."
        )
    return Roles(True, False, first or servers[0], None, tuple((voters or servers)[1:]))


def inter_broker_listener(config: SupportedKeys) -> str:
    """Return the name of the listener that other brokers use. Raises :class:`ConfigError`."""
    controllers = {name.upper() for name in config.controller_listener_names}
    names = [e.name for e in parse_endpoints("listeners", config.listeners) if e.name not in controllers]
    wanted = (config.inter_broker_listener_name or "").upper()
    if wanted:
        if wanted not in names:
            raise ConfigError(f"inter.broker.listener.name must be a listener name defined in listeners, not {wanted}")
        return wanted
    by_protocol = config.security_inter_broker_protocol
    return by_protocol if by_protocol in names or not names else names[0]


def controller_protocols(config: SupportedKeys) -> dict[str, str]:
    """Return the security protocols by listener; that of the listener CONTROLLER is PLAINTEXT by default."""
    return {"CONTROLLER": "PLAINTEXT", **parse_protocol_map(config.listener_security_protocol_map)}


def _controller_listener(config: SupportedKeys) -> Endpoint | None:
    controllers = {name.upper() for name in config.controller_listener_names}
    protocols = controller_protocols(config)
    for endpoint in parse_endpoints("listeners", config.listeners):
        if endpoint.name in controllers and _is_secured(
            config, endpoint.name, security_protocol(endpoint.name, protocols)
        ):
            return endpoint
    return None


def _is_secured(config: SupportedKeys, name: str, protocol: str) -> bool:
    """Return whether a controller's listener has what its protocol needs.

    Kafka's sample files have TLS listeners for controllers that no other node uses: such files must still work.
    """
    has_certificate = bool(
        listener_text(config, name, "ssl.keystore.location") or listener_text(config, name, "ssl.keystore.key")
    )
    has_mechanism = listener_text(config, name, "sasl.enabled.mechanisms") not in (None, "", "GSSAPI")
    return (has_certificate or protocol in ("PLAINTEXT", "SASL_PLAINTEXT")) and (
        has_mechanism or protocol in ("PLAINTEXT", "SSL")
    )


def _voter(text: str) -> Voter:
    found = _VOTER.fullmatch(text)
    if found is None:
        raise ConfigError(
            f"Invalid value {text} for configuration controller.quorum.voters: it must be of the form id@host:port"
        )
    return Voter(int(found["id"]), found["v6"] or found["host"], int(found["port"]))


def _server(text: str) -> Voter:
    found = _SERVER.fullmatch(text)
    if found is None:
        raise ConfigError(
            f"Invalid value {text} for configuration controller.quorum.bootstrap.servers: "
            "it must be of the form host:port"
        )
    return Voter(UNKNOWN_NODE, found["v6"] or found["host"], int(found["port"]))
