"""What a consumer commits, and as whom: by the user's word, now and then, and before partitions go."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import trio

from ...protocol.errors import BrokerError, ErrorCode
from ..config import ConsumerConfig
from ..errors import ClientError, ConfigError
from ..wire.cluster import Cluster
from ..wire.group_offsets import NO_MEMBERSHIP, GroupMetadata, Membership, commit_offsets
from .group_membership import GroupMembership
from .subscription import Subscription, TopicPartition

logger = logging.getLogger(__name__)

OVERTAKEN_CODES = frozenset(
    {ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.STALE_MEMBER_EPOCH}
)
"""Refusals of a generation or member epoch that was right when the request began, and may be another by now."""


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
        """Commit the next offsets to read, as often as it takes while the partitions are this member's.

        A rebalance changes the generation, a heartbeat the member epoch (KIP-848), and a request may meet that on its
        way. Raises ConfigError without `group_id`, BrokerError, DeadlineExceededError.
        """
        if self._config.group_id is None:
            raise ConfigError("commit needs a group_id")
        if not offsets:
            return
        deadline = trio.current_time() + self._config.default_api_timeout_ms / 1000
        # One at a time: an earlier one that has to be repeated would undo a later one else.
        async with self._committing:
            while (refusal := await self._try_to_commit(self._config.group_id, offsets)) is not None:
                if trio.current_time() >= deadline:
                    raise refusal

    async def _try_to_commit(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> BrokerError | None:
        """Commit once; returns a refusal after which another attempt is worth while, and raises any other."""
        member = self.membership()
        try:
            await commit_offsets(
                self._cluster,
                group_id,
                offsets,
                self._config,
                timeout_ms=self._config.default_api_timeout_ms,
                membership=member,
            )
        except BrokerError as refusal:
            is_owner = self.group is not None and offsets.keys() <= self._subscription.positions.keys()
            if not is_owner or refusal.code not in OVERTAKEN_CODES:
                raise
            await trio.sleep(self._config.retry_backoff_ms / 1000)
            if refusal.code is ErrorCode.ILLEGAL_GENERATION and self.membership() == member:
                raise
            return refusal
        return None

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
