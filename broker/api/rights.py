"""The rights that requests need: words for the rows of the table of APIs, and the errors of clients without them."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from typing import Any, NamedTuple

from ...protocol.acls import CLUSTER_NAME, AclOperation, AclResourceType
from ...protocol.errors import ErrorCode
from ...protocol.message_places import first_value
from ...protocol.schema import Entity, Message

AUTHORIZATION_ERROR: Mapping[AclResourceType, tuple[ErrorCode, str]] = {
    AclResourceType.TOPIC: (ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed."),
    AclResourceType.GROUP: (ErrorCode.GROUP_AUTHORIZATION_FAILED, "Group authorization failed."),
    AclResourceType.CLUSTER: (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed."),
    AclResourceType.TRANSACTIONAL_ID: (
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        "Transactional Id authorization failed.",
    ),
    AclResourceType.DELEGATION_TOKEN: (
        ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
        "Delegation Token authorization failed.",
    ),
}
"""The error of a client without a right on a resource, with Kafka's text (Kafka `AclEntry.authorizationError`)."""

_NAMED_BY = {AclResourceType.GROUP: Entity.GROUP_ID, AclResourceType.TRANSACTIONAL_ID: Entity.TRANSACTIONAL_ID}


class Right(NamedTuple):
    """A right that a request as a whole needs: one of these operations, on the resource that the request names."""

    resource_type: AclResourceType
    operations: tuple[AclOperation, ...]
    is_needed: Callable[[Any], bool] = lambda request: True
    """Whether a request needs the right."""

    def resource_name(self, request: Message) -> str:
        """Return the name of the resource: the cluster, or the request's group or transactional id."""
        entity = _NAMED_BY.get(self.resource_type)
        return CLUSTER_NAME if entity is None else first_value(request, entity) or ""


def on_cluster(*operations: AclOperation) -> Right:
    """Return the right to one of these operations on the cluster."""
    return Right(AclResourceType.CLUSTER, operations)


def on_group(operation: AclOperation) -> Right:
    """Return the right to an operation on the request's group."""
    return Right(AclResourceType.GROUP, (operation,))


def on_transactional_id(operation: AclOperation, *, if_: Callable[[Any], bool] | None = None) -> Right:
    """Return the right to an operation on the request's transactional id, for all requests or for some."""
    right = Right(AclResourceType.TRANSACTIONAL_ID, (operation,))
    return right if if_ is None else right._replace(is_needed=if_)


class Everything(Container[str]):
    """A container of every name: what clients of a broker without an authorizer may use."""

    def __contains__(self, name: object) -> bool:
        return True


EVERYTHING = Everything()
