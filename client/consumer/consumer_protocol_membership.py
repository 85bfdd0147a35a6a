"""Being a member of a consumer group by the consumer protocol (KIP-848): one heartbeat joins, keeps and leaves.

The coordinator assigns. A member that is told other partitions than it has gives up what it must (so that others may
have it), takes what is new, and says in the next heartbeat what it owns now. `member_epoch` 0 joins, -1 leaves, -2
leaves a static member's place open.
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
from ..wire.cluster import Cluster
from ..wire.group_offsets import Membership
from .group_membership import GroupMembership, Listener
from .subscription import Subscription, TopicPartition, by_topic

JOINING = 0
LEAVING = -1
LEAVING_FOR_A_WHILE = -2
FIRST_VERSION_WITH_OWN_IDS = 1
"""From here on members make their ids themselves (KIP-1082)."""


class ConsumerProtocolMembership(GroupMembership):
    """One member. The coordinator divides the partitions."""

    START_ANEW_CODES: ClassVar = frozenset({ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID})
    PASSING_CODES: ClassVar = frozenset({ErrorCode.UNRELEASED_INSTANCE_ID})

    def __init__(
        self,
        cluster: Cluster,
        subscription: Subscription,
        config: ConsumerConfig,
        *,
        on_revoked: Listener,
        on_assigned: Listener,
    ) -> None:
        super().__init__(cluster, subscription, config, on_revoked=on_revoked, on_assigned=on_assigned)
        self._epoch = JOINING
        self._interval = config.heartbeat_interval_ms / 1000
        self._told_topics: frozenset[str] | None = None
        self._must_tell_owned = False
        self._beat_wanted = trio.Event()

    @property
    def membership(self) -> Membership:
        """As whom offsets are committed now."""
        return Membership(self._epoch, self._member_id, self._config.group_instance_id)

    def rejoin(self) -> None:
        """Tell the coordinator of a subscription that has changed."""
        self._told_topics = None
        self._beat_wanted.set()

    def topics_changed(self) -> bool:
        """Never: the coordinator looks at the topics itself."""
        return False

    async def _take_part(self) -> None:
        self._beat_wanted = trio.Event()
        await self._beat()
        if self._must_tell_owned:
            return
        with trio.move_on_after(self._interval):
            await self._beat_wanted.wait()
        await self._check_poll()

    def _forget_place(self, code: ErrorCode) -> None:
        self._epoch = JOINING

    async def _say_goodbye(self) -> None:
        if not self._member_id or self._epoch < JOINING:
            return
        self._epoch = LEAVING if self._config.group_instance_id is None else LEAVING_FOR_A_WHILE
        await self._send(ConsumerGroupHeartbeatRequest())

    # --- one heartbeat ---

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
        answer = await self._send(request)
        self._told_topics = topics
        self._must_tell_owned = False
        self._member_id = answer.member_id or self._member_id
        self._epoch = answer.member_epoch
        self._interval = answer.heartbeat_interval_ms / 1000
        if answer.assignment is not None:
            await self._adopt(await self._places(answer.assignment))

    async def _send(self, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        connection = await self._coordinator()
        version = connection.versions.version(ApiKey.CONSUMER_GROUP_HEARTBEAT)
        if not self._member_id and version >= FIRST_VERSION_WITH_OWN_IDS:
            self._member_id = urlsafe_b64encode(uuid4().bytes).rstrip(b"=").decode()
        request.group_id = self._group_id
        request.member_id = self._member_id
        request.member_epoch = self._epoch
        request.instance_id = self._config.group_instance_id
        answer = await connection.request(request, ConsumerGroupHeartbeatResponse, version=version)
        if answer.error_code:
            raise BrokerError(ErrorCode(answer.error_code), answer.error_message)
        return answer

    # --- the assignment ---

    async def _places(self, assignment: Assignment) -> list[TopicPartition]:
        """The partitions that are meant by the topics' ids; of topics that are unknown still, none."""
        names = self._names()
        wanted = {item.topic_id for item in assignment.topic_partitions}
        if not wanted <= names.keys():
            await self._cluster.refresh(self._subscription.topics)
            names = self._names()
        return [
            (names[item.topic_id], partition)
            for item in assignment.topic_partitions
            if item.topic_id in names
            for partition in item.partitions
        ]

    def _names(self) -> dict[UUID, str]:
        return {topic.topic_id: name for name, topic in self._cluster.topics.items()}

    async def _adopt(self, assigned: list[TopicPartition]) -> None:
        """Make the assignment ours, and have the next heartbeat say so at once if that changed anything."""
        await self._take_over(assigned)
        self._must_tell_owned = True

    def _owned(self) -> list[TopicPartitions]:
        ids = {name: topic.topic_id for name, topic in self._cluster.topics.items()}
        return [
            TopicPartitions(topic_id=ids[topic], partitions=partitions)
            for topic, partitions in by_topic(self._subscription.positions).items()
            if topic in ids
        ]
