"""Creation of the topics of ``gregor.create.topics`` that do not exist yet."""

from __future__ import annotations

import logging

import trio

from ...protocol.errors import BrokerError, ErrorCode
from ..config.initial_topics import InitialTopic
from ..metadata.new_topics import NewTopic
from ..metadata.store import MetadataStore

logger = logging.getLogger(__name__)

PATIENCE_S = 30.0
"""Longest time in seconds that the start waits for a topic that needs more brokers than are registered so far."""
PAUSE_S = 0.5


def create_alone(metadata: MetadataStore, topics: list[InitialTopic]) -> None:
    """Create the missing topics on a lone broker, each with one replica whatever replication factor is configured.

    Raises BrokerError for a topic that cannot be created.
    """
    for topic in topics:
        if topic.name in metadata.topics:
            continue
        try:
            metadata.create_topic(topic.name, partitions=topic.partitions, replication_factor=1, configs=topic.configs)
        except BrokerError as error:
            raise BrokerError(error.code, f"gregor.create.topics: {error.message or error.code.name}") from None


async def create_among_others(metadata: MetadataStore, topics: list[InitialTopic]) -> None:
    """Create the missing topics of a cluster and wait until all exist; every broker may ask for the same topics.

    A topic with more replicas than there are brokers is retried until enough brokers are registered; after `PATIENCE_S`
    the log names the missing topics and the broker continues.
    """
    problems: dict[str, str] = {}
    with trio.move_on_after(PATIENCE_S):
        while missing := [topic for topic in topics if topic.name not in metadata.topics]:
            for topic in missing:
                problems[topic.name] = _ask_for(metadata, topic)
            if any(topic.name not in metadata.topics for topic in missing):
                await trio.sleep(PAUSE_S)
    for topic in topics:
        if topic.name not in metadata.topics:
            logger.warning("gregor.create.topics: %s does not exist yet: %s", topic.name, problems[topic.name])


def _ask_for(metadata: MetadataStore, topic: InitialTopic) -> str:
    """Create a topic, or ask the controller to create it; return the reason why the topic may still be missing."""
    new = NewTopic(topic.name, topic.partitions, topic.replication_factor, topic.configs)
    try:
        if metadata.is_controller:
            metadata.create_topic(
                new.name, partitions=new.partitions, replication_factor=new.replication_factor, configs=new.configs
            )
        elif metadata.create_elsewhere is not None:
            metadata.create_elsewhere(new)
    except BrokerError as error:
        if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            return error.message or error.code.name
    return "the controller has not created the topic"
