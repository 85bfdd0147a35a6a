"""Groups of the consumer protocol (KIP-848): heartbeats, and descriptions for administrators."""

from __future__ import annotations

from ....protocol.errors import BrokerError, ErrorCode
from ....protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)
from ....protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from ...coordinators.groups.consumer_protocol import HeartbeatingClient
from ..contract import RequestContext
from .groups import GROUP_OPERATIONS

CONSUMER = "consumer"
MEMBER_ID_MADE_BY_CLIENT_SINCE = 1


async def handle_consumer_group_heartbeat(
    request: ConsumerGroupHeartbeatRequest, context: RequestContext
) -> ConsumerGroupHeartbeatResponse:
    """Handle a member's heartbeat, with which it joins, stays in or leaves a group."""
    if not _is_served(context):
        return ConsumerGroupHeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    client = HeartbeatingClient(
        context.client_id or "",
        f"/{context.peer[0]}",
        makes_member_id=context.api_version >= MEMBER_ID_MADE_BY_CLIENT_SINCE,
    )
    try:
        await context.services.groups.match_patterns(request)
        return context.services.groups.consumer_heartbeat(request, client)
    except BrokerError as error:
        return ConsumerGroupHeartbeatResponse(error_code=error.code, error_message=error.message)


async def handle_consumer_group_describe(
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
    try:
        described = context.services.groups.describe_consumer_group(group_id)
    except BrokerError as error:
        return DescribedGroup(group_id=group_id, error_code=error.code)
    if include_operations:
        described.authorized_operations = GROUP_OPERATIONS
    return described


def _is_served(context: RequestContext) -> bool:
    return CONSUMER in context.services.config.group_coordinator_rebalance_protocols
