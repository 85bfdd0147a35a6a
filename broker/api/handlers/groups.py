"""Groups: joining, syncing, heartbeats and leaving, and the requests of administrators."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import chain
from typing import Protocol, cast

from ....protocol.acls import CLUSTER_NAME, AclOperation, AclResourceType
from ....protocol.errors import BrokerError, ErrorCode
from ....protocol.internal_topics import GROUP_METADATA
from ....protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from ....protocol.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from ....protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ....protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from ....protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from ....protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from ....protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from ....protocol.schema import EncodedStruct
from ...coordinators.groups.classic_protocol import JoiningClient
from ...coordinators.groups.description import list_group, list_revision
from ...coordinators.groups.group_map import Group
from ...coordinators.internal_log.unreplicated_writes import InternalKey
from ...server.outcome import Outcome, then
from ...server.pending import Pending
from ..contract import RequestContext
from ..encoded_structs import View
from ..turns import each_in_turns

MEMBER_ID_REQUIRED_SINCE = 4
"""First JoinGroup version whose clients may be asked to retry with a member id (KIP-394)."""
SKIP_ASSIGNMENT_SINCE = 9
"""First JoinGroup version in which the answer can tell a leader to skip the assignment (KIP-814)."""
NULL_PROTOCOL_SINCE = 7
PROTOCOL_REQUIRED_SINCE = 5
"""First SyncGroup version that must name the protocol that the member has joined with (KIP-559)."""
BATCHED_LEAVE_SINCE = 3
GROUPS_A_STEP = 100
"""The groups that are listed between two looks at the time; to find the encoded entry of a group takes 0.1 us."""


class OfOneGroup(Protocol):
    """A request for one group."""

    group_id: str


def group_of(request: OfOneGroup) -> list[InternalKey]:
    """Return the group that a request is for; see `Api.waits_for_replicas`."""
    return [InternalKey(GROUP_METADATA, request.group_id)]


def groups_to_delete(request: DeleteGroupsRequest) -> list[InternalKey]:
    """Return the groups that a request deletes."""
    return [InternalKey(GROUP_METADATA, group_id) for group_id in request.groups_names]


def handle_join_group(
    request: JoinGroupRequest, context: RequestContext
) -> JoinGroupResponse | Pending[JoinGroupResponse]:
    """Join or rejoin a group; the answer is pending until the group's next generation begins."""
    if not context.may(AclOperation.READ, AclResourceType.GROUP, request.group_id):
        no_protocol = None if context.api_version >= NULL_PROTOCOL_SINCE else ""
        return JoinGroupResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED, protocol_name=no_protocol)
    client = JoiningClient(
        client_id=context.client_id or "",
        client_host=f"/{context.peer[0]}",
        takes_member_id=context.api_version >= MEMBER_ID_REQUIRED_SINCE,
        skips_assignment=context.api_version >= SKIP_ASSIGNMENT_SINCE,
    )
    joined = context.services.groups.join(request, client)
    return joined if context.api_version >= NULL_PROTOCOL_SINCE else joined.map(_without_null_protocol)


def _without_null_protocol(response: JoinGroupResponse) -> JoinGroupResponse:
    if response.protocol_name is None:
        response.protocol_name = ""
    return response


def handle_sync_group(
    request: SyncGroupRequest, context: RequestContext
) -> SyncGroupResponse | Pending[SyncGroupResponse]:
    """Distribute the leader's assignments; a member's answer is pending until the leader has sent them."""
    names_protocol = request.protocol_type is not None and request.protocol_name is not None
    if context.api_version >= PROTOCOL_REQUIRED_SINCE and not names_protocol:
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    context.authorize(AclOperation.READ, AclResourceType.GROUP, request.group_id)
    return context.services.groups.sync(request)


def handle_heartbeat(request: HeartbeatRequest, context: RequestContext) -> HeartbeatResponse:
    """Record that a member is alive, and answer whether it must rejoin."""
    context.services.groups.heartbeat(request)
    return HeartbeatResponse()


def handle_leave_group(request: LeaveGroupRequest, context: RequestContext) -> LeaveGroupResponse:
    """Remove members from a group; before version 3 there is one, whose error is the top-level error."""
    is_batched = context.api_version >= BATCHED_LEAVE_SINCE
    members = request.members if is_batched else [MemberIdentity(member_id=request.member_id)]
    results = context.services.groups.leave(request.group_id, members)
    if is_batched:
        return LeaveGroupResponse(members=results)
    return LeaveGroupResponse(error_code=results[0].error_code)


def handle_describe_groups(request: DescribeGroupsRequest, context: RequestContext) -> DescribeGroupsResponse:
    """Describe the state and members of groups."""
    return DescribeGroupsResponse(groups=[_described(group_id, request, context) for group_id in request.groups])


def _described(group_id: str, request: DescribeGroupsRequest, context: RequestContext) -> DescribedGroup:
    if not context.may(AclOperation.DESCRIBE, AclResourceType.GROUP, group_id):
        return DescribedGroup(group_id=group_id, error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    try:
        described = context.services.groups.describe(group_id)
    except BrokerError as refusal:
        return DescribedGroup(group_id=group_id, error_code=refusal.code)
    if request.include_authorized_operations:
        described.authorized_operations = context.authorized_operations(AclResourceType.GROUP, group_id)
    return described


def handle_list_groups(request: ListGroupsRequest, context: RequestContext) -> Outcome[ListGroupsResponse]:
    """List all groups, or those in certain states (KIP-518) or of certain types (KIP-848).

    A client that may not describe the cluster gets the groups that it may describe.
    """
    describe = AclOperation.DESCRIBE
    states, types = request.states_filter, request.types_filter
    if context.encoded is not None and context.may_do_everything and not states and not types:
        error, every = context.services.groups.all_groups()
        view = context.encoded.view(ListGroupsResponse, context.api_version)
        steps = [every[at : at + GROUPS_A_STEP] for at in range(0, len(every), GROUPS_A_STEP)]
        entries = each_in_turns(partial(_encoded_entries, view), steps, len(every))
        return then(entries, partial(_list_response, error))
    error, groups = context.services.groups.list(states, types)
    if not context.may(describe, AclResourceType.CLUSTER, CLUSTER_NAME, is_filter=True):
        names = (group.group_id for group in groups)
        allowed = context.authorized(describe, AclResourceType.GROUP, names, is_filter=True)
        groups = [group for group in groups if group.group_id in allowed]
    return ListGroupsResponse(error_code=error, groups=groups)


def _list_response(error: ErrorCode, steps: list[list[ListedGroup]]) -> ListGroupsResponse:
    return ListGroupsResponse(error_code=error, groups=list(chain.from_iterable(steps)))


def _encoded_entries(view: View, groups: Sequence[Group]) -> list[ListedGroup]:
    """Return the encoded entries of groups in the list of groups."""
    find = view.entries.get
    entries = [
        found.encoded
        if (found := find(group.group_id)) is not None and found.revision == list_revision(group)
        else _encoded_anew(view, group)
        for group in groups
    ]
    return cast(list[ListedGroup], entries)


def _encoded_anew(view: View, group: Group) -> EncodedStruct:
    """Return the encoded entry of a group that is new or has changed since the last list, and keep it."""
    encoded = view.encode(list_group(group), 0)
    view.keep(group.group_id, list_revision(group), encoded)
    return encoded


def handle_delete_groups(request: DeleteGroupsRequest, context: RequestContext) -> DeleteGroupsResponse:
    """Delete groups that have no members, and their committed offsets."""
    names = list(dict.fromkeys(request.groups_names))
    allowed = context.authorized(AclOperation.DELETE, AclResourceType.GROUP, names)
    return DeleteGroupsResponse(results=[_deleted(group_id, context, may=group_id in allowed) for group_id in names])


def _deleted(group_id: str, context: RequestContext, *, may: bool) -> DeletableGroupResult:
    if not may:
        return DeletableGroupResult(group_id=group_id, error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    try:
        context.services.groups.delete(group_id)
    except BrokerError as refusal:
        return DeletableGroupResult(group_id=group_id, error_code=refusal.code)
    return DeletableGroupResult(group_id=group_id)
