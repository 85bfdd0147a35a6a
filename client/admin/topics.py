"""Topics: creation, description, more partitions, deletion."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ...protocol.errors import ErrorCode
from ...protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from ...protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ...protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from ..errors import UnknownTopicError
from ..wire.cluster import TopicMetadata
from .base import AdminBase, check_names, raise_for

BROKER_DEFAULT = -1
"""The partition count or replication factor that means the broker's default (KIP-464)."""


@dataclass(slots=True)
class NewTopic:
    """A topic to be created; `replica_assignments` (broker ids by partition) replaces the two counts."""

    name: str
    partition_count: int = BROKER_DEFAULT
    replication_factor: int = BROKER_DEFAULT
    configs: Mapping[str, str] = field(default_factory=dict)
    replica_assignments: Sequence[Sequence[int]] = ()


class TopicAdmin(AdminBase):
    """The methods of the admin client for topics."""

    async def create_topics(self, topics: Iterable[NewTopic], *, validate_only: bool = False) -> None:
        """Create topics, or only validate the request."""
        request = CreateTopicsRequest(
            topics=[_creatable(topic) for topic in topics],
            timeout_ms=self.config.request_timeout_ms,
            validate_only=validate_only,
        )
        answer = await self.ask_controller(request, CreateTopicsResponse)
        for created in answer.topics:
            raise_for(created.error_code, created.error_message or created.name)

    async def delete_topics(self, names: Iterable[str]) -> None:
        """Delete topics and all their records. Raises TypeError for a single name."""
        request = DeleteTopicsRequest(topic_names=check_names(names), timeout_ms=self.config.request_timeout_ms)
        answer = await self.ask_controller(request, DeleteTopicsResponse)
        for deleted in answer.responses:
            raise_for(deleted.error_code, deleted.error_message or deleted.name)

    async def create_partitions(
        self,
        topic: str,
        total_count: int,
        *,
        new_assignments: Sequence[Sequence[int]] | None = None,
        validate_only: bool = False,
    ) -> None:
        """Increase a topic's partitions to `total_count`; the new partitions are on these brokers, or on any."""
        assignments = None
        if new_assignments is not None:
            assignments = [CreatePartitionsAssignment(broker_ids=list(brokers)) for brokers in new_assignments]
        request = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=topic, count=total_count, assignments=assignments)],
            timeout_ms=self.config.request_timeout_ms,
            validate_only=validate_only,
        )
        answer = await self.ask_controller(request, CreatePartitionsResponse)
        for result in answer.results:
            raise_for(result.error_code, result.error_message or result.name)

    async def list_topics(self, *, include_internal: bool = False) -> list[str]:
        """Return the names of all topics, sorted."""
        topics = await self._metadata(None)
        return sorted(topic.name for topic in topics if include_internal or not topic.is_internal)

    async def describe_topics(self, names: Iterable[str] | None = None) -> list[TopicMetadata]:
        """Return ids, partitions, leaders and replicas of these topics, or of all.

        Raises UnknownTopicError, and TypeError for a single name.
        """
        return await self._metadata(None if names is None else check_names(names))

    async def _metadata(self, names: list[str] | None) -> list[TopicMetadata]:
        async def attempt() -> list[TopicMetadata]:
            answer = await self._cluster.refresh(names)
            for topic in answer.topics:
                if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise UnknownTopicError(topic.name)
                raise_for(topic.error_code, topic.name)
            return [self._cluster.topics[topic.name or ""] for topic in answer.topics]

        return await self._retry(attempt, "Metadata")


def _creatable(topic: NewTopic) -> CreatableTopic:
    has_assignments = bool(topic.replica_assignments)
    return CreatableTopic(
        name=topic.name,
        num_partitions=BROKER_DEFAULT if has_assignments else topic.partition_count,
        replication_factor=BROKER_DEFAULT if has_assignments else topic.replication_factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=list(brokers))
            for index, brokers in enumerate(topic.replica_assignments)
        ],
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in topic.configs.items()],
    )
