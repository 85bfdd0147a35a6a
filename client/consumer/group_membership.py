"""Membership in a consumer group: the common part of the classic and the consumer protocol.

A member has two tasks. One sends heartbeats, independently of the user and of the other task. The other rebalances:
it takes over the assignments of the group. Partitions are assigned and revoked, and the user's listeners run, only
while the user asks for records (`poll_boundary.py`), as in Kafka's ConsumerCoordinator.
`classic_protocol_membership.py` and `consumer_protocol_membership.py` define the heartbeats and assignments.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import ClassVar, Protocol

import trio

from ...protocol.errors import BrokerError, ErrorCode
from ...protocol.topic_partition import AnyTopicPartition
from ..config import ConsumerConfig
from ..errors import COORDINATOR_MOVED_CODES, AuthenticationFailedError, ClientError, is_retriable
from ..wire.cluster import Cluster, CoordinatorType
from ..wire.connection import Connection
from ..wire.group_offsets import Membership
from ..wire.retry import retry
from .poll_boundary import PollBoundary
from .subscription import Subscription

logger = logging.getLogger(__name__)

MIN_PAUSE_S = 0.001
"""The shortest time between two checks of whether the user still polls."""


class AssignmentListener(Protocol):
    """The actions of the consumer on assignment and revocation; all but `commit_processed` run in the user's task."""

    async def commit_processed(self, places: list[AnyTopicPartition]) -> None:
        """Commit the processed offsets of partitions that are about to be revoked, with auto-commit."""

    async def on_revoked(self, places: list[AnyTopicPartition]) -> None:
        """Handle a revocation of partitions whose offsets may still be committed."""

    async def on_lost(self, places: list[AnyTopicPartition]) -> None:
        """Handle the loss of partitions that may be assigned to other members already."""

    async def on_assigned(self, places: list[AnyTopicPartition]) -> None:
        """Handle the assignment of new partitions (perhaps none)."""


class GroupMembership(ABC):
    """A member of a group. `run` keeps it in its group; the assignment is stored in `subscription`."""

    START_ANEW_CODES: ClassVar[frozenset[ErrorCode]]
    """Refusals that mean that the group has removed this member."""
    PASSING_CODES: ClassVar[frozenset[ErrorCode]] = frozenset()
    """Refusals that this protocol retries, in addition to the retriable codes."""

    def __init__(
        self,
        cluster: Cluster,
        subscription: Subscription,
        config: ConsumerConfig,
        boundary: PollBoundary,
        listener: AssignmentListener,
    ) -> None:
        assert config.group_id is not None
        self.is_lost = False
        """Whether the group has removed this member, and the user has not polled since."""
        self._group_id = config.group_id
        self._cluster = cluster
        self._subscription = subscription
        self._config = config
        self._boundary = boundary
        self._listener = listener
        self._member_id = ""
        self._lifetime = trio.CancelScope()
        self._ended = trio.Event()
        self._ended.set()
        """Set while `run` is not running."""
        self._rebalance_wanted = trio.Event()
        self._rebalance_wanted.set()
        self._rebalancing = trio.CancelScope()
        self._beat_wanted = trio.Event()

    # --- defined by each protocol ---

    @property
    @abstractmethod
    def membership(self) -> Membership:
        """The member and generation (or epoch) with which offsets are committed now."""

    @abstractmethod
    def rejoin(self) -> None:
        """Report a changed subscription, or changed topics, to the group."""

    @abstractmethod
    def topics_changed(self) -> bool:
        """Return whether the assignment that this member has made as leader no longer fits the topics' partitions."""

    @property
    @abstractmethod
    def _beat_interval_s(self) -> float:
        """The time between heartbeats."""

    @abstractmethod
    async def _beat(self) -> None:
        """Send a heartbeat, if one is due, and handle its answer.

        Raises BrokerError and ConnectionLostError.
        """

    @abstractmethod
    async def _rebalance(self) -> None:
        """Adopt the assignment of the group. Raises BrokerError and ConnectionLostError."""

    @abstractmethod
    async def _say_goodbye(self) -> None:
        """Send the coordinator the request to leave, if this consumer is a member.

        Raises BrokerError and ConnectionLostError.
        """

    @abstractmethod
    def _forget_place(self, code: ErrorCode) -> None:
        """Reset the state for joining again, after one of the protocol's START_ANEW_CODES."""

    # --- common ---

    async def run(self) -> None:
        """Stay in the group until `stop`. The user's next poll raises permanent failures."""
        self._ended = trio.Event()
        try:
            with self._lifetime:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._persist, self._keep_beating)
                    nursery.start_soon(self._persist, self._keep_rebalancing)
        finally:
            self._ended.set()

    def stop(self) -> None:
        """End `run`: no partitions are assigned or revoked any more, and no heartbeats are sent."""
        self._lifetime.cancel()

    async def give_up_all(self) -> None:
        """Call the user's listener for the revocation of all partitions, because the consumer closes."""
        if places := list(self._subscription.positions):
            await self._revoke(places)

    async def leave(self) -> None:
        """Leave the group, so that it need not wait for the session timeout. Static members stay (KIP-345).

        A lost connection and a coordinator that has moved are retried until the caller's deadline. Raises BrokerError.
        """
        self.stop()
        # The answer of a heartbeat or join that is under way would change the member id and epoch.
        await self._ended.wait()
        await retry(
            self._say_goodbye,
            self._config,
            timeout_ms=self._config.default_api_timeout_ms,
            what="leaving the group",
            before_retry=self._forget_moved_coordinator,
        )

    def _forget_moved_coordinator(self, failure: Exception) -> None:
        if not isinstance(failure, BrokerError) or failure.code in COORDINATOR_MOVED_CODES:
            self._cluster.forget_coordinator(CoordinatorType.GROUP, self._group_id)

    async def _persist(self, task: Callable[[], Awaitable[None]]) -> None:
        """Run a task that ends only by errors, again and again."""
        while True:
            try:
                await task()
            except (BrokerError, ClientError) as failure:
                await self._recover(failure)

    async def _recover(self, failure: Exception) -> None:
        if not isinstance(failure, BrokerError) or failure.code in COORDINATOR_MOVED_CODES:
            logger.info("the coordinator of %s is lost: %s", self._group_id, failure)
            self._forget_moved_coordinator(failure)
            if isinstance(failure, AuthenticationFailedError):
                await self._boundary.tell(failure)
        elif failure.code in self.START_ANEW_CODES:
            self._lose_place(failure.code)
        elif not (is_retriable(failure) or failure.code in self.PASSING_CODES):
            if failure.code is ErrorCode.FENCED_INSTANCE_ID:
                # Another process has this member's partitions (KIP-345).
                self._subscription.withhold(self._subscription.positions)
            await self._boundary.tell(failure)
        await trio.sleep(self._config.retry_backoff_ms / 1000)

    # --- heartbeats ---

    async def _keep_beating(self) -> None:
        while True:
            self._beat_wanted = trio.Event()
            await self._check_poll()
            if not self.is_lost:
                await self._beat()
            patience_s = self._config.max_poll_interval_ms / 1000 - self._boundary.absence_s()
            with trio.move_on_after(min(self._beat_interval_s, max(patience_s, MIN_PAUSE_S))):
                await self._beat_wanted.wait()

    async def _check_poll(self) -> None:
        """Leave the group if the user has not polled within `max.poll.interval.ms`, until the next poll (KIP-62)."""
        if self.is_lost or self._boundary.absence_s() <= self._config.max_poll_interval_ms / 1000:
            return
        logger.warning(
            "%s: no poll within max.poll.interval.ms (%d), leaving the group until the next one",
            self._group_id,
            self._config.max_poll_interval_ms,
        )
        try:
            await self._say_goodbye()
        except (BrokerError, ClientError) as failure:
            logger.info("%s: %s", self._group_id, failure)
        self._lose_place(ErrorCode.UNKNOWN_MEMBER_ID)

    def _lose_place(self, code: ErrorCode) -> None:
        """Note that other members may have the partitions: none of their records are returned or committed any more."""
        if self.is_lost:
            return
        logger.info("%s: %s; joining the group again", self._group_id, code.name)
        self.is_lost = True
        self._forget_place(code)
        self._subscription.withhold(self._subscription.positions)
        self._rebalance_wanted.set()
        self._rebalancing.cancel()

    # --- rebalances ---

    async def _keep_rebalancing(self) -> None:
        while True:
            await self._rebalance_wanted.wait()
            with trio.CancelScope() as self._rebalancing:
                try:
                    await self._come_back()
                    await self._rebalance()
                except BaseException:
                    self._rebalance_wanted.set()
                    raise

    async def _come_back(self) -> None:
        """Wait, after the member was removed from the group, until the user polls and was informed."""
        if self.is_lost:
            await self._boundary.hand_over(self._lose_all)
            self._beat_wanted.set()

    async def _lose_all(self) -> None:
        places = list(self._subscription.positions)
        try:
            if places:
                await self._listener.on_lost(places)
        finally:
            self._subscription.revoke(places)
            self.is_lost = False

    async def _take_over(self, assigned: Iterable[AnyTopicPartition]) -> bool:
        """Adopt an assignment and revoke the partitions that are not in it; return whether there were such
        partitions.
        """
        assigned = list(assigned)
        kept = set(assigned)
        gone = [place for place in self._subscription.positions if place not in kept]
        missing = {topic for topic, _ in assigned if topic not in self._cluster.topics}
        if missing:
            await self._cluster.refresh(missing)
        await self._finish(gone)
        await self._boundary.hand_over(partial(self._adopt, assigned, gone))
        return bool(gone)

    async def _adopt(self, assigned: list[AnyTopicPartition], gone: list[AnyTopicPartition]) -> None:
        try:
            if gone:
                await self._revoke(gone)
        finally:
            # The user's listener was called and may have acted, even if it raises an exception.
            if not self.is_lost:
                new = [place for place in assigned if place not in self._subscription.positions]
                self._subscription.assign(assigned)
                await self._listener.on_assigned(new)

    async def _give_back_all(self) -> None:
        if places := list(self._subscription.positions):
            await self._finish(places)
            await self._boundary.hand_over(partial(self._revoke, places))

    async def _finish(self, places: list[AnyTopicPartition]) -> None:
        """Withhold further records of these partitions once the user polls, and commit the processed ones, with
        auto-commit.
        """
        if places and self._config.enable_auto_commit:
            await self._boundary.hand_over(partial(self._withhold, places))
            await self._listener.commit_processed(places)

    async def _withhold(self, places: list[AnyTopicPartition]) -> None:
        # The user polls, so all returned records are processed.
        self._subscription.withhold(places)

    async def _revoke(self, places: list[AnyTopicPartition]) -> None:
        try:
            await (self._listener.on_lost if self.is_lost else self._listener.on_revoked)(places)
        finally:
            self._subscription.revoke(places)

    async def _coordinator(self) -> Connection:
        node = await self._cluster.coordinator(CoordinatorType.GROUP, self._group_id)
        return await self._cluster.connection(node)
