"""Creation of topics on first use, through the controller (Kafka `AutoTopicCreationManager`)."""

from __future__ import annotations

import logging

import trio

from ...protocol.errors import BrokerError, ErrorCode
from ...protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ..metadata.new_topics import NewTopic
from ..peers.peers import ControllerLink

logger = logging.getLogger(__name__)

TIMEOUT_S = 30.0
MOST_AT_ONCE = 1000
"""Topics whose creation is pending at most; further topics are created when clients ask again."""


class TopicCreation:
    """A task that asks the controller for missing topics, once at a time for each; clients retry until they exist."""

    def __init__(self, link: ControllerLink) -> None:
        self._link = link
        self._under_way: set[str] = set()
        self._nursery: trio.Nursery | None = None

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run the pending requests until cancelled."""
        async with trio.open_nursery() as self._nursery:
            task_status.started()
            await trio.sleep_forever()

    def request(self, topic: NewTopic) -> None:
        """Start the creation of a topic in the background."""
        if self._nursery is None or topic.name in self._under_way or len(self._under_way) >= MOST_AT_ONCE:
            return
        self._under_way.add(topic.name)
        self._nursery.start_soon(self._create, topic)

    async def _create(self, topic: NewTopic) -> None:
        wanted = CreatableTopic(
            name=topic.name,
            num_partitions=topic.partitions,
            replication_factor=topic.replication_factor,
            configs=[CreatableTopicConfig(name=name, value=value) for name, value in topic.configs.items()],
        )
        request = CreateTopicsRequest(topics=[wanted], timeout_ms=int(TIMEOUT_S * 1000))
        try:
            answer = await self._link.ask(request, CreateTopicsResponse, timeout_s=TIMEOUT_S)
            for result in answer.topics:
                if result.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                    code = ErrorCode(result.error_code)
                    logger.warning("topic %s is not created: %s", topic.name, result.error_message or code.name)
        except BrokerError as error:
            logger.warning("topic %s is not created: %s", topic.name, error.message or error.code.name)
        finally:
            self._under_way.discard(topic.name)
