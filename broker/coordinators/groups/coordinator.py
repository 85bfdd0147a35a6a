"""The group coordinator: finds the group of a request, and delegates to the protocol of the group."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

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
from ....protocol.topic_partition import TopicPartition
from ....storage.clock import Clock
from ...config import BrokerConfig
from ...server.pending import Pending, completed
from ...server.timers import TimerQueue
from ..internal_log.coordinator_log import CoordinatorLog, InternalTopics, TransactionalProducer
from ..internal_log.led_partitions import LedPartitions
from .classic_group import ClassicGroup, failed_join
from .classic_in_consumer import ClassicInConsumer
from .classic_protocol import ClassicProtocol, Committer, JoiningClient
from .consumer_description import describe_consumer_group
from .consumer_group import ConsumerGroup
from .consumer_group_log import ConsumerGroupLog
from .consumer_groups import ConsumerGroups
from .consumer_protocol import ConsumerProtocol, HeartbeatingClient
from .current_topics import CurrentTopics, TopicSource
from .description import describe_classic, describe_unknown, filtered, list_group
from .expiry import MINUTE_MS, expired_offsets
from .group_log import GroupLog
from .group_map import Group, GroupMap
from .loader import PartitionLoader
from .migration import Migration
from .offset_service import FetchedOffset, OffsetService, OffsetToCommit
from .rebalance import Rebalancer
from .served_group import ServedGroup
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
        self._groups = GroupMap()
        rebalancer = Rebalancer(config, clock, self._timers, self._log)
        self._classic = ClassicProtocol(config, clock, self._groups, rebalancer, self._log)
        self._offsets = OffsetService(config, clock, self._log)
        topics = CurrentTopics(known_topics)
        migration = Migration(config, clock, self._groups, rebalancer, topics)
        consumer_log = ConsumerGroupLog(self._log)
        self._consumer_groups = ConsumerGroups(config, self._groups, self._timers, consumer_log, topics, migration)
        self._consumer = ConsumerProtocol(config, self._consumer_groups)
        self._classic_in_consumer = ClassicInConsumer(config, self._consumer_groups, self._log)
        self.partitions = LedPartitions(
            self._topic,
            is_alone=config.roles.is_alone,
            begin_reading=self._begin_reading,
            forget=self._forget_partition,
        )
        """The partitions of the offsets topic whose groups this broker coordinates."""

    def load_all(self) -> None:
        """Let `run` load all partitions of the offsets topic that exist, which a lone broker leads."""
        for index in range(self._topic.existing_partitions()):
            self.partitions.elected(index)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Load partitions of the offsets topic, expire sessions and offsets; report started once requests may arrive.

        Requests for groups that are not loaded yet are refused with COORDINATOR_LOAD_IN_PROGRESS. In a cluster of
        several brokers `partitions` loads each partition when this broker is elected.
        """
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._timers.run)
            nursery.start_soon(self._expire_offsets)
            nursery.start_soon(self.partitions.run)
            task_status.started()

    def _begin_reading(self, index: int) -> PartitionLoader:
        return PartitionLoader(self._groups, self._offsets.offsets, self._resume_groups)

    def _resume_groups(self, group_ids: set[str]) -> None:
        for group_id in group_ids:
            group = self._groups.get(group_id)
            if group is not None:
                self._serve(group).resume()

    def _forget_partition(self, index: int) -> None:
        """Drop the groups of a partition that another broker leads now or that is loaded again.

        Pending requests of these groups are refused.
        """

        def is_there(group_id: str) -> bool:
            return self._topic.existing_partition_of(group_id) == index

        for group in self._groups:
            if is_there(group.group_id):
                self._serve(group).hand_over()
        for group_id in [group_id for group_id in self._offsets.offsets if is_there(group_id)]:
            self._offsets.offsets.remove_group(group_id)

    # --- finding groups

    def partition_of(self, group_id: str) -> int:
        """Return the partition of the offsets topic that holds a group; create the topic if it is missing."""
        return self._topic.partition_of(group_id)

    def check(self, group_id: str, *, may_be_empty: bool = False) -> None:
        """Check that requests for this group can be served now.

        Raises BrokerError: INVALID_GROUP_ID, NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS.
        """
        if not group_id and not may_be_empty:
            raise BrokerError(ErrorCode.INVALID_GROUP_ID)
        self.partitions.check(group_id)

    def _serve(self, group: Group) -> ServedGroup[ClassicGroup] | ServedGroup[ConsumerGroup]:
        """Return the group with its protocol: the only place that asks which of the two it is."""
        if isinstance(group, ConsumerGroup):
            return ServedGroup(group, self._classic_in_consumer)
        return ServedGroup(group, self._classic)

    def _served(self, group_id: str) -> ServedGroup[ClassicGroup] | ServedGroup[ConsumerGroup]:
        """Return the group of a member's request. Raises BrokerError UNKNOWN_MEMBER_ID if there is none."""
        group = self._groups.get(group_id)
        if group is None:
            raise BrokerError(ErrorCode.UNKNOWN_MEMBER_ID)
        return self._serve(group)

    def _group_for_joining(self, group_id: str, member_id: str) -> Group:
        """Return the group; create it for a client without a member id.

        An empty group of the consumer protocol is replaced by a classic group, which keeps the committed offsets.
        Raises BrokerError: UNKNOWN_MEMBER_ID if there is no group for the client's member id.
        """
        group = self._groups.get(group_id)
        if isinstance(group, ConsumerGroup) and group.is_empty:
            self._consumer_groups.forget(group)
            group = None
        if group is None:
            if member_id:
                raise BrokerError(ErrorCode.UNKNOWN_MEMBER_ID)
            group = self._new_group(group_id)
        return group

    def _new_group(self, group_id: str) -> ClassicGroup:
        group = ClassicGroup(group_id, state_timestamp_ms=self._clock.now_ms())
        self._groups.put(group)
        return group

    # --- membership

    def join(self, request: JoinGroupRequest, client: JoiningClient) -> Pending[JoinGroupResponse]:
        """Handle JoinGroup; the answer is pending until the generation begins. A refusal is in the answer."""
        shortest = self._config.group_min_session_timeout_ms
        try:
            self.check(request.group_id)
            if not shortest <= request.session_timeout_ms <= self._config.group_max_session_timeout_ms:
                raise BrokerError(ErrorCode.INVALID_SESSION_TIMEOUT)
            group = self._group_for_joining(request.group_id, request.member_id)
            return self._serve(group).join(request, client)
        except BrokerError as refusal:
            return completed(failed_join(request.member_id, refusal.code))

    def sync(self, request: SyncGroupRequest) -> Pending[SyncGroupResponse]:
        """Handle SyncGroup; the answer is pending until the leader has sent the assignment. Raises BrokerError."""
        try:
            self.check(request.group_id)
        except BrokerError as refusal:
            if refusal.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                # Clients rejoin after this error; the load error would make some of them fail.
                raise BrokerError(ErrorCode.REBALANCE_IN_PROGRESS) from None
            raise
        return self._served(request.group_id).sync(request)

    def heartbeat(self, request: HeartbeatRequest) -> None:
        """Handle Heartbeat; while the group is being loaded every heartbeat is accepted. Raises BrokerError."""
        try:
            self.check(request.group_id)
        except BrokerError as refusal:
            if refusal.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                return
            raise
        self._served(request.group_id).heartbeat(request)

    def patterns_of(self, request: ConsumerGroupHeartbeatRequest) -> frozenset[str]:
        """Return the subscription patterns of the request and its group, which `match_patterns` must match first."""
        group = self._groups.consumer(request.group_id)
        patterns = frozenset[str]() if group is None else group.patterns
        if request.subscribed_topic_regex and is_valid_pattern(request.subscribed_topic_regex):
            patterns |= {request.subscribed_topic_regex}
        return patterns

    async def match_patterns(self, patterns: Collection[str]) -> None:
        """Match all topics against ``patterns``, ahead of `consumer_heartbeat`. Raises BrokerError."""
        await self._consumer_groups.topics.match(patterns)

    def consumer_heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, client: HeartbeatingClient
    ) -> ConsumerGroupHeartbeatResponse:
        """Handle ConsumerGroupHeartbeat (KIP-848). Raises BrokerError for every refusal."""
        self.check(request.group_id, may_be_empty=True)
        return self._consumer.heartbeat(request, client)

    def leave(self, group_id: str, members: Sequence[MemberIdentity]) -> list[MemberResponse]:
        """Handle LeaveGroup of some members. Raises BrokerError if the group cannot be served."""
        self.check(group_id)
        group = self._groups.get(group_id)
        if group is not None:
            return self._serve(group).leave(members)
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
        """Handle OffsetCommit, or TxnOffsetCommit if a producer is given; return the error of each position.

        Raises BrokerError if the group as a whole refuses.
        """
        is_transactional = producer is not None
        group_id = committer.group_id
        self.check(group_id, may_be_empty=not is_transactional)
        group = self._groups.get(group_id)
        if group is None:
            if committer.generation_id >= 0 and not is_transactional:
                raise BrokerError(ErrorCode.ILLEGAL_GENERATION)
            group = self._new_group(group_id)
        self._serve(group).check_commit(committer, is_transactional=is_transactional)
        return self._offsets.commit(group_id, positions, producer)

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
        self.check(group_id, may_be_empty=True)
        group = self._groups.get(group_id)
        if group is not None:
            self._serve(group).check_fetch(member_id, member_epoch)
        return self._offsets.fetch(group_id, partitions, require_stable=require_stable)

    def delete_offsets(self, group_id: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, ErrorCode]:
        """Handle OffsetDelete (KIP-496): offsets of subscribed topics stay.

        Raises BrokerError if the group as a whole refuses.
        """
        self.check(group_id)
        group = self._groups.get(group_id)
        if group is None:
            raise BrokerError(ErrorCode.GROUP_ID_NOT_FOUND)
        if not group.is_empty and not group.is_consumer_group:
            raise BrokerError(ErrorCode.NON_EMPTY_GROUP)
        errors = {
            partition: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            if group.members and group.is_subscribed_to(partition.topic)
            else ErrorCode.NONE
            for partition in partitions
        }
        self._offsets.delete(group_id, [partition for partition, error in errors.items() if not error])
        self._delete_if_unused(group)
        return errors

    def transaction_ended(self, index: int, producer_id: int, *, is_commit: bool) -> None:
        """Commit or discard the offsets of a transaction, whose marker is in this partition of the offsets topic.

        While the partition is being loaded, the replay of the marker does so.
        """
        if self.partitions.is_unread(index):
            return
        concerned = [
            group_id
            for group_id in self._offsets.offsets.groups_in_transaction(producer_id)
            if self.partition_of(group_id) == index
        ]
        self._offsets.end_transaction(producer_id, concerned, is_commit=is_commit)

    def topic_deleted(self, topic: str) -> None:
        """Delete the committed offsets of a deleted topic."""
        for group_id in self._offsets.delete_topic(topic):
            self._clean_up(group_id, self._delete_if_unused)

    # --- administration

    def describe(self, group_id: str) -> DescribedGroup:
        """Handle DescribeGroups for one group; a classic group that does not exist is Dead. Raises BrokerError."""
        self.check(group_id, may_be_empty=True)
        group = self._groups.classic(group_id)
        return describe_unknown(group_id) if group is None else describe_classic(group)

    def describe_consumer_group(self, group_id: str) -> DescribedConsumerGroup:
        """Handle ConsumerGroupDescribe for one group.

        Raises BrokerError if there is no such group of the consumer protocol.
        """
        self.check(group_id)
        group = self._groups.consumer(group_id)
        if group is None:
            raise BrokerError(ErrorCode.GROUP_ID_NOT_FOUND)
        default_assignor = next(iter(self._consumer_groups.assignors))
        return describe_consumer_group(group, self._consumer_groups.topics, default_assignor)

    def all_groups(self) -> tuple[ErrorCode, list[Group]]:
        """Return the groups of this broker, and COORDINATOR_LOAD_IN_PROGRESS while some are being loaded, else NONE."""
        error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if self.partitions.is_reading else ErrorCode.NONE
        return error, [*self._groups]

    def list(self, states: Sequence[str], types: Sequence[str]) -> tuple[ErrorCode, list[ListedGroup]]:
        """Handle ListGroups: return the groups that pass the filters, and an error while some are being loaded."""
        error, groups = self.all_groups()
        return error, filtered(map(list_group, groups), states, types)

    def delete(self, group_id: str) -> None:
        """Handle DeleteGroups for one group.

        Raises BrokerError: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP if it has members, or the refusal of the log.
        """
        self.check(group_id, may_be_empty=True)
        group = self._groups.get(group_id)
        if group is None:
            raise BrokerError(ErrorCode.GROUP_ID_NOT_FOUND)
        if not group.is_empty:
            raise BrokerError(ErrorCode.NON_EMPTY_GROUP)
        self._delete(group)

    # --- expiry and removal

    async def _expire_offsets(self) -> None:
        while True:
            await trio.sleep(self._config.offsets_retention_check_interval_ms / 1000)
            for group_id in [group.group_id for group in self._groups]:
                self._clean_up(group_id, self._expire_offsets_of)
                await trio.lowlevel.checkpoint()

    def _clean_up(self, group_id: str, clean_up: Callable[[Group], None]) -> None:
        """Clean up the present state of a group, unless the group is gone or being loaded.

        What is loaded of a group may be years old: the records that renew its offsets may not be replayed yet.
        """
        group = self._groups.get(group_id)
        if group is None or not self.partitions.serves(group_id):
            return
        try:
            clean_up(group)
        except BrokerError as error:
            logger.warning("group %s: its tombstones could not be written: %s", group_id, error.code.name)

    def _expire_offsets_of(self, group: Group) -> None:
        offsets, now_ms = self._offsets.offsets.of(group.group_id), self._clock.now_ms()
        retention_ms = self._config.offsets_retention_minutes * MINUTE_MS
        self._offsets.delete(group.group_id, expired_offsets(group, offsets, now_ms=now_ms, retention_ms=retention_ms))
        self._delete_if_unused(group)

    def _delete_if_unused(self, group: Group) -> None:
        """Delete a group without members and offsets."""
        if group.is_unused and not self._offsets.offsets.of(group.group_id):
            self._delete(group)

    def _delete(self, group: Group) -> None:
        self._serve(group).delete(self._offsets.offsets.of(group.group_id).partitions)
        self._offsets.offsets.remove_group(group.group_id)
