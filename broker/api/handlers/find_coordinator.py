"""FindCoordinator: the broker that coordinates a group or a transactional id."""

from __future__ import annotations

from enum import IntEnum

from ....protocol.acls import CLUSTER_NAME, AclOperation, AclResourceType
from ....protocol.errors import BrokerError, ErrorCode
from ....protocol.internal_topics import GROUP_METADATA, TRANSACTION_STATE
from ....protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from ...coordinators.internal_log.coordinator_log import partition_for
from ..advertised import VisibleBroker, visible_brokers
from ..contract import RequestContext

BATCHED_SINCE = 4
SHARE_GROUPS_KNOWN_SINCE = 6
NOBODY = -1


class KeyType(IntEnum):
    """A type of coordinator key (Kafka `CoordinatorType`)."""

    GROUP = 0
    TRANSACTION = 1
    SHARE = 2
    """A share group (KIP-932): these have no coordinator here, as in Kafka 3.9 unless share groups are enabled."""


TOPIC_OF = {KeyType.GROUP: GROUP_METADATA, KeyType.TRANSACTION: TRANSACTION_STATE}


def handle_find_coordinator(request: FindCoordinatorRequest, context: RequestContext) -> FindCoordinatorResponse:
    """Return the coordinator of each key, and create the internal topic that holds its state if it is missing."""
    if context.api_version >= BATCHED_SINCE:
        return FindCoordinatorResponse(
            coordinators=[_coordinator(key, request.key_type, context) for key in request.coordinator_keys]
        )
    found = _coordinator(request.key, request.key_type, context)
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


def _coordinator(key: str, key_type: int, context: RequestContext) -> Coordinator:
    try:
        _authorize(key, key_type, context)
        if key_type == KeyType.SHARE and context.api_version >= SHARE_GROUPS_KNOWN_SINCE:
            raise BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if key_type not in TOPIC_OF:
            raise BrokerError(ErrorCode.INVALID_REQUEST, f"There are no coordinators of type {key_type} here.")
        broker = _leader_of(key, TOPIC_OF[KeyType(key_type)], context)
    except BrokerError as error:
        return Coordinator(
            key=key, error_code=error.code, error_message=error.message, node_id=NOBODY, host="", port=NOBODY
        )
    return Coordinator(key=key, node_id=broker.node_id, host=broker.host, port=broker.port, error_message=None)


def _authorize(key: str, key_type: int, context: RequestContext) -> None:
    """Raise BrokerError unless the client may know the coordinator of a key."""
    if key_type == KeyType.GROUP:
        context.authorize(AclOperation.DESCRIBE, AclResourceType.GROUP, key)
    elif key_type == KeyType.TRANSACTION:
        context.authorize(AclOperation.DESCRIBE, AclResourceType.TRANSACTIONAL_ID, key)
    elif key_type == KeyType.SHARE and context.api_version >= SHARE_GROUPS_KNOWN_SINCE:
        context.authorize(AclOperation.CLUSTER_ACTION, AclResourceType.CLUSTER, CLUSTER_NAME)


def _leader_of(key: str, topic_name: str, context: RequestContext) -> VisibleBroker:
    """Return the broker that leads the partition of a key. Raises BrokerError COORDINATOR_NOT_AVAILABLE."""
    metadata = context.services.metadata
    try:
        topic = metadata.ensure_topic(topic_name)
    except BrokerError as error:
        if metadata.is_alone:
            raise
        # The topic's partitions may be about to be created; clients retry.
        raise BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message) from None
    leader = topic.partitions[partition_for(key, len(topic.partitions))].leader
    found = next((broker for broker in visible_brokers(context) if broker.node_id == leader), None)
    if found is None:
        raise BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return found
