"""Groups: joining, syncing, heartbeats and leaving, and the requests of administrators."""

from __future__ import annotations

from ....protocol.errors import ErrorCode
from ....protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from ....protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from ....protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ....protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from ....protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from ....protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from ....protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from ...coordinators.groups.classic_protocol import JoiningClient
from ..contract import RequestContext

MEMBER_ID_REQUIRED_SINCE = 4
"""First JoinGroup version whose clients may be asked to retry with a member id (KIP-394)."""
SKIP_ASSIGNMENT_SINCE = 9
"""First JoinGroup version in which the answer can tell a leader to skip the assignment (KIP-814)."""
NULL_PROTOCOL_SINCE = 7
PROTOCOL_REQUIRED_SINCE = 5
"""First SyncGroup version that must name the protocol that the member has joined with (KIP-559)."""
BATCHED_LEAVE_SINCE = 3
GROUP_OPERATIONS = 1 << 3 | 1 << 6 | 1 << 8
"""READ, DELETE and DESCRIBE: the operations on a group that every client may perform, without an authorizer."""


async def handle_join_group(request: JoinGroupRequest, context: RequestContext) -> JoinGroupResponse:
    """Join or rejoin a group; the answer is pending until the group's next generation begins."""
    client = JoiningClient(
        client_id=context.client_id or "",
        client_host=f"/{context.peer[0]}",
        takes_member_id=context.api_version >= MEMBER_ID_REQUIRED_SINCE,
        skips_assignment=context.api_version >= SKIP_ASSIGNMENT_SINCE,
    )
    response = await context.services.groups.join(request, client).wait_or_hangup(context.hangup)
    if response.protocol_name is None and context.api_version < NULL_PROTOCOL_SINCE:
        response.protocol_name = ""
    return response


async def handle_sync_group(request: SyncGroupRequest, context: RequestContext) -> SyncGroupResponse:
    """Distribute the leader's assignments; a member's answer is pending until the leader has sent them."""
    names_protocol = request.protocol_type is not None and request.protocol_name is not None
    if context.api_version >= PROTOCOL_REQUIRED_SINCE and not names_protocol:
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    return await context.services.groups.sync(request).wait_or_hangup(context.hangup)


async def handle_heartbeat(request: HeartbeatRequest, context: RequestContext) -> HeartbeatResponse:
    """Record that a member is alive, and answer whether it must rejoin."""
    return HeartbeatResponse(error_code=context.services.groups.heartbeat(request))


async def handle_leave_group(request: LeaveGroupRequest, context: RequestContext) -> LeaveGroupResponse:
    """Remove members from a group; before version 3 there is one, whose error is the top-level error."""
    is_batched = context.api_version >= BATCHED_LEAVE_SINCE
    members = request.members if is_batched else [MemberIdentity(member_id=request.member_id)]
    results = context.services.groups.leave(request.group_id, members)
    if is_batched:
        return LeaveGroupResponse(members=results)
    return LeaveGroupResponse(error_code=results[0].error_code)


async def handle_describe_groups(request: DescribeGroupsRequest, context: RequestContext) -> DescribeGroupsResponse:
    """Describe the state and members of groups."""
    described = [context.services.groups.describe(group_id) for group_id in request.groups]
    if request.include_authorized_operations:
        for group in described:
            if group.error_code == ErrorCode.NONE:
                group.authorized_operations = GROUP_OPERATIONS
    return DescribeGroupsResponse(groups=described)


async def handle_list_groups(request: ListGroupsRequest, context: RequestContext) -> ListGroupsResponse:
    """List all groups, or those in certain states (KIP-518) or of certain types (KIP-848)."""
    error, groups = context.services.groups.list(request.states_filter, request.types_filter)
    return ListGroupsResponse(error_code=error, groups=groups)


async def handle_delete_groups(request: DeleteGroupsRequest, context: RequestContext) -> DeleteGroupsResponse:
    """Delete groups that have no members, and their committed offsets."""
    return DeleteGroupsResponse(
        results=[
            DeletableGroupResult(group_id=group_id, error_code=context.services.groups.delete(group_id))
            for group_id in dict.fromkeys(request.groups_names)
        ]
    )
