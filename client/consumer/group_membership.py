"""Being a member of a consumer group: what the classic and the consumer protocol have in common.

A member takes part until it leaves: it finds the group's coordinator, stays in touch with it, takes over the partitions
that it is given, and begins again after what can be mended. How it takes part is what `classic_protocol_membership.py`
and `consumer_protocol_membership.py` say.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable
from typing import ClassVar

import trio

from ...protocol.errors import BrokerError, ErrorCode
from ..config import ConsumerConfig
from ..errors import COORDINATOR_MOVED_CODES, ConnectionLostError
from ..wire.cluster import Cluster, CoordinatorType
from ..wire.connection import Connection
from ..wire.group_offsets import Membership
from .subscription import Subscription, TopicPartition

logger = logging.getLogger(__name__)

Listener = Callable[[list[TopicPartition]], Awaitable[None]]


class GroupMembership(ABC):
    """One member. `run` keeps it in its group; the assignment goes to `subscription`.

    `on_revoked` is called before partitions are let go, `on_assigned` after new ones have come.
    """

    START_ANEW_CODES: ClassVar[frozenset[ErrorCode]]
    """Refusals by which the group says that it does not count on this member any more."""
    PASSING_CODES: ClassVar[frozenset[ErrorCode]] = frozenset()
    """Refusals that may pass, beside those that are retriable for everybody."""

    def __init__(
        self,
        cluster: Cluster,
        subscription: Subscription,
        config: ConsumerConfig,
        *,
        on_revoked: Listener,
        on_assigned: Listener,
    ) -> None:
        assert config.group_id is not None
        self._group_id = config.group_id
        self._cluster = cluster
        self._subscription = subscription
        self._config = config
        self._on_revoked = on_revoked
        self._on_assigned = on_assigned
        self._member_id = ""
        self._last_poll_at = trio.current_time()
        self._has_polled = trio.Event()
        self._lifetime = trio.CancelScope()

    # --- what the protocols differ in ---

    @property
    @abstractmethod
    def membership(self) -> Membership:
        """As whom offsets are committed now."""

    @abstractmethod
    def rejoin(self) -> None:
        """Have the group know that the subscription has changed, or the topics have."""

    @abstractmethod
    def topics_changed(self) -> bool:
        """Whether what this member has assigned to others no longer fits the topics' partitions."""

    @abstractmethod
    async def _take_part(self) -> None:
        """Be in the group for a while: a rebalance and the heartbeats after it, or one heartbeat.

        Raises BrokerError and ConnectionLostError.
        """

    @abstractmethod
    async def _say_goodbye(self) -> None:
        """Tell the coordinator that this member leaves, if it is a member."""

    @abstractmethod
    def _forget_place(self, code: ErrorCode) -> None:
        """Prepare to join anew, after one of the protocol's START_ANEW_CODES."""

    # --- what they share ---

    async def run(self) -> None:
        """Stay in the group until `leave`. Raises BrokerError for refusals that will not change."""
        with self._lifetime:
            while True:
                try:
                    await self._take_part()
                except ConnectionLostError as failure:
                    logger.info("the coordinator of %s is lost: %s", self._group_id, failure)
                    await self._look_for_coordinator()
                except BrokerError as error:
                    await self._recover(error)

    async def leave(self) -> None:
        """Leave the group, so that it need not wait for the session to time out. Static members stay (KIP-345)."""
        # A heartbeat after the last one would join again.
        self._lifetime.cancel()
        await self._say_goodbye()

    async def _recover(self, error: BrokerError) -> None:
        if error.code in COORDINATOR_MOVED_CODES:
            await self._look_for_coordinator()
        elif error.code in self.START_ANEW_CODES:
            logger.info("%s: %s; joining anew", self._group_id, error.code.name)
            self._forget_place(error.code)
            await self._let_go(self._subscription.positions)
        elif error.code.retriable or error.code in self.PASSING_CODES:
            await self._pause()
        else:
            raise error

    def polled(self) -> None:
        """Note that the user has asked for records."""
        self._last_poll_at = trio.current_time()
        self._has_polled.set()

    async def _check_poll(self) -> None:
        """Leave if the user has not asked for records within `max.poll.interval.ms`, until he does (KIP-62).

        Raises BrokerError with UNKNOWN_MEMBER_ID then.
        """
        if trio.current_time() - self._last_poll_at <= self._config.max_poll_interval_ms / 1000:
            return
        logger.warning("%s: no poll within max.poll.interval.ms, leaving the group", self._group_id)
        self._has_polled = trio.Event()
        await self._let_go(self._subscription.positions)
        await self._say_goodbye()
        await self._has_polled.wait()
        raise BrokerError(ErrorCode.UNKNOWN_MEMBER_ID, "max.poll.interval.ms")

    async def _take_over(self, assigned: Iterable[TopicPartition]) -> bool:
        """Make an assignment ours, letting go what is not in it; says whether there was any such."""
        assigned = list(assigned)
        lost = self._subscription.positions.keys() - set(assigned)
        await self._let_go(place for place in self._subscription.positions if place in lost)
        new = [place for place in assigned if place not in self._subscription.positions]
        missing = {topic for topic, _ in assigned if topic not in self._cluster.topics}
        if missing:
            await self._cluster.refresh(missing)
        self._subscription.assign(assigned)
        await self._on_assigned(new)
        return bool(lost)

    async def _let_go(self, places: Iterable[TopicPartition]) -> None:
        if places := list(places):
            await self._on_revoked(places)
            self._subscription.revoke(places)

    async def _coordinator(self) -> Connection:
        node = await self._cluster.coordinator(CoordinatorType.GROUP, self._group_id)
        return await self._cluster.connection(node)

    async def _look_for_coordinator(self) -> None:
        """Have the next request ask who the coordinator is, after a while."""
        self._cluster.forget_coordinator(CoordinatorType.GROUP, self._group_id)
        await self._pause()

    async def _pause(self) -> None:
        await trio.sleep(self._config.retry_backoff_ms / 1000)
