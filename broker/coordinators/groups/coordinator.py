"""The group coordinator: finds the group of a request, and delegates to the protocol of the group."""

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
    """A coordinator of all groups of this broker; no timeout expires unless `run` is running."""

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
        """The partitions of the offsets topic whose groups this broker coordinates."""

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Load the offsets topic, then expire sessions and offsets; report started once requests may arrive.

        Requests for groups that are not loaded yet are refused with COORDINATOR_LOAD_IN_PROGRESS. In a cluster of
        several brokers `partitions` loads each partition when this broker is elected.
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
        """Drop the groups of a partition that another broker leads now or that is loaded again; refuse pending
        requests."""

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
        """Start a new session for each member of a group that was just loaded."""
        for member in group.members.values():
            self._rebalancer.extend_session(group, member)
        if len(group.members) > self._config.group_max_size:
            self._rebalancer.prepare(group, "it has more members than group.max.size allows now")

    # --- finding groups

    def partition_of(self, group_id: str) -> int:
        """Return the partition of the offsets topic that holds a group; create the topic if it is missing."""
        return self._topic.partition_of(group_id)

    def check_group(self, group_id: str, *, may_be_empty: bool = False) -> ErrorCode:
        """Return the error of requests for this group at present, NONE if they can be served."""
        if not group_id and not may_be_empty:
            return ErrorCode.INVALID_GROUP_ID
        try:
            self.partitions.check(group_id)
        except BrokerError as error:
            return error.code
        return ErrorCode.NONE

    def _consumer_group(self, group_id: str) -> ConsumerGroup | None:
        """Return the group if it uses the consumer protocol, else None."""
        return self._consumer_groups.by_id.get(group_id)

    def _tell_of_all(self, group_id: str) -> None:
        """Delay the answer until all records of the group's partition are replicated (Kafka `CoordinatorRuntime`)."""
        if group_id:
            self._topic.tell_of_all(self.partition_of(group_id))

    def _group_for_joining(self, group_id: str, member_id: str) -> ClassicGroup | None:
        """Return the group; create it for a client without a member id, and return None for an unknown member id.

        An empty group of the consumer protocol is replaced by a classic group, which keeps the committed offsets.
        """
        emptied = self._consumer_group(group_id)
        if emptied is not None:
            self._consumer_groups.forget(emptied)
        if group_id not in self._groups and not member_id:
            self._groups[group_id] = ClassicGroup(group_id, state_timestamp_ms=self._clock.now_ms())
        return self._groups.get(group_id)

    # --- membership

    def join(self, request: JoinGroupRequest, client: JoiningClient) -> Promise[JoinGroupResponse]:
        """Handle JoinGroup; the answer is pending until the generation begins."""
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
        """Handle SyncGroup; the answer is pending until the leader has sent the assignment."""
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
        """Handle Heartbeat; while the group is being loaded every heartbeat is accepted."""
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
        """Match all topics against the patterns of the request and its group, ahead of `consumer_heartbeat`."""
        group = self._consumer_group(request.group_id)
        patterns = frozenset[str]() if group is None else group.patterns
        if request.subscribed_topic_regex and is_valid_pattern(request.subscribed_topic_regex):
            patterns |= {request.subscribed_topic_regex}
        if patterns:
            await self._consumer_groups.topics.match(patterns)

    def consumer_heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, client: HeartbeatingClient
    ) -> ConsumerGroupHeartbeatResponse:
        """Handle ConsumerGroupHeartbeat (KIP-848). Raises BrokerError for every refusal."""
        self._raise_unless_served(request.group_id, may_be_empty=True)
        self._tell_of_all(request.group_id)
        return self._consumer.heartbeat(request, client)

    def leave(self, group_id: str, members: Sequence[MemberIdentity]) -> list[MemberResponse]:
        """Handle LeaveGroup of some members. Raises BrokerError if the group cannot be served."""
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
        """Handle OffsetCommit, or TxnOffsetCommit if a producer is given; return the error of each position."""
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
        """Handle OffsetFetch, of all partitions if `partitions` is None. Raises BrokerError if the group cannot be
        served.

        Members of the consumer protocol send their member id and epoch (v9+), which must be current.
        """
        self._raise_unless_served(group_id, may_be_empty=True)
        consumer_group = self._consumer_group(group_id)
        if consumer_group is not None:
            check_fetch(consumer_group, member_id, member_epoch)
        return self._offsets.fetch(group_id, partitions, require_stable=require_stable)

    def delete_offsets(self, group_id: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, ErrorCode]:
        """Handle OffsetDelete (KIP-496): offsets of subscribed topics stay.

        Raises BrokerError if the group as a whole refuses.
        """
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
        """Commit or discard the offsets of a transaction whose marker was written to this partition of the offsets
        topic."""
        concerned = [
            group_id
            for group_id in self._offsets.offsets.groups_in_transaction(producer_id)
            if self.partition_of(group_id) == index
        ]
        self._offsets.end_transaction(producer_id, concerned, is_commit=is_commit)

    def topic_deleted(self, topic: str) -> None:
        """Delete the committed offsets of a deleted topic."""
        for group_id in self._offsets.delete_topic(topic):
            group = self._groups.get(group_id) or self._consumer_group(group_id)
            if group is not None:
                self._forget_if_unused(group)

    # --- administration

    def describe(self, group_id: str) -> DescribedGroup:
        """Handle DescribeGroups for one group; a group that does not exist is Dead."""
        error = self.check_group(group_id, may_be_empty=True)
        group = self._groups.get(group_id)
        if error or group is None:
            return describe_unknown(group_id, error)
        return describe_classic(group)

    def describe_consumer_group(self, group_id: str) -> DescribedConsumerGroup:
        """Handle ConsumerGroupDescribe for one group.

        Raises BrokerError if there is no such group of the consumer protocol.
        """
        self._raise_unless_served(group_id)
        self._tell_of_all(group_id)
        group = self._consumer_group(group_id)
        if group is None:
            raise BrokerError(ErrorCode.GROUP_ID_NOT_FOUND)
        default_assignor = next(iter(self._consumer_groups.assignors))
        return describe_consumer_group(group, self._consumer_groups.topics, default_assignor)

    def list(self, states: Sequence[str], types: Sequence[str]) -> tuple[ErrorCode, list[ListedGroup]]:
        """Handle ListGroups: return the groups that pass the filters, and an error while some are being loaded."""
        error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if self.partitions.is_reading else ErrorCode.NONE
        listed = [list_classic(group) for group in self._groups.values()]
        listed += [list_consumer_group(group) for group in self._consumer_groups.by_id.values()]
        return error, [group for group in listed if is_listed(group, states, types)]

    def delete(self, group_id: str) -> ErrorCode:
        """Handle DeleteGroups for one group, which must have no members."""
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

    # --- expiry and removal

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
        """Remove a group without members and offsets."""
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
            # For a group that never had members, only offsets were written.
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
