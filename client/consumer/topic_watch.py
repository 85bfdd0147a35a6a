"""The task that refreshes a consumer's metadata, and finds the topics that match a subscribed pattern."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable

import trio

from ...protocol.errors import BrokerError
from ..config import ConsumerConfig
from ..errors import AuthenticationFailedError, ClientError, is_retriable
from ..wire.cluster import Cluster
from .poll_boundary import PollBoundary
from .subscription import Subscription

logger = logging.getLogger(__name__)


class TopicWatch:
    """A periodic check of the topics: every `metadata.max.age.ms`, and whenever another pattern is subscribed to.

    `on_change` is called when the subscribed topics have changed, `on_look` after each check.
    """

    def __init__(
        self,
        cluster: Cluster,
        subscription: Subscription,
        config: ConsumerConfig,
        boundary: PollBoundary,
        *,
        on_change: Callable[[], None],
        on_look: Callable[[], None],
    ) -> None:
        self._cluster = cluster
        self._subscription = subscription
        self._config = config
        self._boundary = boundary
        self._on_change = on_change
        self._on_look = on_look
        self._pattern: re.Pattern[str] | None = None
        self._topics_known = trio.Event()
        self._wanted = trio.Event()

    def subscribe(self, topics: frozenset[str] | re.Pattern[str]) -> None:
        """Note the user's subscription; the topics of a pattern are found in the background."""
        if isinstance(topics, re.Pattern):
            self._pattern = topics
            self._wanted.set()
            return
        self._pattern = None
        self._subscription.topics = topics
        self._topics_known.set()
        self._on_change()

    async def topics_known(self) -> None:
        """Wait until the subscribed topics are known."""
        await self._topics_known.wait()

    async def run(self) -> None:
        """Check the topics until cancelled. The user's next poll raises permanent failures."""
        while True:
            self._wanted = trio.Event()
            try:
                await self._look()
            except (ClientError, BrokerError) as failure:
                if isinstance(failure, BrokerError | AuthenticationFailedError) and not is_retriable(failure):
                    await self._boundary.tell(failure)
                else:
                    logger.info("metadata could not be fetched: %s", failure)
                    await trio.sleep(self._config.retry_backoff_ms / 1000)
                continue
            with trio.move_on_after(self._config.metadata_max_age_ms / 1000):
                await self._wanted.wait()

    async def _look(self) -> None:
        if self._pattern is not None:
            await self._match()
        topics = {topic for topic, _ in self._subscription.positions} | self._subscription.topics
        if topics:
            await self._cluster.refresh(topics)
        self._on_look()

    async def _match(self) -> None:
        """Subscribe to the topics that match now."""
        pattern = self._pattern
        answer = await self._cluster.refresh(None)
        if pattern is None or pattern is not self._pattern:
            return
        matching = frozenset(
            topic.name
            for topic in answer.topics
            if topic.name and not (topic.error_code or topic.is_internal) and pattern.fullmatch(topic.name)
        )
        is_first = not self._topics_known.is_set()
        self._topics_known.set()
        if is_first or matching != self._subscription.topics:
            self._subscription.topics = matching
            self._on_change()
