"""What a consumer commits, and as whom: by the user's word, now and then, and before partitions go."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import trio

from ..protocol.errors import BrokerError, ErrorCode
from .config import ConsumerConfig
from .consumer.group_membership import GroupMembership
from .consumer.subscription import Subscription, TopicPartition
from .errors import ClientError, ConfigError
from .wire.cluster import Cluster
from .wire.group_offsets import NO_MEMBERSHIP, GroupMetadata, Membership, commit_offsets

logger = logging.getLogger(__name__)


class Committer:
    """Commits offsets of one consumer, one request at a time; `group` is what it is a member of, once it subscribes."""

    def __init__(self, cluster: Cluster, subscription: Subscription, config: ConsumerConfig) -> None:
        self.group: GroupMembership | None = None
        self._cluster = cluster
        self._subscription = subscription
        self._config = config
        self._committing = trio.Lock()

    @property
    def is_automatic(self) -> bool:
        """Whether commits happen without the user's word."""
        return self._config.group_id is not None and self._config.enable_auto_commit

    async def run(self) -> None:
        """Commit what the user has finished every `auto.commit.interval.ms`, until cancelled; failures are logged."""
        last: dict[TopicPartition, int] = {}
        while True:
            await trio.sleep(self._config.auto_commit_interval_ms / 1000)
            processed = self._subscription.processed()
            changed = {place: offset for place, offset in processed.items() if last.get(place) != offset}
            try:
                await self.commit(changed)
                last = processed
            except (ClientError, BrokerError) as failure:
                logger.info("auto commit: %s", failure)

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit the next offsets to read.

        Raises ConfigError without `group_id`, BrokerError, DeadlineExceededError.
        """
        if self._config.group_id is None:
            raise ConfigError("commit needs a group_id")
        if not offsets:
            return
        # One at a time: an earlier one that has to be repeated would undo a later one else.
        async with self._committing:
            await commit_offsets(
                self._cluster,
                self._config.group_id,
                offsets,
                self._config,
                timeout_ms=self._config.default_api_timeout_ms,
                membership=self.membership,
            )

    async def commit_before_revocation(self, places: list[TopicPartition]) -> None:
        """Commit what the user has finished of partitions that go; a failure is logged, as the records come again."""
        if not self.is_automatic:
            return
        processed = self._subscription.processed()
        try:
            await self.commit({place: processed[place] for place in places if place in processed})
        except (ClientError, BrokerError) as failure:
            logger.warning("commit before a rebalance: %s", failure)

    def membership(self) -> Membership:
        """As whom to commit. Raises BrokerError UNKNOWN_MEMBER_ID for who subscribes and is not in the group now."""
        if self.group is None:
            return NO_MEMBERSHIP
        membership = self.group.membership
        if self.group.is_lost or membership.generation_id < 0:
            # Coordinators take this from anybody once a group is empty (Kafka: CommitFailedException).
            raise BrokerError(ErrorCode.UNKNOWN_MEMBER_ID, f"not a member of {self._config.group_id} now")
        return membership

    def group_metadata(self) -> GroupMetadata:
        """As whom a transaction commits offsets. Raises ConfigError without `group_id`, BrokerError as `membership`."""
        if self._config.group_id is None:
            raise ConfigError("group_metadata needs a group_id")
        return GroupMetadata(self._config.group_id, *self.membership())
