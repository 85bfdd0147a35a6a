"""The group coordinator: finds the group that a request is about, and has the right part of this room serve it."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence

import trio

from ....protocol.errors import BrokerError, ErrorCode
from ....protocol.messages.consumer_group_describe import DescribedGroup as DescribedConsumerGroup
from ....protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from ....protocol.messages.describe_groups import DescribedGroup
from ....protocol.messages.heartbeat import HeartbeatRequest
from ....protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from ....protocol.messages.leave_group import MemberIdentity, MemberResponse
from ....protocol.messages.list_groups import ListedGroup
from ....protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from ....protocol.records.compression import Codec
from ....storage.clock import Clock
from ....storage.disk.paths import TopicPartition
from ...config import BrokerConfig
from ...server.promise import Promise, kept
from ...server.timers import TimerQueue
from ..internal_log.coordinator_log import CoordinatorLog, InternalTopics, TransactionalProducer
from ..internal_log.led_partitions import LedPartitions
from .classic_group import ClassicGroup, GroupState, failed_join
from .classic_in_consumer import ClassicInConsumer
from .classic_protocol import ClassicProtocol, Committer, JoiningClient
from .consumer_description import describe_consumer_group, list_consumer_group
from .consumer_fencing import check_commit, check_fetch
from .consumer_group import ConsumerGroup, ConsumerGroupState
from .consumer_group_log import ConsumerGroupLog
from .consumer_groups import ConsumerGroups
from .consumer_protocol import ConsumerProtocol, HeartbeatingClient
from .current_topics import CurrentTopics, TopicSource
from .description import describe_classic, describe_unknown, is_listed, list_classic
from .expiry import MINUTE_MS, expired_offsets, unread_offsets
from .group_log import GroupLog
from .loader import PartitionLoader
from .migration import Migration
from .offset_service import FetchedOffset, OffsetService, OffsetToCommit
from .rebalance import Rebalancer
from .topic_patterns import is_valid_pattern

logger = logging.getLogger(__name__)

OFFSETS_TOPIC = "__consumer_offsets"


class GroupCoordinator:
    """All groups of this broker. `run` must be running for anything to time out."""

    def __init__(
        self, config: BrokerConfig, clock: Clock, internal_topics: InternalTopics, known_topics: TopicSource
    ) -> None:
        self._config = config
        self._clock = clock
        codec = Codec(config.offsets_topic_compression_codec)
        self._topic = CoordinatorLog(OFFSETS_TOPIC, internal_topics, clock, codec=codec)
        self._log = GroupLog(self._topic, timeout_s=config.offsets_commit_timeout_ms / 1000)
        self._timers = TimerQueue()
        self._rebalancer = Rebalancer(config, clock, self._timers, self._log)
        self._classic = ClassicProtocol(config, self._rebalancer, self._log)
        self._offsets = OffsetService(config, clock, self._log)
        self._groups: dict[str, ClassicGroup] = {}
        topics = CurrentTopics(known_topics)
        migration = Migration(config, clock, self._groups, self._rebalancer, topics)
        self._consumer_groups = ConsumerGroups(config, self._timers, ConsumerGroupLog(self._log), topics, migration)
        self._consumer = ConsumerProtocol(config, self._consumer_groups)
        self._classic_in_consumer = ClassicInConsumer(config, self._consumer_groups)
        self._is_alone = config.roles.is_alone
        self.partitions = LedPartitions(
            self._topic, is_alone=self._is_alone, begin_reading=self._begin_reading, forget=self._forget_partition
        )
        """The partitions of the offsets topic whose groups are this broker's."""

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Load what the offsets topic holds, then watch over deadlines; started once requests may come.

        Requests for groups that are not loaded yet are refused with COORDINATOR_LOAD_IN_PROGRESS. Among several
        brokers `partitions` is told what there is to load.
        """
        if self._is_alone:
            for index in range(self._topic.existing_partitions()):
                self.partitions.elected(index)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._timers.run)
            nursery.start_soon(self._expire_offsets)
            nursery.start_soon(self.partitions.run)
            task_status.started()

    def _begin_reading(self, index: int) -> PartitionLoader:
        return PartitionLoader(self._groups, self._consumer_groups.by_id, self._offsets.offsets, self._resume_groups)

    def _resume_groups(self, group_ids: set[str]) -> None:
        for group_id in group_ids & self._groups.keys():
            self._resume(self._groups[group_id])
        for group_id in group_ids & self._consumer_groups.by_id.keys():
            self._consumer_groups.resume(self._consumer_groups.by_id[group_id])

    def _forget_partition(self, index: int) -> None:
        """Its groups are another broker's now, or are to be read again; who waits here is told to look for that one."""

        def is_there(group_id: str) -> bool:
            return self._topic.existing_partition_of(group_id) == index

        for group in [group for group in self._groups.values() if is_there(group.group_id)]:
            self._rebalancer.hand_over(group)
            del self._groups[group.group_id]
        for consumer_group in [group for group in self._consumer_groups.by_id.values() if is_there(group.group_id)]:
            self._consumer_groups.hand_over(consumer_group)
        for group_id in [group_id for group_id in self._offsets.offsets if is_there(group_id)]:
            self._offsets.offsets.remove_group(group_id)

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
        try:
            self.partitions.check(group_id)
        except BrokerError as error:
            return error.code
        return ErrorCode.NONE

    def _consumer_group(self, group_id: str) -> ConsumerGroup | None:
        """The group, if it is one of the consumer protocol."""
        return self._consumer_groups.by_id.get(group_id)

    def _tell_of_all(self, group_id: str) -> None:
        """The answer depends on what others have written: it waits for all of it (Kafka `CoordinatorRuntime`)."""
        if group_id:
            self._topic.tell_of_all(self.partition_of(group_id))

    def _group_for_joining(self, group_id: str, member_id: str) -> ClassicGroup | None:
        """The group; a new one for a stranger, none for somebody who claims to have been here.

        An empty group of the consumer protocol is forgotten, but for its offsets: a classic one takes its place.
        """
        emptied = self._consumer_group(group_id)
        if emptied is not None:
            self._consumer_groups.forget(emptied)
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
        try:
            consumer_group = self._consumer_group(request.group_id)
            if consumer_group is not None and consumer_group.members:
                answer.keep(self._classic_in_consumer.join(consumer_group, request, client))
                return answer
            group = self._group_for_joining(request.group_id, request.member_id)
        except BrokerError as refusal:
            answer.keep(failed_join(request.member_id, refusal.code))
            return answer
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
        consumer_group = self._consumer_group(request.group_id)
        if not error and consumer_group is not None:
            return kept(self._sync_with_consumer_group(consumer_group, request))
        if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            # Clients rejoin after this error; the load error would make some of them fail.
            error = ErrorCode.REBALANCE_IN_PROGRESS
        return kept(SyncGroupResponse(error_code=error or ErrorCode.UNKNOWN_MEMBER_ID))

    def _sync_with_consumer_group(self, group: ConsumerGroup, request: SyncGroupRequest) -> SyncGroupResponse:
        self._tell_of_all(group.group_id)
        try:
            return self._classic_in_consumer.sync(group, request)
        except BrokerError as refusal:
            return SyncGroupResponse(error_code=refusal.code)

    def heartbeat(self, request: HeartbeatRequest) -> ErrorCode:
        """Heartbeat; while the group is loaded every member is believed."""
        error = self.check_group(request.group_id)
        if error:
            return ErrorCode.NONE if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else error
        consumer_group = self._consumer_group(request.group_id)
        if consumer_group is not None:
            try:
                return self._classic_in_consumer.heartbeat(consumer_group, request)
            except BrokerError as refusal:
                return refusal.code
        group = self._groups.get(request.group_id)
        return ErrorCode.UNKNOWN_MEMBER_ID if group is None else self._classic.heartbeat(group, request)

    async def match_patterns(self, request: ConsumerGroupHeartbeatRequest) -> None:
        """Match all topics against the patterns of the request and its group, so that `consumer_heartbeat` need not."""
        group = self._consumer_group(request.group_id)
        patterns = frozenset[str]() if group is None else group.patterns
        if request.subscribed_topic_regex and is_valid_pattern(request.subscribed_topic_regex):
            patterns |= {request.subscribed_topic_regex}
        if patterns:
            await self._consumer_groups.topics.match(patterns)

    def consumer_heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, client: HeartbeatingClient
    ) -> ConsumerGroupHeartbeatResponse:
        """ConsumerGroupHeartbeat (KIP-848). Raises BrokerError for every refusal."""
        self._raise_unless_served(request.group_id, may_be_empty=True)
        self._tell_of_all(request.group_id)
        return self._consumer.heartbeat(request, client)

    def leave(self, group_id: str, members: Sequence[MemberIdentity]) -> list[MemberResponse]:
        """LeaveGroup of some members. Raises BrokerError if the group cannot be served."""
        self._raise_unless_served(group_id)
        group = self._groups.get(group_id)
        if group is not None:
            return self._classic.leave(group, members)
        consumer_group = self._consumer_group(group_id)
        if consumer_group is not None:
            return self._classic_in_consumer.leave(consumer_group, members)
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
        consumer_group = self._consumer_group(group_id)
        if not error and consumer_group is not None:
            return self._commit_for_consumer_group(consumer_group, committer, positions, producer)
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

    def _commit_for_consumer_group(
        self,
        group: ConsumerGroup,
        committer: Committer,
        positions: Mapping[TopicPartition, OffsetToCommit],
        producer: TransactionalProducer | None,
    ) -> dict[TopicPartition, ErrorCode]:
        try:
            check_commit(group, committer, is_transactional=producer is not None)
        except BrokerError as refusal:
            return dict.fromkeys(positions, refusal.code)
        return self._offsets.commit(group.group_id, positions, producer)

    def fetch_offsets(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition] | None,
        *,
        require_stable: bool,
        member_id: str | None = None,
        member_epoch: int = -1,
    ) -> dict[TopicPartition, FetchedOffset]:
        """OffsetFetch, of all partitions if None are named. Raises BrokerError if the group cannot be served.

        Members of the consumer protocol say who they are (v9+), and must be in their epoch.
        """
        self._raise_unless_served(group_id, may_be_empty=True)
        consumer_group = self._consumer_group(group_id)
        if consumer_group is not None:
            check_fetch(consumer_group, member_id, member_epoch)
        return self._offsets.fetch(group_id, partitions, require_stable=require_stable)

    def delete_offsets(self, group_id: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, ErrorCode]:
        """OffsetDelete (KIP-496): what members may be reading stays. Raises BrokerError for the group as a whole."""
        self._raise_unless_served(group_id)
        group = self._groups.get(group_id) or self._consumer_group(group_id)
        if group is None:
            raise BrokerError(ErrorCode.GROUP_ID_NOT_FOUND)
        if isinstance(group, ClassicGroup) and group.state is not GroupState.EMPTY and not group.is_consumer_group:
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
            group = self._groups.get(group_id) or self._consumer_group(group_id)
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

    def describe_consumer_group(self, group_id: str) -> DescribedConsumerGroup:
        """ConsumerGroupDescribe of one group. Raises BrokerError if there is no such group of the consumer protocol."""
        self._raise_unless_served(group_id)
        self._tell_of_all(group_id)
        group = self._consumer_group(group_id)
        if group is None:
            raise BrokerError(ErrorCode.GROUP_ID_NOT_FOUND)
        default_assignor = next(iter(self._consumer_groups.assignors))
        return describe_consumer_group(group, self._consumer_groups.topics, default_assignor)

    def list(self, states: Sequence[str], types: Sequence[str]) -> tuple[ErrorCode, list[ListedGroup]]:
        """ListGroups: those that the filters let through, and an error if some are still being loaded."""
        error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if self.partitions.is_reading else ErrorCode.NONE
        listed = [list_classic(group) for group in self._groups.values()]
        listed += [list_consumer_group(group) for group in self._consumer_groups.by_id.values()]
        return error, [group for group in listed if is_listed(group, states, types)]

    def delete(self, group_id: str) -> ErrorCode:
        """DeleteGroups of one group, which must have no members."""
        error = self.check_group(group_id, may_be_empty=True)
        group = self._groups.get(group_id) or self._consumer_group(group_id)
        if error:
            return error
        if group is None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if group.state is not GroupState.EMPTY and group.state is not ConsumerGroupState.EMPTY:
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
            groups: list[ClassicGroup | ConsumerGroup] = [*self._groups.values()]
            groups.extend(self._consumer_groups.by_id.values())
            for group in groups:
                try:
                    self._expire_offsets_of(group)
                except BrokerError as error:
                    logger.warning("group %s: offsets did not expire: %s", group.group_id, error.code.name)
                await trio.lowlevel.checkpoint()

    def _expire_offsets_of(self, group: ClassicGroup | ConsumerGroup) -> None:
        offsets, now_ms = self._offsets.offsets.of(group.group_id), self._clock.now_ms()
        retention_ms = self._config.offsets_retention_minutes * MINUTE_MS
        if isinstance(group, ClassicGroup):
            expired = expired_offsets(group, offsets, now_ms=now_ms, retention_ms=retention_ms)
        else:
            expired = unread_offsets(group.is_subscribed_to, offsets, now_ms=now_ms, retention_ms=retention_ms)
        self._offsets.delete(group.group_id, expired)
        self._forget_if_unused(group)

    def _forget_if_unused(self, group: ClassicGroup | ConsumerGroup) -> None:
        """A group without members and offsets is forgotten."""
        is_unused = not group.members and not self._offsets.offsets.of(group.group_id)
        if isinstance(group, ClassicGroup):
            is_unused = is_unused and group.state is GroupState.EMPTY and not group.pending_members
        if is_unused:
            self._forget(group)

    def _forget(self, group: ClassicGroup | ConsumerGroup) -> None:
        committed = self._offsets.offsets.of(group.group_id).partitions
        if isinstance(group, ConsumerGroup):
            self._log.forget(group.group_id, committed)
            self._consumer_groups.forget(group)
        else:
            # Of a group that never had members nothing but its offsets was ever written.
            self._log.forget(group.group_id, committed, whole_group=group.generation_id > 0)
            for member_id in list(group.pending_members):
                group.forget_pending(member_id)
            group.transition_to(GroupState.DEAD, self._clock.now_ms())
            self._groups.pop(group.group_id, None)
        self._offsets.offsets.remove_group(group.group_id)

    def _raise_unless_served(self, group_id: str, *, may_be_empty: bool = False) -> None:
        error = self.check_group(group_id, may_be_empty=may_be_empty)
        if error:
            raise BrokerError(error)
