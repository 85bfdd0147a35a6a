"""Membership in a consumer group by the consumer protocol (KIP-848): one heartbeat joins, keeps and leaves.

The coordinator assigns the partitions. A member with a new assignment first revokes the partitions that are no
longer in it (so that other members can be assigned them), then takes the new partitions, and reports in the next
heartbeat which partitions it owns now. `member_epoch` 0 joins, -1 leaves, -2 leaves for a while and keeps the place
of a static member. Heartbeats continue while an assignment waits for the user's next poll.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from typing import ClassVar
from uuid import UUID, uuid4

import trio

from ...protocol.apis import ApiKey
from ...protocol.errors import BrokerError, ErrorCode
from ...protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from ..config import ConsumerConfig
from ..errors import ConnectionLostError
from ..wire.cluster import Cluster
from ..wire.group_offsets import Membership
from .group_membership import AssignmentListener, GroupMembership
from .poll_boundary import PollBoundary
from .subscription import Subscription, by_topic

JOINING = 0
LEAVING = -1
LEAVING_FOR_A_WHILE = -2
FIRST_VERSION_WITH_OWN_IDS = 1
"""The first version in which members generate their own member ids (KIP-1082)."""


class ConsumerProtocolMembership(GroupMembership):
    """A member by the consumer protocol. The coordinator assigns the partitions."""

    START_ANEW_CODES: ClassVar = frozenset({ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID})
    PASSING_CODES: ClassVar = frozenset({ErrorCode.UNRELEASED_INSTANCE_ID})

    def __init__(
        self,
        cluster: Cluster,
        subscription: Subscription,
        config: ConsumerConfig,
        boundary: PollBoundary,
        listener: AssignmentListener,
    ) -> None:
        super().__init__(cluster, subscription, config, boundary, listener)
        self._epoch = JOINING
        self._interval = config.heartbeat_interval_ms / 1000
        self._told_topics: frozenset[str] | None = None
        self._must_tell_owned = False
        self._target: Assignment | None = None

    @property
    def membership(self) -> Membership:
        """The member and epoch with which offsets are committed now."""
        return Membership(self._epoch, self._member_id, self._config.group_instance_id)

    def rejoin(self) -> None:
        """Report a changed subscription to the coordinator."""
        self._told_topics = None
        self._beat_wanted.set()

    def topics_changed(self) -> bool:
        """Return False: the coordinator watches the topics itself."""
        return False

    def _forget_place(self, code: ErrorCode) -> None:
        self._epoch = JOINING
        self._target = None

    async def _say_goodbye(self) -> None:
        if not self._member_id or self._epoch < JOINING:
            return
        epoch = LEAVING if self._config.group_instance_id is None else LEAVING_FOR_A_WHILE
        await self._send(ConsumerGroupHeartbeatRequest(), epoch)
        self._epoch = epoch

    # --- one heartbeat ---

    @property
    def _beat_interval_s(self) -> float:
        return 0.0 if self._must_tell_owned else self._interval

    async def _beat(self) -> None:
        request = ConsumerGroupHeartbeatRequest()
        topics = self._subscription.topics
        if self._epoch == JOINING or self._told_topics != topics:
            request.rebalance_timeout_ms = self._config.max_poll_interval_ms
            request.subscribed_topic_names = sorted(topics)
            request.server_assignor = self._config.group_remote_assignor
            request.rack_id = self._config.client_rack or None
            self._must_tell_owned = True
        if self._must_tell_owned:
            request.topic_partitions = self._owned()
        # A change while the answer is pending is reported by the next heartbeat.
        self._must_tell_owned = False
        try:
            answer = await self._send(request, self._epoch)
        except (BrokerError, ConnectionLostError):
            self._must_tell_owned = True
            raise
        self._told_topics = topics
        self._member_id = answer.member_id or self._member_id
        self._epoch = answer.member_epoch
        self._interval = answer.heartbeat_interval_ms / 1000
        if answer.assignment is not None:
            self._target = answer.assignment
            self._rebalance_wanted.set()

    async def _send(self, request: ConsumerGroupHeartbeatRequest, epoch: int) -> ConsumerGroupHeartbeatResponse:
        connection = await self._coordinator()
        version = connection.versions.version(ApiKey.CONSUMER_GROUP_HEARTBEAT)
        if not self._member_id and version >= FIRST_VERSION_WITH_OWN_IDS:
            self._member_id = urlsafe_b64encode(uuid4().bytes).rstrip(b"=").decode()
        request.group_id = self._group_id
        request.member_id = self._member_id
        request.member_epoch = epoch
        request.instance_id = self._config.group_instance_id
        # A member cannot leave without the id that the coordinator is about to give it.
        with trio.CancelScope(shield=not self._member_id):
            answer = await connection.request(request, ConsumerGroupHeartbeatResponse, version=version)
        if answer.error_code:
            raise BrokerError(ErrorCode(answer.error_code), answer.error_message)
        return answer

    # --- the assignment ---

    async def _rebalance(self) -> None:
        """Take over the assignment, and report it in a heartbeat at once."""
        self._rebalance_wanted = trio.Event()
        if self._target is None:
            return
        wanted = {item.topic_id for item in self._target.topic_partitions}
        names = await self._names(wanted)
        places = [
            (names[item.topic_id], partition)
            for item in self._target.topic_partitions
            if item.topic_id in names
            for partition in item.partitions
        ]
        await self._take_over(places)
        self._must_tell_owned = True
        self._beat_wanted.set()
        if not wanted <= names.keys():
            # The broker that answered the Metadata request does not have a topic yet that the coordinator has.
            await trio.sleep(self._config.retry_backoff_ms / 1000)
            self._rebalance_wanted.set()

    async def _names(self, wanted: set[UUID]) -> dict[UUID, str]:
        """Return the names of known topics by id, with a metadata refresh if an id of `wanted` is unknown."""
        if not wanted <= self._known_names().keys():
            await self._cluster.refresh(self._subscription.topics)
        return self._known_names()

    def _known_names(self) -> dict[UUID, str]:
        return {topic.topic_id: name for name, topic in self._cluster.topics.items()}

    def _owned(self) -> list[TopicPartitions]:
        ids = {name: topic.topic_id for name, topic in self._cluster.topics.items()}
        return [
            TopicPartitions(topic_id=ids[topic], partitions=partitions)
            for topic, partitions in by_topic(self._subscription.positions).items()
            if topic in ids
        ]
