"""The rights to fetch: consumers need READ on each topic, followers CLUSTER_ACTION on the cluster."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import TypeAlias

from ....protocol.acls import CLUSTER_NAME, AclOperation, AclResourceType
from ....protocol.errors import ErrorCode
from ...replicas.fetching.sessions import FetchedPartition
from ...replicas.partition import Partition
from ..contract import RequestContext
from ..rights import EVERYTHING

Found: TypeAlias = tuple[FetchedPartition, Partition | ErrorCode]
"""A requested partition, and where it is or why not."""
DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


def readable(found: Sequence[Found], context: RequestContext, *, is_follower: bool) -> Sequence[Found]:
    """Return partitions with an error in place of those that the client may not read, whether they exist or not."""
    if context.services.authorizer is None:
        return found
    allowed: Container[str]
    if is_follower:
        may = context.may(AclOperation.CLUSTER_ACTION, AclResourceType.CLUSTER, CLUSTER_NAME)
        allowed = EVERYTHING if may else ()
    else:
        # Partitions of unknown topic ids have no name, and answer UNKNOWN_TOPIC_ID.
        names = (fetched.topic for fetched, _ in found if fetched.topic)
        allowed = context.authorized(AclOperation.READ, AclResourceType.TOPIC, names)
    return [
        (fetched, at if fetched.topic in allowed or not (fetched.topic or is_follower) else DENIED)
        for fetched, at in found
    ]
