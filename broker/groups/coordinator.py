"""The group coordinator: finds the group that a request is about, and has the right part of this room serve it."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence

import trio

from ...protocol.errors import BrokerError, ErrorCode
from ...protocol.messages.describe_groups import DescribedGroup
from ...protocol.messages.heartbeat import HeartbeatRequest
from ...protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from ...protocol.messages.leave_group import MemberIdentity, MemberResponse
from ...protocol.messages.list_groups import ListedGroup
from ...protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from ...protocol.records.compression import Codec
from ...storage.clock import Clock
from ..config import BrokerConfig
from ..coordinator_log import CoordinatorLog, InternalTopics, TransactionalProducer
from ..promise import Promise
from ..timers import TimerQueue
from .classic_group import ClassicGroup, GroupState, failed_join
from .classic_protocol import ClassicProtocol, Committer, JoiningClient
from .committed_offsets import TopicPartition
from .description import describe_classic, describe_unknown, is_listed, list_classic
from .expiry import MINUTE_MS, expired_offsets
from .group_log import GroupLog
from .loader import PartitionLoader
from .offset_service import FetchedOffset, OffsetService, OffsetToCommit
from .rebalance import Rebalancer

logger = logging.getLogger(__name__)

OFFSETS_TOPIC = "__consumer_offsets"


class GroupCoordinator:
    """All groups of this broker. `run` must be running for anything to time out."""

    def __init__(self, config: BrokerConfig, clock: Clock, topics: InternalTopics) -> None:
        self._config = config
        self._clock = clock
        codec = Codec(config.offsets_topic_compression_codec)
        self._topic = CoordinatorLog(OFFSETS_TOPIC, topics, clock, codec=codec)
        self._log = GroupLog(self._topic)
        self._timers = TimerQueue()
        self._rebalancer = Rebalancer(config, clock, self._timers, self._log)
        self._classic = ClassicProtocol(config, self._rebalancer, self._log)
        self._offsets = OffsetService(config, clock, self._log)
        self._groups: dict[str, ClassicGroup] = {}
        self._loading: set[int] = set()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Load what the offsets topic holds, then watch over deadlines; started once requests may come.

        Requests for groups that are not loaded yet are refused with COORDINATOR_LOAD_IN_PROGRESS.
        """
        self._loading = set(range(self._topic.existing_partitions()))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._timers.run)
            nursery.start_soon(self._expire_offsets)
            task_status.started()
            await self._load()

    async def _load(self) -> None:
        for index in sorted(self._loading):
            loader = PartitionLoader(self._groups, self._offsets.offsets)
            for entries in self._topic.replay(index):
                loader.replay(entries)
                await trio.lowlevel.checkpoint()
            loader.finish()
            self._loading.discard(index)
            for group_id in loader.group_ids & self._groups.keys():
                self._resume(self._groups[group_id])

    def _resume(self, group: ClassicGroup) -> None:
        """Give the members of a group that was just loaded a session's time to be heard of."""
        for member in group.members.values():
            self._rebalancer.extend_session(group, member)
        if len(group.members) > self._config.group_max_size:
            self._rebalancer.prepare(group, "it has more members than group.max.size allows by now")

    # --- finding groups

    def partition_of(self, group_id: str) -> int:
        """The partition of the offsets topic that keeps a group; creates the topic if it is missing."""
        return self._topic.partition_of(group_id)

    def check_group(self, group_id: str, *, may_be_empty: bool = False) -> ErrorCode:
        """Whether requests for this group can be served now."""
        if not group_id and not may_be_empty:
            return ErrorCode.INVALID_GROUP_ID
        if self._loading and self.partition_of(group_id) in self._loading:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return ErrorCode.NONE

    def _group_for_joining(self, group_id: str, member_id: str) -> ClassicGroup | None:
        """The group; a new one for a stranger, none for somebody who claims to have been here."""
        if group_id not in self._groups and not member_id:
            self._groups[group_id] = ClassicGroup(group_id, state_timestamp_ms=self._clock.now_ms())
        return self._groups.get(group_id)

    # --- membership

    def join(self, request: JoinGroupRequest, client: JoiningClient) -> Promise[JoinGroupResponse]:
        """JoinGroup: the answer comes when the generation begins."""
        answer: Promise[JoinGroupResponse] = Promise()
        error = self.check_group(request.group_id)
        shortest = self._config.group_min_session_timeout_ms
        if not error and not shortest <= request.session_timeout_ms <= self._config.group_max_session_timeout_ms:
            error = ErrorCode.INVALID_SESSION_TIMEOUT
        if error:
            answer.keep(failed_join(request.member_id, error))
            return answer
        group = self._group_for_joining(request.group_id, request.member_id)
        if group is None:
            answer.keep(failed_join(request.member_id, ErrorCode.UNKNOWN_MEMBER_ID))
            return answer
        return self._classic.join(group, request, client)

    def sync(self, request: SyncGroupRequest) -> Promise[SyncGroupResponse]:
        """SyncGroup: the answer comes when the leader has assigned."""
        error = self.check_group(request.group_id)
        group = self._groups.get(request.group_id)
        if not error and group is not None:
            return self._classic.sync(group, request)
        if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            # Clients rejoin after this error; the load error would make some of them fail.
            error = ErrorCode.REBALANCE_IN_PROGRESS
        answer: Promise[SyncGroupResponse] = Promise()
        answer.keep(SyncGroupResponse(error_code=error or ErrorCode.UNKNOWN_MEMBER_ID))
        return answer

    def heartbeat(self, request: HeartbeatRequest) -> ErrorCode:
        """Heartbeat; while the group is loaded every member is believed."""
        error = self.check_group(request.group_id)
        if error:
            return ErrorCode.NONE if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else error
        group = self._groups.get(request.group_id)
        return ErrorCode.UNKNOWN_MEMBER_ID if group is None else self._classic.heartbeat(group, request)

    def leave(self, group_id: str, members: Sequence[MemberIdentity]) -> list[MemberResponse]:
        """LeaveGroup of some members. Raises BrokerError if the group cannot be served."""
        self._raise_unless_served(group_id)
        group = self._groups.get(group_id)
        if group is not None:
            return self._classic.leave(group, members)
        unknown = ErrorCode.UNKNOWN_MEMBER_ID
        return [
            MemberResponse(member_id=member.member_id, group_instance_id=member.group_instance_id, error_code=unknown)
            for member in members
        ]

    # --- offsets

    def commit(
        self,
        committer: Committer,
        positions: Mapping[TopicPartition, OffsetToCommit],
        producer: TransactionalProducer | None = None,
    ) -> dict[TopicPartition, ErrorCode]:
        """OffsetCommit, or TxnOffsetCommit if a producer is given: the error of each position."""
        is_transactional = producer is not None
        group_id = committer.group_id
        error = self.check_group(group_id, may_be_empty=not is_transactional)
        group = self._groups.get(group_id)
        if not error and group is None:
            if committer.generation_id >= 0 and not is_transactional:
                error = ErrorCode.ILLEGAL_GENERATION
            else:
                group = self._groups[group_id] = ClassicGroup(group_id, state_timestamp_ms=self._clock.now_ms())
        if not error and group is not None:
            error = self._classic.check_commit(group, committer, is_transactional=is_transactional)
        if error:
            return dict.fromkeys(positions, error)
        return self._offsets.commit(group_id, positions, producer)

    def fetch_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition] | None, *, require_stable: bool
    ) -> dict[TopicPartition, FetchedOffset]:
        """OffsetFetch, of all partitions if None are named. Raises BrokerError if the group cannot be served."""
        self._raise_unless_served(group_id, may_be_empty=True)
        return self._offsets.fetch(group_id, partitions, require_stable=require_stable)

    def delete_offsets(self, group_id: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, ErrorCode]:
        """OffsetDelete (KIP-496): what members may be reading stays. Raises BrokerError for the group as a whole."""
        self._raise_unless_served(group_id)
        group = self._groups.get(group_id)
        if group is None:
            raise BrokerError(ErrorCode.GROUP_ID_NOT_FOUND)
        if group.state is not GroupState.EMPTY and not group.is_consumer_group:
            raise BrokerError(ErrorCode.NON_EMPTY_GROUP)
        errors = {
            partition: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            if group.members and group.is_subscribed_to(partition.topic)
            else ErrorCode.NONE
            for partition in partitions
        }
        self._offsets.delete(group_id, [partition for partition, error in errors.items() if not error])
        self._forget_if_unused(group)
        return errors

    def transaction_ended(self, index: int, producer_id: int, *, is_commit: bool) -> None:
        """A marker was written to this partition of the offsets topic: commits of the transaction count, or not."""
        concerned = [
            group_id
            for group_id in self._offsets.offsets.groups_in_transaction(producer_id)
            if self.partition_of(group_id) == index
        ]
        self._offsets.end_transaction(producer_id, concerned, is_commit=is_commit)

    def topic_deleted(self, topic: str) -> None:
        """Offsets in a topic go with it."""
        for group_id in self._offsets.delete_topic(topic):
            group = self._groups.get(group_id)
            if group is not None:
                self._forget_if_unused(group)

    # --- administration

    def describe(self, group_id: str) -> DescribedGroup:
        """DescribeGroups of one group; one that does not exist is Dead."""
        error = self.check_group(group_id, may_be_empty=True)
        group = self._groups.get(group_id)
        if error or group is None:
            return describe_unknown(group_id, error)
        return describe_classic(group)

    def list(self, states: Sequence[str], types: Sequence[str]) -> tuple[ErrorCode, list[ListedGroup]]:
        """ListGroups: those that the filters let through, and an error if some are still being loaded."""
        error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if self._loading else ErrorCode.NONE
        listed = [list_classic(group) for group in self._groups.values()]
        return error, [group for group in listed if is_listed(group, states, types)]

    def delete(self, group_id: str) -> ErrorCode:
        """DeleteGroups of one group, which must have no members."""
        error = self.check_group(group_id, may_be_empty=True)
        group = self._groups.get(group_id)
        if error:
            return error
        if group is None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if group.state is not GroupState.EMPTY:
            return ErrorCode.NON_EMPTY_GROUP
        try:
            self._forget(group)
        except BrokerError as failure:
            return failure.code
        return ErrorCode.NONE

    # --- forgetting

    async def _expire_offsets(self) -> None:
        while True:
            await trio.sleep(self._config.offsets_retention_check_interval_ms / 1000)
            for group in list(self._groups.values()):
                try:
                    self._expire_offsets_of(group)
                except BrokerError as error:
                    logger.warning("group %s: offsets did not expire: %s", group.group_id, error.code.name)
                await trio.lowlevel.checkpoint()

    def _expire_offsets_of(self, group: ClassicGroup) -> None:
        expired = expired_offsets(
            group,
            self._offsets.offsets.of(group.group_id),
            now_ms=self._clock.now_ms(),
            retention_ms=self._config.offsets_retention_minutes * MINUTE_MS,
        )
        self._offsets.delete(group.group_id, expired)
        self._forget_if_unused(group)

    def _forget_if_unused(self, group: ClassicGroup) -> None:
        """A group without members and offsets is forgotten."""
        is_empty = group.state is GroupState.EMPTY and not group.pending_members
        if is_empty and not self._offsets.offsets.of(group.group_id):
            self._forget(group)

    def _forget(self, group: ClassicGroup) -> None:
        # Of a group that never had members nothing but its offsets was ever written.
        was_stored = group.generation_id > 0
        self._log.forget(group.group_id, self._offsets.offsets.of(group.group_id).committed, whole_group=was_stored)
        for member_id in list(group.pending_members):
            group.forget_pending(member_id)
        group.transition_to(GroupState.DEAD, self._clock.now_ms())
        self._offsets.offsets.remove_group(group.group_id)
        self._groups.pop(group.group_id, None)

    def _raise_unless_served(self, group_id: str, *, may_be_empty: bool = False) -> None:
        error = self.check_group(group_id, may_be_empty=may_be_empty)
        if error:
            raise BrokerError(error)
