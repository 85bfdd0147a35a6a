"""Groups of the consumer protocol (KIP-848): heartbeats, and descriptions for administrators."""

from __future__ import annotations

from collections.abc import Collection

from ....protocol.acls import AclOperation, AclResourceType
from ....protocol.errors import BrokerError, ErrorCode
from ....protocol.internal_topics import GROUP_METADATA
from ....protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)
from ....protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from ...coordinators.groups.consumer_protocol import HeartbeatingClient
from ...coordinators.internal_log.unreplicated_writes import InternalKey
from ...server.outcome import Outcome
from ..contract import RequestContext

CONSUMER = "consumer"
MEMBER_ID_MADE_BY_CLIENT_SINCE = 1


def groups_of(request: ConsumerGroupDescribeRequest) -> list[InternalKey]:
    """Return the groups that a request describes; see `Api.waits_for_replicas`."""
    return [InternalKey(GROUP_METADATA, group_id) for group_id in request.group_ids]


def handle_consumer_group_heartbeat(
    request: ConsumerGroupHeartbeatRequest, context: RequestContext
) -> Outcome[ConsumerGroupHeartbeatResponse]:
    """Handle a member's heartbeat, with which it joins, stays in or leaves a group.

    Patterns are matched in worker threads, so a heartbeat of a group with patterns needs a task.
    """
    if not _is_served(context):
        return ConsumerGroupHeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    context.authorize(AclOperation.READ, AclResourceType.GROUP, request.group_id)
    client = HeartbeatingClient(
        context.client_id or "",
        f"/{context.peer[0]}",
        makes_member_id=context.api_version >= MEMBER_ID_MADE_BY_CLIENT_SINCE,
    )
    patterns = context.services.groups.patterns_of(request)
    if patterns:
        return _heartbeat_with_patterns(patterns, request, client, context)
    return _heartbeat(request, client, context)


async def _heartbeat_with_patterns(
    patterns: Collection[str],
    request: ConsumerGroupHeartbeatRequest,
    client: HeartbeatingClient,
    context: RequestContext,
) -> ConsumerGroupHeartbeatResponse:
    await context.services.groups.match_patterns(patterns)
    return _heartbeat(request, client, context)


def _heartbeat(
    request: ConsumerGroupHeartbeatRequest, client: HeartbeatingClient, context: RequestContext
) -> ConsumerGroupHeartbeatResponse:
    try:
        return context.services.groups.consumer_heartbeat(request, client)
    except BrokerError as error:
        return ConsumerGroupHeartbeatResponse(error_code=error.code, error_message=error.message)


def handle_consumer_group_describe(
    request: ConsumerGroupDescribeRequest, context: RequestContext
) -> ConsumerGroupDescribeResponse:
    """Describe the state, epochs and members of groups."""
    return ConsumerGroupDescribeResponse(
        groups=[
            _describe(group_id, context, include_operations=request.include_authorized_operations)
            for group_id in request.group_ids
        ]
    )


def _describe(group_id: str, context: RequestContext, *, include_operations: bool) -> DescribedGroup:
    if not _is_served(context):
        return DescribedGroup(group_id=group_id, error_code=ErrorCode.UNSUPPORTED_VERSION)
    if not context.may(AclOperation.DESCRIBE, AclResourceType.GROUP, group_id):
        return DescribedGroup(group_id=group_id, error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    try:
        described = context.services.groups.describe_consumer_group(group_id)
    except BrokerError as error:
        return DescribedGroup(group_id=group_id, error_code=error.code)
    if include_operations:
        described.authorized_operations = context.authorized_operations(AclResourceType.GROUP, group_id)
    return described


def _is_served(context: RequestContext) -> bool:
    return CONSUMER in context.services.config.group_coordinator_rebalance_protocols
