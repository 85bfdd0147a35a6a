"""The commits of a consumer: explicit, automatic at intervals, and before a revocation."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import trio

from ...protocol.errors import BrokerError, ErrorCode
from ...protocol.topic_partition import AnyTopicPartition
from ..config import ConsumerConfig
from ..errors import ClientError, ConfigError
from ..wire.cluster import Cluster
from ..wire.group_offsets import NO_MEMBERSHIP, GroupMetadata, Membership, commit_offsets
from .group_membership import GroupMembership
from .subscription import Subscription

logger = logging.getLogger(__name__)

OVERTAKEN_CODES = frozenset(
    {ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.STALE_MEMBER_EPOCH}
)
"""Refusals of a generation or member epoch that was current when the request was sent, and may be stale by now."""


class Committer:
    """The offset commits of one consumer, one request at a time; `group` is its membership once it has subscribed."""

    def __init__(self, cluster: Cluster, subscription: Subscription, config: ConsumerConfig) -> None:
        self.group: GroupMembership | None = None
        self._cluster = cluster
        self._subscription = subscription
        self._config = config
        self._committing = trio.Lock()

    @property
    def is_automatic(self) -> bool:
        """Whether offsets are committed automatically."""
        return self._config.group_id is not None and self._config.enable_auto_commit

    async def run(self) -> None:
        """Commit processed offsets every `auto.commit.interval.ms`, until cancelled; failures are logged."""
        last: dict[AnyTopicPartition, int] = {}
        while True:
            await trio.sleep(self._config.auto_commit_interval_ms / 1000)
            processed = self._subscription.processed()
            changed = {place: offset for place, offset in processed.items() if last.get(place) != offset}
            try:
                await self.commit(changed)
                last = processed
            except (ClientError, BrokerError) as failure:
                logger.info("auto commit: %s", failure)

    async def commit(self, offsets: Mapping[AnyTopicPartition, int]) -> None:
        """Commit the next offsets to read, with retries for as long as the partitions are assigned to this member.

        A rebalance changes the generation and a heartbeat the member epoch (KIP-848), both possibly while a request
        is in flight. Raises ConfigError without `group_id`, BrokerError, DeadlineExceededError.
        """
        if self._config.group_id is None:
            raise ConfigError("commit needs a group_id")
        if not offsets:
            return
        deadline = trio.current_time() + self._config.default_api_timeout_ms / 1000
        # One commit at a time: otherwise the retry of an earlier commit would undo a later one.
        async with self._committing:
            while (refusal := await self._try_to_commit(self._config.group_id, offsets)) is not None:
                if trio.current_time() >= deadline:
                    raise refusal

    async def _try_to_commit(self, group_id: str, offsets: Mapping[AnyTopicPartition, int]) -> BrokerError | None:
        """Commit once; return a refusal that may be retried, raise any other."""
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

    async def commit_before_revocation(self, places: list[AnyTopicPartition]) -> None:
        """Commit the processed offsets of partitions that are revoked; a failure is logged, as the records are read
        again.
        """
        if not self.is_automatic:
            return
        processed = self._subscription.processed()
        try:
            await self.commit({place: processed[place] for place in places if place in processed})
        except (ClientError, BrokerError) as failure:
            logger.warning("commit before a rebalance: %s", failure)

    def membership(self) -> Membership:
        """Return the membership to commit with.

        Raises BrokerError UNKNOWN_MEMBER_ID for a consumer that has subscribed and is not a member of the group now.
        """
        if self.group is None:
            return NO_MEMBERSHIP
        membership = self.group.membership
        if self.group.is_lost or membership.generation_id < 0:
            # A coordinator accepts such a commit from anyone once the group is empty (Kafka: CommitFailedException).
            raise BrokerError(ErrorCode.UNKNOWN_MEMBER_ID, f"not a member of {self._config.group_id} now")
        return membership

    def group_metadata(self) -> GroupMetadata:
        """Return the group and member with which a transaction commits offsets.

        Raises ConfigError without `group_id`, BrokerError as `membership`.
        """
        if self._config.group_id is None:
            raise ConfigError("group_metadata needs a group_id")
        return GroupMetadata(self._config.group_id, *self.membership())
