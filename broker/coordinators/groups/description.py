"""Descriptions of groups for tools: DescribeGroups and ListGroups."""

from __future__ import annotations

from collections.abc import Iterable

from ....protocol.errors import ErrorCode
from ....protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember
from ....protocol.messages.list_groups import ListedGroup
from .classic_group import ClassicGroup, GroupState
from .classic_member import ClassicMember

CLASSIC_TYPE = "classic"
CONSUMER_TYPE = "consumer"


def describe_classic(group: ClassicGroup) -> DescribedGroup:
    """Describe a classic group; members' protocol metadata and assignments are included only in state Stable."""
    is_stable = group.state is GroupState.STABLE
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol_name or "") if is_stable else "",
        members=[
            _describe_member(member, group.protocol_name if is_stable else None) for member in group.members.values()
        ],
    )


def _describe_member(member: ClassicMember, protocol_name: str | None) -> DescribedGroupMember:
    return DescribedGroupMember(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=b"" if protocol_name is None else member.metadata_for(protocol_name),
        member_assignment=b"" if protocol_name is None else member.assignment,
    )


def describe_unknown(group_id: str, error: ErrorCode = ErrorCode.NONE) -> DescribedGroup:
    """Describe a group that does not exist as Dead, or one that cannot be looked up by its error alone."""
    return DescribedGroup(group_id=group_id, error_code=error, group_state="" if error else GroupState.DEAD.value)


def list_classic(group: ClassicGroup) -> ListedGroup:
    """Return a classic group's entry in the list of groups."""
    return ListedGroup(
        group_id=group.group_id,
        protocol_type=group.protocol_type or "",
        group_state=group.state.value,
        group_type=CLASSIC_TYPE,
    )


def is_listed(group: ListedGroup, states: Iterable[str], types: Iterable[str]) -> bool:
    """Return whether a group passes filters by state (KIP-518) and type (KIP-848); an empty filter passes all."""
    wanted_states, wanted_types = {name.lower() for name in states}, {name.lower() for name in types}
    has_state = not wanted_states or group.group_state.lower() in wanted_states
    return has_state and (not wanted_types or group.group_type in wanted_types)
