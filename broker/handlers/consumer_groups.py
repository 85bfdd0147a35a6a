"""Groups of the consumer protocol (KIP-848): heartbeats, and what administrators see."""

from __future__ import annotations

from ...protocol.errors import BrokerError, ErrorCode
from ...protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)
from ...protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from ..groups.consumer_protocol import HeartbeatingClient
from ..requests import RequestContext

CONSUMER = "consumer"


async def handle_consumer_group_heartbeat(
    request: ConsumerGroupHeartbeatRequest, context: RequestContext
) -> ConsumerGroupHeartbeatResponse:
    """Join, stay in and leave a group."""
    if not _is_served(context):
        return ConsumerGroupHeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    client = HeartbeatingClient(context.client_id or "", f"/{context.peer[0]}")
    try:
        return context.broker.groups.consumer_heartbeat(request, client)
    except BrokerError as error:
        return ConsumerGroupHeartbeatResponse(error_code=error.code, error_message=error.message)


async def handle_consumer_group_describe(
    request: ConsumerGroupDescribeRequest, context: RequestContext
) -> ConsumerGroupDescribeResponse:
    """State, epochs and members of groups."""
    if not _is_served(context):
        unserved = ErrorCode.UNSUPPORTED_VERSION
        return ConsumerGroupDescribeResponse(
            groups=[DescribedGroup(group_id=group_id, error_code=unserved) for group_id in request.group_ids]
        )
    described = [context.broker.groups.describe_consumer_group(group_id) for group_id in request.group_ids]
    return ConsumerGroupDescribeResponse(groups=described)


def _is_served(context: RequestContext) -> bool:
    return CONSUMER in context.broker.config.group_coordinator_rebalance_protocols
