"""Operations that a client may perform, as bit sets in answers (KIP-430).

Bit n stands for the operation with the code n in Kafka's ``AclOperation``.
"""

from __future__ import annotations

from ...protocol.acls import CLUSTER_NAME, AclOperation, AclResourceType
from .contract import RequestContext

NOT_ASKED = -0x80000000
"""The value in a response to a client that did not ask for authorized operations."""


def cluster_operations(context: RequestContext, *, is_asked: bool) -> int:
    """Return the operations on the cluster that a client may perform; none unless the client may describe it."""
    if not is_asked:
        return NOT_ASKED
    if not context.may(AclOperation.DESCRIBE, AclResourceType.CLUSTER, CLUSTER_NAME):
        return 0
    return context.authorized_operations(AclResourceType.CLUSTER, CLUSTER_NAME)
