"""Definitions of client quotas: valid entities, keys and values, and filters (KIP-546, KIP-612, KIP-599).

Source of the rules and messages: Kafka `ClientQuotaControlManager`, `ClientQuotaCache` and `ZkAdminManager`'s filters.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...protocol.errors import BrokerError, ErrorCode

if TYPE_CHECKING:
    from ..metadata.state import Entity

USER, CLIENT_ID, IP = "user", "client-id", "ip"

WHOLE_NUMBERS = frozenset({"producer_byte_rate", "consumer_byte_rate"})
USER_KEYS = frozenset({"producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate"})
IP_KEYS = frozenset({"connection_creation_rate"})
KEYS: Mapping[str, frozenset[str]] = {USER: USER_KEYS, CLIENT_ID: USER_KEYS, IP: IP_KEYS}

MATCH_EXACT, MATCH_DEFAULT, MATCH_ANY = 0, 1, 2

_HOST_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*")


def entity_of(parts: Sequence[tuple[str, str | None]]) -> Entity:
    """Return the entity in a request. Raises BrokerError INVALID_REQUEST for an invalid entity."""
    if not parts:
        raise _invalid("Invalid empty client quota entity")
    named = dict(parts)
    for kind, name in named.items():
        if kind not in KEYS:
            raise _invalid(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise _invalid(f"Empty {kind} not supported")
    if IP in named and len(named) > 1:
        raise _invalid("Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId")
    address = named.get(IP)
    if address is not None and not _is_address(address):
        raise _invalid(f"{address} is not a valid IP or resolvable host.")
    return tuple(sorted(named.items()))


def validated_changes(entity: Entity, ops: Iterable[tuple[str, float | None]]) -> dict[str, float | None]:
    """Return values by key, None to remove one. Raises BrokerError INVALID_REQUEST for an invalid key or value."""
    allowed = KEYS[entity[0][0]]
    changes: dict[str, float | None] = {}
    for key, value in ops:
        if key in changes:
            shown = ", ".join(f"{kind}={name}" for kind, name in entity)
            raise _invalid(f"Ignoring duplicate entity ClientQuotaEntity(entries={{{shown}}})")
        if value is not None:
            _validate_value(key, value, allowed)
        changes[key] = value
    return changes


def _validate_value(key: str, value: float, allowed: frozenset[str]) -> None:
    if key not in allowed:
        raise _invalid(f"Invalid configuration key {key}")
    if not value > 0:
        raise _invalid(f"Quota {key} must be greater than 0")
    if key in WHOLE_NUMBERS and not value.is_integer():
        raise _invalid(f"{key} cannot be a fractional value.")


@dataclass(frozen=True, slots=True)
class QuotaFilter:
    """A filter of entities: (match type, name) by entity type; a strict filter excludes other types."""

    components: Mapping[str, tuple[int, str | None]]
    strict: bool

    def takes(self, entity: Entity) -> bool:
        """Return whether the filter matches the entity."""
        named = dict(entity)
        if self.strict and len(named) != len(self.components):
            return False
        for kind, (match_type, name) in self.components.items():
            if kind not in named:
                return False
            if match_type == MATCH_EXACT and named[kind] != name:
                return False
            if match_type == MATCH_DEFAULT and named[kind] is not None:
                return False
        return True


def filter_of(components: Iterable[tuple[str, int, str | None]], *, strict: bool) -> QuotaFilter:
    """Return the filter of a request.

    Raises BrokerError INVALID_REQUEST, UNSUPPORTED_VERSION (an unknown entity type).
    """
    found: dict[str, tuple[int, str | None]] = {}
    for kind, match_type, match in components:
        if not kind:
            raise _invalid("Invalid empty entity type.")
        if kind in found:
            raise _invalid(f"Entity type {kind} cannot appear more than once in the filter.")
        if kind not in KEYS:
            raise BrokerError(ErrorCode.UNSUPPORTED_VERSION, f"Custom entity type '{kind}' not supported")
        if match_type == MATCH_EXACT and match is None:
            raise _invalid("Request specified MATCH_TYPE_EXACT, but set match string to null.")
        if match_type == MATCH_DEFAULT and match is not None:
            raise _invalid("Request specified MATCH_TYPE_DEFAULT, but also specified a match string.")
        if match_type == MATCH_ANY and match is not None:
            raise _invalid("Request specified MATCH_TYPE_SPECIFIED, but also specified a match string.")
        if match_type not in (MATCH_EXACT, MATCH_DEFAULT, MATCH_ANY):
            raise _invalid(f"Unknown match type {match_type}")
        found[kind] = (match_type, match)
    if IP in found and len(found) > 1:
        raise _invalid(
            "Invalid entity filter component combination. IP filter component should not be used with user or "
            "clientId filter component."
        )
    return QuotaFilter(found, strict)


def _is_address(name: str) -> bool:
    """Return whether a name is an address or a valid host name; resolving it would block the event loop."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return len(name) < 254 and _HOST_NAME.fullmatch(name) is not None
    return True


def _invalid(reason: str) -> BrokerError:
    return BrokerError(ErrorCode.INVALID_REQUEST, reason)
