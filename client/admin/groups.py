"""Consumer groups of both protocols: their members and offsets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ...protocol.apis import ApiKey
from ...protocol.codec import decode
from ...protocol.errors import BrokerError, ErrorCode
from ...protocol.messages import consumer_group_describe
from ...protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from ...protocol.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from ...protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from ...protocol.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from ...protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from ...protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from ...protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from ...protocol.topic_partition import AnyTopicPartition
from ..consumer.subscription import by_topic
from ..wire.group_offsets import CommittedOffset, commit_offsets, fetch_committed
from .base import AdminBase, check_names, raise_for

CONSUMER_PROTOCOL = "consumer"
ASSIGNMENT_VERSION_SIZE = 2
FIRST_LEAVE_WITH_SEVERAL_MEMBERS = 3


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member of a group of either protocol, and its assigned partitions."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: list[AnyTopicPartition]


@dataclass(frozen=True, slots=True)
class GroupOverview:
    """The description of a group of either protocol; `assignor` is the chosen strategy of a classic group."""

    group_id: str
    is_classic: bool
    state: str
    assignor: str
    members: list[GroupMember]


class GroupAdmin(AdminBase):
    """The methods of the admin client for groups."""

    async def list_groups(self, *, states: Iterable[str] = (), types: Iterable[str] = ()) -> list[ListedGroup]:
        """Return the groups of all brokers, or only those in these states (KIP-518) and of these types (KIP-848)."""
        request = ListGroupsRequest(states_filter=list(states), types_filter=list(types))
        groups: list[ListedGroup] = []
        for answer in (await self.ask_each(request, ListGroupsResponse)).values():
            raise_for(answer.error_code, "ListGroups")
            groups += answer.groups
        return groups

    async def describe_group(self, group_id: str) -> DescribedGroup:
        """Return state, protocol and members of a group; an unknown group has the state Dead."""

        async def attempt(node: int) -> DescribedGroup:
            request = DescribeGroupsRequest(groups=[group_id])
            answer = await self._cluster.request(node, request, DescribeGroupsResponse)
            group = answer.groups[0]
            if group.error_code != ErrorCode.GROUP_ID_NOT_FOUND:
                raise_for(group.error_code, group.error_message or group_id)
            return group

        return await self._ask_coordinator(group_id, attempt, "DescribeGroups")

    async def describe_consumer_group(self, group_id: str) -> consumer_group_describe.DescribedGroup:
        """Return epochs, members, current and target assignments of a group of the KIP-848 protocol."""

        async def attempt(node: int) -> consumer_group_describe.DescribedGroup:
            request = ConsumerGroupDescribeRequest(group_ids=[group_id])
            answer = await self._cluster.request(node, request, ConsumerGroupDescribeResponse)
            group = answer.groups[0]
            raise_for(group.error_code, group.error_message or group_id)
            return group

        return await self._ask_coordinator(group_id, attempt, "ConsumerGroupDescribe")

    async def group_overview(self, group_id: str) -> GroupOverview:
        """Return state and members of a group of either protocol; an unknown group has the state Dead."""
        if await self.speaks(ApiKey.CONSUMER_GROUP_DESCRIBE):
            try:
                return _overview_of_consumer_group(await self.describe_consumer_group(group_id))
            except BrokerError as error:
                # Kafka lists the API in ApiVersions also where the protocol is switched off.
                if error.code not in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
                    raise
        return _overview_of_classic_group(await self.describe_group(group_id))

    async def delete_groups(self, group_ids: Iterable[str]) -> None:
        """Delete groups without members, and their offsets. Raises TypeError for a single id."""
        for group_id in check_names(group_ids):

            async def attempt(node: int, group_id: str = group_id) -> None:
                request = DeleteGroupsRequest(groups_names=[group_id])
                answer = await self._cluster.request(node, request, DeleteGroupsResponse)
                for result in answer.results:
                    raise_for(result.error_code, result.error_message or group_id)

            await self._ask_coordinator(group_id, attempt, "DeleteGroups")

    async def remove_members(
        self, group_id: str, *, instance_ids: Iterable[str] = (), member_ids: Iterable[str] = (), reason: str = ""
    ) -> None:
        """Remove static members (by instance id, KIP-345) or others (by member id) from their group."""
        members = [MemberIdentity(group_instance_id=name, reason=reason or None) for name in instance_ids]
        members += [MemberIdentity(member_id=name, reason=reason or None) for name in member_ids]

        async def attempt(node: int) -> None:
            connection = await self._cluster.connection(node)
            version = connection.versions.version(ApiKey.LEAVE_GROUP)
            if version < FIRST_LEAVE_WITH_SEVERAL_MEMBERS:
                requests = [LeaveGroupRequest(group_id=group_id, member_id=member.member_id) for member in members]
            else:
                requests = [LeaveGroupRequest(group_id=group_id, members=members)]
            for request in requests:
                answer = await connection.request(request, LeaveGroupResponse, version=version)
                raise_for(answer.error_code, group_id)
                for left in answer.members:
                    raise_for(left.error_code, left.group_instance_id or left.member_id)

        await self._ask_coordinator(group_id, attempt, "LeaveGroup")

    # --- offsets ---

    async def committed_offsets(
        self, group_id: str, partitions: Iterable[AnyTopicPartition] | None = None
    ) -> dict[AnyTopicPartition, CommittedOffset]:
        """Return a group's committed offsets with their metadata texts, for these partitions or all."""
        return await fetch_committed(
            self._cluster, group_id, partitions, self.config, timeout_ms=self.config.default_api_timeout_ms
        )

    async def group_offsets(
        self, group_id: str, partitions: Iterable[AnyTopicPartition] | None = None
    ) -> dict[AnyTopicPartition, int]:
        """Return a group's committed offsets without metadata texts, for these partitions or all."""
        committed = await self.committed_offsets(group_id, partitions)
        return {place: entry.offset for place, entry in committed.items()}

    async def alter_group_offsets(
        self, group_id: str, offsets: Mapping[AnyTopicPartition, int | CommittedOffset]
    ) -> None:
        """Commit offsets for a group without members."""
        await commit_offsets(
            self._cluster, group_id, offsets, self.config, timeout_ms=self.config.default_api_timeout_ms
        )

    async def delete_group_offsets(self, group_id: str, partitions: Iterable[AnyTopicPartition]) -> None:
        """Delete a group's offsets of these partitions."""
        request = OffsetDeleteRequest(
            group_id=group_id,
            topics=[
                OffsetDeleteRequestTopic(
                    name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=p) for p in indexes]
                )
                for topic, indexes in by_topic(partitions).items()
            ],
        )

        async def attempt(node: int) -> None:
            answer = await self._cluster.request(node, request, OffsetDeleteResponse)
            raise_for(answer.error_code, group_id)
            for topic in answer.topics:
                for part in topic.partitions:
                    raise_for(part.error_code, f"{topic.name}-{part.partition_index}")

        await self._ask_coordinator(group_id, attempt, "OffsetDelete")


def assigned_partitions(assignment: bytes) -> list[AnyTopicPartition]:
    """Return the partitions in a member's assignment, encoded as in `describe_group` (protocol type consumer)."""
    if len(assignment) < ASSIGNMENT_VERSION_SIZE:
        return []
    decoded = decode(ConsumerProtocolAssignment, assignment[ASSIGNMENT_VERSION_SIZE:], 0)
    return [(item.topic, partition) for item in decoded.assigned_partitions for partition in item.partitions]


def _overview_of_consumer_group(group: consumer_group_describe.DescribedGroup) -> GroupOverview:
    members = [
        GroupMember(
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host,
            [(item.topic_name, index) for item in member.assignment.topic_partitions for index in item.partitions],
        )
        for member in group.members
    ]
    return GroupOverview(group.group_id, False, group.group_state, group.assignor_name, members)


def _overview_of_classic_group(group: DescribedGroup) -> GroupOverview:
    is_of_consumers = group.protocol_type == CONSUMER_PROTOCOL
    members = [
        GroupMember(
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host,
            assigned_partitions(member.member_assignment) if is_of_consumers else [],
        )
        for member in group.members
    ]
    return GroupOverview(group.group_id, True, group.group_state, group.protocol_data, members)
