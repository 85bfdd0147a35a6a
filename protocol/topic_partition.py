"""A partition by its topic's name and its number (Kafka `org.apache.kafka.common.TopicPartition`)."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias


class TopicPartition(NamedTuple):
    """A partition by its topic's name and its number; it equals the plain tuple of both."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


AnyTopicPartition: TypeAlias = tuple[str, int]
"""A `TopicPartition`, or the plain tuple that equals it, which users of the client and of the pipeline write."""
