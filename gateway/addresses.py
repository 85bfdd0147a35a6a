"""Addresses and node ids in answers: clients must come back to the gateway, not to the brokers behind it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple, Protocol

from ..broker.config import BrokerConfig, ConfigError
from ..broker.config.listeners import Endpoint, parse_endpoints
from ..broker.server.advertised import advertised_address
from ..broker.server.client_connection import Address, ClientConnection
from ..protocol.apis import AnyApiKey, ApiKey, response_class
from ..protocol.codec_layout import StructLayout
from ..protocol.field_meanings import FieldMeaning, field_meanings, fields_of
from ..protocol.message_places import carried_fields, entries_of, layout_of
from ..protocol.schema import Entity, Message, Struct

logger = logging.getLogger(__name__)

BROKER_PORTS = "gregor.gateway.broker.ports"
NO_NODE = -1
HOST = "host"
LARGEST_PORT = 65535


class Addresses(Protocol):
    """A mapping of upstream brokers to what a client is told."""

    changes_node_ids: bool

    def bound_node(self, client: ClientConnection) -> int | None:
        """Return the broker whose port the client has connected to, None if it stands for the cluster."""

    def node(self, node: int) -> int:
        """Return the node id that clients know instead of an upstream broker's."""

    def address(self, node: int, client: ClientConnection) -> Address | None:
        """Return the address for an upstream broker; None if clients cannot reach it through this gateway."""


class OneAddress:
    """One address for the whole cluster: clients see one broker, with the gateway's node id."""

    changes_node_ids = True

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config

    def bound_node(self, _client: ClientConnection) -> int | None:
        return None

    def node(self, node: int) -> int:
        return node if node < 0 else self._config.node_id

    def address(self, _node: int, client: ClientConnection) -> Address | None:
        return advertised_address(self._config, client)


class PortForEachBroker:
    """A port for each broker: the first port of the listener's range plus the node id, on the host that clients know.

    A broker without a port is named in the log once.
    """

    changes_node_ids = False

    def __init__(self, config: BrokerConfig, ports: Mapping[str, range]) -> None:
        """Take the ports of each listener, by its name."""
        self._config = config
        self.ports = ports
        self._without_port: set[int] = set()

    def bound_node(self, client: ClientConnection) -> int | None:
        ports, port = self.ports[client.listener_name], client.local_address[1]
        return port - ports.start if port in ports else None

    def node(self, node: int) -> int:
        return node

    def address(self, node: int, client: ClientConnection) -> Address | None:
        ports = self.ports[client.listener_name]
        port = ports.start + node
        if port not in ports:
            self._report(node, ports)
            return None
        host, _ = advertised_address(self._config, client)
        return host, port

    def _report(self, node: int, ports: range) -> None:
        if node in self._without_port:
            return
        self._without_port.add(node)
        logger.warning(
            "clients cannot reach broker %d, which would have port %d: extend the range %d-%d of %s",
            node,
            ports.start + node,
            ports.start,
            ports.stop - 1,
            BROKER_PORTS,
        )


def addresses_of(config: BrokerConfig) -> OneAddress | PortForEachBroker:
    """Return the mapping that `gregor.gateway.broker.ports` chooses. Raises ConfigError for invalid ranges."""
    text = config.gregor_gateway_broker_ports
    if not text:
        return OneAddress(config)
    ranges = [_port_range(part) for part in text.split(",")]
    listeners = parse_endpoints("listeners", config.listeners)
    if len(ranges) != len(listeners):
        raise ConfigError(
            f"{BROKER_PORTS}={text}: write a range for each of the {len(listeners)} listeners, as FIRST-LAST,FIRST-LAST"
        )
    owners = {(listener.host, listener.port): listener.name for listener in listeners}
    for listener, ports in zip(listeners, ranges, strict=True):
        for port in ports:
            other = owners.setdefault((listener.host, port), f"a broker at {listener.name}")
            if other != f"a broker at {listener.name}":
                raise ConfigError(f"{BROKER_PORTS}={text}: port {port} is also that of {other}")
    return PortForEachBroker(config, dict(zip((listener.name for listener in listeners), ranges, strict=True)))


def endpoints_of(config: BrokerConfig, addresses: OneAddress | PortForEachBroker) -> list[Endpoint]:
    """Return the listeners, and one endpoint for each port of a broker, on the interface of its listener."""
    listeners = parse_endpoints("listeners", config.listeners)
    if isinstance(addresses, OneAddress):
        return listeners
    return listeners + [
        Endpoint(listener.name, listener.host, port, BROKER_PORTS)
        for listener in listeners
        for port in addresses.ports[listener.name]
    ]


def _port_range(text: str) -> range:
    """Return the ports FIRST-LAST. Raises ConfigError."""
    first, last = map(int, text.split("-"))
    if not 0 < first <= last <= LARGEST_PORT:
        raise ConfigError(f"{BROKER_PORTS}={text.strip()}: write FIRST-LAST, from 1 to {LARGEST_PORT}")
    return range(first, last + 1)


@cache
def has_brokers(key: AnyApiKey, version: int) -> bool:
    """Return whether this version of an answer names brokers, so that it must be rewritten."""
    return key is not ApiKey.FETCH and _names_brokers(layout_of(response_class(key), version))


def _names_brokers(layout: StructLayout) -> bool:
    meanings = field_meanings(layout.cls)
    for field in carried_fields(layout):
        inside = field.wire if isinstance(field.wire, StructLayout) else entries_of(field)
        if meanings[field.name].entity is Entity.BROKER_ID or (inside is not None and _names_brokers(inside)):
            return True
    return False


def rewrite_brokers(response: Message, version: int, addresses: Addresses, client: ClientConnection) -> bool:
    """Replace node ids and addresses in a response, in place; return whether anything may have changed.

    Entries for brokers that clients cannot reach, and further entries for the same broker, are removed.
    """
    plan = _message_plan(type(response), version, addresses.changes_node_ids)
    return plan is not None and _rewrite(response, plan, addresses, client)


class _Plan(NamedTuple):
    """The fields of a structure that name brokers, and those with structures that do: others are not looked at."""

    addressed: str | None
    """The field with the node id whose address the structure has."""
    ids: tuple[str, ...]
    structs: tuple[tuple[str, _Plan], ...]
    lists: tuple[tuple[str, _Plan], ...]
    brokers: tuple[tuple[str, type[Struct], _Plan], ...]
    """The lists whose entries are brokers with their addresses."""


@cache
def _message_plan(cls: type[Message], version: int, changes_node_ids: bool) -> _Plan | None:
    return _plan(layout_of(cls, version), changes_node_ids)


def _plan(layout: StructLayout, changes_node_ids: bool) -> _Plan | None:
    """Return the plan of a structure, None if nothing of it can change."""
    meanings = field_meanings(layout.cls)
    carried = {field.name: field for field in carried_fields(layout)}
    one = next((name for name in carried if _is_one_broker(meanings[name])), None)
    addressed = one if HOST in carried else None
    ids = tuple(name for name in carried if changes_node_ids and meanings[name].entity is Entity.BROKER_ID)
    structs: list[tuple[str, _Plan]] = []
    lists: list[tuple[str, _Plan]] = []
    brokers: list[tuple[str, type[Struct], _Plan]] = []
    for name, field in carried.items():
        if meanings[name].entity is Entity.BROKER_ID:
            continue
        entries = entries_of(field)
        inside = field.wire if isinstance(field.wire, StructLayout) else entries
        plan = None if inside is None else _plan(inside, changes_node_ids)
        if plan is None or inside is None:
            continue
        if entries is None:
            structs.append((name, plan))
        elif _is_broker_list(entries.cls):
            brokers.append((name, entries.cls, plan))
        else:
            lists.append((name, plan))
    if addressed is None and not (ids or structs or lists or brokers):
        return None
    return _Plan(addressed, ids, tuple(structs), tuple(lists), tuple(brokers))


def _rewrite(struct: Any, plan: _Plan, addresses: Addresses, client: ClientConnection) -> bool:
    changed = False
    if plan.addressed is not None and (node := getattr(struct, plan.addressed)) > NO_NODE:
        address = addresses.address(node, client)
        if address is not None:
            struct.host, struct.port = address
            changed = True
    for name in plan.ids:
        changed = _rewrite_ids(struct, name, getattr(struct, name), addresses.node) or changed
    for name, inside in plan.structs:
        if getattr(struct, name) is not None:
            changed = _rewrite(getattr(struct, name), inside, addresses, client) or changed
    for name, inside in plan.lists:
        for entry in getattr(struct, name) or ():
            changed = _rewrite(entry, inside, addresses, client) or changed
    for name, cls, inside in plan.brokers:
        entries = getattr(struct, name)
        if entries:
            _keep_reachable(entries, cls, addresses, client)
            for entry in entries:
                _rewrite(entry, inside, addresses, client)
            if addresses.changes_node_ids:
                del entries[1:]
            changed = True
    return changed


def _is_one_broker(meaning: FieldMeaning) -> bool:
    return meaning.entity is Entity.BROKER_ID and not meaning.is_list


def _rewrite_ids(struct: Struct, name: str, value: Any, node_of: Callable[[int], int]) -> bool:
    if isinstance(value, list):
        rewritten: Any = list(dict.fromkeys(map(node_of, value)))
    elif value is None:
        return False
    else:
        rewritten = node_of(value)
    if rewritten == value:
        return False
    setattr(struct, name, rewritten)
    return True


@cache
def _is_broker_list(structure: type[Struct]) -> bool:
    """Return whether entries of this class are brokers with their addresses, and nothing else."""
    meanings = field_meanings(structure)
    return HOST in meanings and "error_code" not in meanings and any(map(_is_one_broker, meanings.values()))


def _keep_reachable(
    entries: list[Any], structure: type[Struct], addresses: Addresses, client: ClientConnection
) -> None:
    (name,) = fields_of(structure, Entity.BROKER_ID)
    entries[:] = [entry for entry in entries if addresses.address(getattr(entry, name), client) is not None]
