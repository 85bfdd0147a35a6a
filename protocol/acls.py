"""The vocabulary of access control lists (ACLs), with Kafka's codes: resources, patterns, operations, permissions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Final

CLUSTER_NAME: Final = "kafka-cluster"
"""The only name of a resource of type CLUSTER (Kafka `Resource.CLUSTER_NAME`)."""
WILDCARD: Final = "*"
"""The name in an ACL that stands for every resource, and the host that stands for every host."""
WILDCARD_PRINCIPAL: Final = "User:*"


class _Code(IntEnum):
    """A code on the wire; a code that Kafka 3.9 does not have counts as UNKNOWN, as in Kafka's `fromCode`."""

    @classmethod
    def _missing_(cls, value: object) -> _Code:
        return cls(0)

    @property
    def text(self) -> str:
        """The name in words that begin with a capital: DescribeConfigs (Kafka `SecurityUtils.toPascalCase`)."""
        return self.name.title().replace("_", "")


class AclResourceType(_Code):
    """The type of the resource that an ACL protects (Kafka `ResourceType`); ANY is for filters."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(_Code):
    """The interpretation of an ACL's resource name (KIP-290); ANY and MATCH are for filters."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(_Code):
    """The operation that an ACL allows or denies; ANY is for filters, ALL stands for every operation."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14


class AclPermission(_Code):
    """The permission of an ACL: allow or deny (Kafka `AclPermissionType`); ANY is for filters."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


IMPLIED_BY: Final[Mapping[AclOperation, frozenset[AclOperation]]] = {
    AclOperation.DESCRIBE: frozenset(
        {AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER},
    ),
    AclOperation.DESCRIBE_CONFIGS: frozenset({AclOperation.ALTER_CONFIGS}),
}
"""The operations whose permission includes that of the key; a denial includes no other (Kafka `StandardAuthorizer`)."""

SUPPORTED_OPERATIONS: Final[Mapping[AclResourceType, tuple[AclOperation, ...]]] = {
    AclResourceType.TOPIC: (
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.CREATE,
        AclOperation.DESCRIBE,
        AclOperation.DELETE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    AclResourceType.GROUP: (AclOperation.READ, AclOperation.DESCRIBE, AclOperation.DELETE),
    AclResourceType.CLUSTER: (
        AclOperation.CREATE,
        AclOperation.CLUSTER_ACTION,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
        AclOperation.IDEMPOTENT_WRITE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
    ),
    AclResourceType.TRANSACTIONAL_ID: (AclOperation.DESCRIBE, AclOperation.WRITE),
    AclResourceType.DELEGATION_TOKEN: (AclOperation.DESCRIBE,),
    AclResourceType.USER: (AclOperation.CREATE_TOKENS, AclOperation.DESCRIBE_TOKENS),
}
"""The operations that exist for each type of resource (Kafka `AclEntry.supportedOperations`)."""


def operation_bits(operations: Iterable[AclOperation]) -> int:
    """Return operations as a bit set of their codes, as authorized operations are on the wire (KIP-430)."""
    return sum(1 << operation for operation in set(operations))
