"""Validation of the ACLs and filters that administrators add, remove and list, with Kafka's error messages.

The records are the controller's to write (Kafka `AclControlManager`).
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import uuid4

from ...protocol.acls import CLUSTER_NAME, WILDCARD, AclOperation, AclPermission, AclResourceType, PatternType
from ...protocol.errors import BrokerError, ErrorCode
from ...protocol.messages.cluster_metadata_records import AccessControlEntryRecord
from .acl import Acl


@dataclass(frozen=True, slots=True)
class AclFilter:
    """A filter of ACLs (Kafka `AclBindingFilter`); a name, principal or host of None matches all of them."""

    resource_type: AclResourceType
    resource_name: str | None
    pattern_type: PatternType
    principal: str | None
    host: str | None
    operation: AclOperation
    permission: AclPermission

    def check(self) -> None:
        """Raise BrokerError INVALID_REQUEST for codes that Kafka 3.9 does not have."""
        if self.resource_type is AclResourceType.UNKNOWN or self.pattern_type is PatternType.UNKNOWN:
            raise _invalid("Unknown patternFilter.")
        if self.operation is AclOperation.UNKNOWN or self.permission is AclPermission.UNKNOWN:
            raise _invalid("Unknown entryFilter.")

    def matches(self, acl: Acl) -> bool:
        """Return whether the filter selects an ACL."""
        return (
            self.resource_type in (AclResourceType.ANY, acl.resource_type)
            and self._matches_pattern(acl)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (AclOperation.ANY, acl.operation)
            and self.permission in (AclPermission.ANY, acl.permission)
        )

    def _matches_pattern(self, acl: Acl) -> bool:
        """Return whether pattern and name are the wanted ones (Kafka `ResourcePatternFilter.matches`).

        The pattern type MATCH selects all patterns that match a resource of that name.
        """
        if self.pattern_type is not PatternType.MATCH:
            return self.pattern_type in (PatternType.ANY, acl.pattern_type) and self.resource_name in (
                None,
                acl.resource_name,
            )
        if self.resource_name is None or self.resource_name == acl.resource_name:
            return True
        if acl.pattern_type is PatternType.LITERAL:
            return acl.resource_name == WILDCARD
        return self.resource_name.startswith(acl.resource_name)


def check_new(acl: Acl) -> None:
    """Raise BrokerError INVALID_REQUEST, with Kafka's message, for an ACL that may not be stored."""
    if acl.resource_type is AclResourceType.CLUSTER and acl.resource_name != CLUSTER_NAME:
        raise _invalid(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not acl.resource_name:
        raise _invalid("Invalid empty resource name")
    if acl.resource_type in (AclResourceType.UNKNOWN, AclResourceType.ANY):
        raise _invalid(f"Invalid resourceType {acl.resource_type.name}")
    if acl.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise _invalid(f"Invalid patternType {acl.pattern_type.name}")
    if acl.operation in (AclOperation.UNKNOWN, AclOperation.ANY):
        raise _invalid(f"Invalid operation {acl.operation.name}")
    if acl.permission not in (AclPermission.DENY, AclPermission.ALLOW):
        raise _invalid(f"Invalid permissionType {acl.permission.name}")
    if ":" not in acl.principal:
        raise _invalid(
            f"Could not parse principal from `{acl.principal}` (no colon is present separating the principal type from "
            "the principal name)"
        )


def new_record(acl: Acl) -> AccessControlEntryRecord:
    """Return the metadata record of a new ACL, with an id of its own."""
    return AccessControlEntryRecord(
        id=uuid4(),
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )


def _invalid(reason: str) -> BrokerError:
    return BrokerError(ErrorCode.INVALID_REQUEST, reason)
