"""Descriptions of groups for tools: DescribeGroups and ListGroups."""

from __future__ import annotations

from collections.abc import Iterable

from ....protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember
from ....protocol.messages.list_groups import ListedGroup
from .classic_group import ClassicGroup, GroupState
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
    return ListedGroup(
        group_id=group.group_id,
        protocol_type=group.protocol_type or "",
        group_state=group.state.value,
        group_type=CLASSIC_TYPE if isinstance(group, ClassicGroup) else CONSUMER_TYPE,
    )


def list_revision(group: Group) -> object:
    """Return a value that changes with the group's entry in the list of groups: states differ from type to type."""
    return group.state, group.protocol_type


def filtered(groups: Iterable[ListedGroup], states: Iterable[str], types: Iterable[str]) -> list[ListedGroup]:
    """Return the groups that pass filters by state (KIP-518) and type (KIP-848); an empty filter passes all."""
    wanted_states, wanted_types = {name.lower() for name in states}, {name.lower() for name in types}
    return [
        group
        for group in groups
        if (not wanted_states or group.group_state.lower() in wanted_states)
        and (not wanted_types or group.group_type in wanted_types)
    ]
