"""The group coordinator of a broker, which is created when something first needs it.

A broker without consumer groups then imports none of the coordinator's modules and messages, a sixth of all that it
would import.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from ....protocol.internal_topics import GROUP_METADATA

if TYPE_CHECKING:
    from ....storage.clock import Clock
    from ...config import BrokerConfig
    from ..internal_log.coordinator_log import InternalTopics
    from .coordinator import GroupCoordinator
    from .current_topics import TopicSource


class DeferredGroupCoordinator:
    """A place for the group coordinator that creates it for the first request or partition of the offsets topic."""

    def __init__(
        self, config: BrokerConfig, clock: Clock, internal_topics: InternalTopics, known_topics: TopicSource
    ) -> None:
        """Keep what `GroupCoordinator` needs; the parameters are those of its constructor."""
        self._config = config
        self._clock = clock
        self._internal_topics = internal_topics
        self._known_topics = known_topics
        self._created: GroupCoordinator | None = None
        self._is_created = trio.Event()

    @property
    def coordinator(self) -> GroupCoordinator:
        """The coordinator; the first use imports its modules and creates it."""
        if self._created is None:
            from .coordinator import GroupCoordinator

            self._created = GroupCoordinator(self._config, self._clock, self._internal_topics, self._known_topics)
            self._is_created.set()
        return self._created

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run the coordinator as soon as it exists; report started once requests may arrive.

        A lone broker that has an offsets topic loads it. In a cluster of several brokers elections do so.
        """
        if self._config.roles.is_alone and self._internal_topics.internal_topic_partitions(GROUP_METADATA):
            self.coordinator.load_all()
        if self._created is None:
            task_status.started()
            await self._is_created.wait()
            await self.coordinator.run()
        else:
            await self._created.run(task_status=task_status)

    def elected(self, index: int) -> None:
        """Load a partition of the offsets topic: this broker leads the partition now."""
        self.coordinator.partitions.elected(index)

    def resigned(self, index: int) -> None:
        """Drop a partition of the offsets topic that this broker does not lead any more."""
        if self._created is not None:
            self._created.partitions.resigned(index)

    def topic_deleted(self, topic: str) -> None:
        """Delete the committed offsets of a deleted topic. Without a coordinator there are none."""
        if self._created is not None:
            self._created.topic_deleted(topic)
