"""Descriptions of groups for tools: DescribeGroups and ListGroups."""

from __future__ import annotations

from collections.abc import Iterable

from ....protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember
from ....protocol.messages.list_groups import ListedGroup
from .classic_group import CONSUMER_PROTOCOL_TYPE, ClassicGroup, GroupState
from .classic_member import ClassicMember
from .group_map import Group

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


def describe_unknown(group_id: str) -> DescribedGroup:
    """Describe a group that does not exist as Dead."""
    return DescribedGroup(group_id=group_id, group_state=GroupState.DEAD.value)


def list_group(group: Group) -> ListedGroup:
    """Return a group's entry in the list of groups."""
    protocol_type, group_type = CONSUMER_PROTOCOL_TYPE, CONSUMER_TYPE
    if isinstance(group, ClassicGroup):
        protocol_type, group_type = group.protocol_type or "", CLASSIC_TYPE
    return ListedGroup(
        group_id=group.group_id, protocol_type=protocol_type, group_state=group.state.value, group_type=group_type
    )


def listed_groups(groups: Iterable[Group], states: Iterable[str], types: Iterable[str]) -> list[ListedGroup]:
    """Return the entries of groups that pass filters by state (KIP-518) and type (KIP-848); an empty filter passes
    all."""
    wanted_states, wanted_types = {name.lower() for name in states}, {name.lower() for name in types}
    listed = map(list_group, groups)
    if not wanted_states and not wanted_types:
        return list(listed)
    return [
        group
        for group in listed
        if (not wanted_states or group.group_state.lower() in wanted_states)
        and (not wanted_types or group.group_type in wanted_types)
    ]
