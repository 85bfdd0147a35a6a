"""Decisions about what clients may do, and the audit log.

Kafka's `StandardAuthorizer` is the model: super users first, then denials, then permissions, then the default.
"""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Iterable
from typing import NamedTuple
from uuid import UUID

from ...protocol.acls import AclOperation, AclPermission, AclResourceType
from ...protocol.apis import AnyApiKey, api_name
from ...protocol.messages.cluster_metadata_records import AccessControlEntryRecord
from ...security.principal import KafkaPrincipal
from ..metadata.changes import AclsChanged
from ..monitoring.loggers import LEVELS
from .acl import Acl
from .acl_index import AclIndex, Subject, for_subject

audit = logging.getLogger("kafka.authorizer.logger")
"""The audit log, under the name of Kafka's logger."""
TRACE = LEVELS["TRACE"]
LONGEST_KEPT_NAME = 249
"""The longest name for which a decision is kept: no topic has a longer name, while groups may have 32 kB."""
ANY_RESOURCE = "hardcode"
"""The name that Kafka checks in place of any resource of a type; the audit log shows it."""


class Decision(NamedTuple):
    """A decision about one operation, with the rule behind it in Kafka's words."""

    is_allowed: bool
    rule: str | Acl

    def __str__(self) -> str:
        return f"MatchingAcl(acl={self.rule})" if isinstance(self.rule, Acl) else self.rule


SUPER_USER = Decision(True, "SuperUser")
DEFAULT_ALLOW = Decision(True, "DefaultAllow")
DEFAULT_DENY = Decision(False, "DefaultDeny")


class StandardAuthorizer:
    """An authorizer that decides by the ACLs in the cluster's metadata."""

    def __init__(self, super_users: frozenset[str], *, allows_without_acl: bool, most_decisions: int) -> None:
        """Decide without ACLs at first; keep ``most_decisions`` decisions at most, until an ACL changes."""
        self._super_users = super_users
        self._default = DEFAULT_ALLOW if allows_without_acl else DEFAULT_DENY
        self.acls: dict[UUID, Acl] = {}
        """All ACLs by id, not to be changed."""
        self._index = AclIndex()
        self._most_decisions = most_decisions
        self._decisions: dict[tuple[str, str, str, AclOperation, AclResourceType, str], Decision] = {}

    def load(self, records: Iterable[AccessControlEntryRecord]) -> None:
        """Replace all ACLs."""
        self.acls = {}
        self._index = AclIndex()
        self.follow(AclsChanged(added=tuple(records), removed=()))

    def follow(self, change: AclsChanged) -> None:
        """Take over a change of the metadata."""
        for record in change.removed:
            acl = self.acls.pop(record.id, None)
            if acl is not None:
                self._index.remove(acl)
        for record in change.added:
            acl = self.acls[record.id] = Acl.of_record(record)
            self._index.add(acl)
        self._decisions.clear()

    def holds(self, acl: Acl) -> bool:
        """Return whether an ACL is in force."""
        return acl in self._index

    def is_authorized(
        self,
        principal: KafkaPrincipal,
        host: str,
        operation: AclOperation,
        resource_type: AclResourceType,
        name: str,
        *,
        api_key: AnyApiKey,
        mentions: int = 1,
        logs_allowed: bool = True,
        logs_denied: bool = True,
    ) -> bool:
        """Return whether a principal from a host may perform an operation on a resource, and write the audit log.

        A permission is logged at DEBUG, and a denial at INFO; the two flags lower this to TRACE (Kafka `Action`).
        """
        decision = self.decide(principal, host, operation, resource_type, name)
        if decision.is_allowed:
            level = logging.DEBUG if logs_allowed else TRACE
        else:
            level = logging.INFO if logs_denied else TRACE
        if audit.isEnabledFor(level):
            audit.log(
                level,
                "Principal = %s is %s operation = %s from host = %s on resource = %s:LITERAL:%s for request = %s "
                "with resourceRefCount = %d based on rule %s",
                _on_one_line(str(principal)),
                "Allowed" if decision.is_allowed else "Denied",
                operation.name,
                _java_host(host),
                resource_type.text,
                _on_one_line(name),
                api_name(api_key),
                mentions,
                _on_one_line(str(decision)),
            )
        return decision.is_allowed

    def decide(
        self,
        principal: KafkaPrincipal,
        host: str,
        operation: AclOperation,
        resource_type: AclResourceType,
        name: str,
    ) -> Decision:
        """Return the decision about an operation, without an audit log."""
        key = (principal.principal_type, principal.name, host, operation, resource_type, name)
        decision = self._decisions.get(key)
        if decision is None:
            decision = self._decision(_subject(principal, host), operation, resource_type, name)
            if len(name) <= LONGEST_KEPT_NAME:
                if len(self._decisions) >= self._most_decisions:
                    self._decisions.clear()
                self._decisions[key] = decision
        return decision

    def may_do_with_any(
        self,
        principal: KafkaPrincipal,
        host: str,
        operation: AclOperation,
        resource_type: AclResourceType,
        api_key: AnyApiKey,
    ) -> bool:
        """Return whether a principal may perform an operation on some resource of a type (KIP-679)."""
        if self.is_authorized(
            principal, host, operation, resource_type, ANY_RESOURCE, api_key=api_key, mentions=0, logs_denied=False
        ):
            return True
        return self._index.may_do_with_any(operation, resource_type, _subject(principal, host))

    def _decision(
        self, subject: Subject, operation: AclOperation, resource_type: AclResourceType, name: str
    ) -> Decision:
        if subject[0] in self._super_users:
            return SUPER_USER
        matching = self._index.matching(resource_type, name)
        if not matching:
            return self._default
        concerned = sorted(
            (acl for acl in for_subject(matching, subject) if acl.covers(operation)), key=lambda acl: acl.scan_position
        )
        denying = next((acl for acl in concerned if acl.permission is not AclPermission.ALLOW), None)
        if denying is not None:
            return Decision(False, denying)
        return Decision(True, concerned[-1]) if concerned else DEFAULT_DENY


def _subject(principal: KafkaPrincipal, host: str) -> Subject:
    return str(principal), _java_host(host)


def _java_host(host: str) -> str:
    """Return an address as Java's `InetAddress.getHostAddress` writes it, since ACLs name hosts in this form.

    Addresses of IPv6 have all their eight numbers there; an IPv4 address within IPv6 is an IPv4 address.
    """
    plain, percent, zone = host.partition("%")
    try:
        address = ipaddress.ip_address(plain)
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return plain
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return ":".join(f"{int(group, 16):x}" for group in address.exploded.split(":")) + percent + zone


def _on_one_line(text: str) -> str:
    """Return a text whose control characters are escaped: names from clients must not forge lines of the log."""
    return text if text.isprintable() else text.encode("unicode_escape").decode("ascii")
