"""The brokers and log directories of replicas, and the election of leaders."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum

from ...protocol.errors import ErrorCode
from ...protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from ...protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from ...protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)
from ...protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from ...protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
    OngoingPartitionReassignment,
)
from ...protocol.topic_partition import AnyTopicPartition
from ..consumer.subscription import by_topic
from .base import AdminBase, by_topic_with, raise_for


class ElectionType(IntEnum):
    """The replica to elect (KIP-460): the preferred one, or any live replica even if records are lost."""

    PREFERRED = 0
    UNCLEAN = 1


class ReplicaAdmin(AdminBase):
    """The methods of the admin client for replicas."""

    async def describe_log_dirs(
        self, partitions: Iterable[AnyTopicPartition] | None = None
    ) -> dict[int, list[DescribeLogDirsResult]]:
        """Return the log directories of each broker with the size in bytes of these partitions, or of all."""
        wanted = None
        if partitions is not None:
            wanted = [
                DescribableLogDirTopic(topic=topic, partitions=indexes)
                for topic, indexes in by_topic(partitions).items()
            ]
        answers = await self.ask_each(DescribeLogDirsRequest(topics=wanted), DescribeLogDirsResponse)
        for answer in answers.values():
            raise_for(answer.error_code, "DescribeLogDirs")
        return {node: answer.results for node, answer in answers.items()}

    async def alter_replica_log_dirs(self, node: int, moves: Mapping[AnyTopicPartition, str]) -> None:
        """Move a broker's replicas to other log directories of its own (KIP-113)."""
        directories: dict[str, list[AnyTopicPartition]] = {}
        for place, path in moves.items():
            directories.setdefault(path, []).append(place)
        request = AlterReplicaLogDirsRequest(
            dirs=[
                AlterReplicaLogDir(
                    path=path,
                    topics=[
                        AlterReplicaLogDirTopic(name=topic, partitions=indexes)
                        for topic, indexes in by_topic(places).items()
                    ],
                )
                for path, places in directories.items()
            ]
        )
        answer = await self.ask(node, request, AlterReplicaLogDirsResponse)
        for topic in answer.results:
            for part in topic.partitions:
                raise_for(part.error_code, f"{topic.topic_name}-{part.partition_index}")

    async def alter_partition_reassignments(self, wanted: Mapping[AnyTopicPartition, Sequence[int] | None]) -> None:
        """Reassign partitions to these brokers, the preferred leader first; None cancels a reassignment (KIP-455)."""
        request = AlterPartitionReassignmentsRequest(
            timeout_ms=self.config.request_timeout_ms,
            topics=[
                ReassignableTopic(
                    name=topic,
                    partitions=[
                        ReassignablePartition(partition_index=p, replicas=None if to is None else list(to))
                        for p, to in entries
                    ],
                )
                for topic, entries in by_topic_with(wanted).items()
            ],
        )
        answer = await self.ask_controller(request, AlterPartitionReassignmentsResponse)
        raise_for(answer.error_code, answer.error_message)
        for topic in answer.responses:
            for part in topic.partitions:
                raise_for(part.error_code, part.error_message or f"{topic.name}-{part.partition_index}")

    async def list_partition_reassignments(
        self, partitions: Iterable[AnyTopicPartition] | None = None
    ) -> dict[AnyTopicPartition, OngoingPartitionReassignment]:
        """Return the ongoing reassignments of these partitions or all."""
        wanted = None
        if partitions is not None:
            wanted = [
                ListPartitionReassignmentsTopics(name=topic, partition_indexes=indexes)
                for topic, indexes in by_topic(partitions).items()
            ]
        request = ListPartitionReassignmentsRequest(timeout_ms=self.config.request_timeout_ms, topics=wanted)
        answer = await self.ask_controller(request, ListPartitionReassignmentsResponse)
        raise_for(answer.error_code, answer.error_message)
        return {(topic.name, part.partition_index): part for topic in answer.topics for part in topic.partitions}

    async def elect_leaders(
        self, election_type: ElectionType, partitions: Iterable[AnyTopicPartition] | None = None
    ) -> set[AnyTopicPartition]:
        """Elect leaders of these partitions or all; return the partitions that have a new leader now.

        Partitions that needed no election are left out. Raises BrokerError for the first other refusal.
        """
        wanted = None
        if partitions is not None:
            wanted = [TopicPartitions(topic=topic, partitions=p) for topic, p in by_topic(partitions).items()]
        request = ElectLeadersRequest(topic_partitions=wanted, timeout_ms=self.config.request_timeout_ms)
        if election_type is not ElectionType.PREFERRED:
            request.election_type = election_type
        answer = await self.ask_controller(request, ElectLeadersResponse)
        raise_for(answer.error_code, "ElectLeaders")
        elected = set()
        for result in answer.replica_election_results:
            for part in result.partition_result:
                if part.error_code == ErrorCode.ELECTION_NOT_NEEDED:
                    continue
                raise_for(part.error_code, part.error_message or f"{result.topic}-{part.partition_id}")
                elected.add((result.topic, part.partition_id))
        return elected
