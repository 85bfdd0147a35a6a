"""One access control list entry (ACL)."""

from __future__ import annotations

from typing import NamedTuple

from ...protocol.acls import IMPLIED_BY, WILDCARD, AclOperation, AclPermission, AclResourceType, PatternType
from ...protocol.messages.cluster_metadata_records import AccessControlEntryRecord


class Acl(NamedTuple):
    """An ACL: what a principal from a host may or must not do with the resources that a pattern matches."""

    resource_type: AclResourceType
    resource_name: str
    pattern_type: PatternType
    principal: str
    host: str
    operation: AclOperation
    permission: AclPermission

    @classmethod
    def of_record(cls, record: AccessControlEntryRecord) -> Acl:
        """Return the ACL in a metadata record."""
        return cls(
            AclResourceType(record.resource_type),
            record.resource_name,
            PatternType(record.pattern_type),
            record.principal,
            record.host,
            AclOperation(record.operation),
            AclPermission(record.permission_type),
        )

    def covers(self, operation: AclOperation) -> bool:
        """Return whether the ACL concerns an operation; a permission may imply others (Kafka `findResult`)."""
        if self.operation in (operation, AclOperation.ALL):
            return True
        return self.permission is AclPermission.ALLOW and self.operation in IMPLIED_BY.get(operation, ())

    @property
    def scan_position(self) -> tuple[object, ...]:
        """The place of this ACL among those that match one resource, in the order in which Kafka reads them.

        Kafka reads the longest pattern first and the wildcard last (`StandardAuthorizerData.findAclRule`).
        """
        is_wildcard = self.pattern_type is PatternType.LITERAL and self.resource_name == WILDCARD
        where = (is_wildcard, -len(self.resource_name), self.pattern_type)
        return (*where, self.operation, self.principal, self.host, self.permission)

    def __str__(self) -> str:
        """Return the text of Kafka's `StandardAcl.toString`, which the audit log repeats."""
        return (
            f"StandardAcl(resourceType={self.resource_type.name}, resourceName={self.resource_name}, "
            f"patternType={self.pattern_type.name}, principal={self.principal}, host={self.host}, "
            f"operation={self.operation.name}, permissionType={self.permission.name})"
        )
