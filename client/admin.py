"""The admin client: topics, configurations, groups, offsets and records, one method for each of Kafka's admin calls."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import groupby
from types import TracebackType
from typing import Self, TypeVar

from ..protocol.apis import ApiKey
from ..protocol.codec import decode
from ..protocol.errors import BrokerError, ErrorCode
from ..protocol.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from ..protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from ..protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ..protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from ..protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from ..protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from ..protocol.messages.describe_clients import DescribeClientsRequest, DescribeClientsResponse
from ..protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from ..protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)
from ..protocol.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from ..protocol.messages.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)
from ..protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from ..protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from ..protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from ..protocol.schema import Message
from .cluster import Cluster, TopicMetadata
from .config import AdminConfig
from .errors import UnknownTopicError
from .group_offsets import ask_coordinator, commit_offsets, fetch_committed
from .lifetime import BackgroundTasks
from .metrics import Metrics
from .offset_lookup import OffsetAndTimestamp, list_offsets
from .retry import retry
from .subscription import TopicPartition

T = TypeVar("T")
Response = TypeVar("Response", bound=Message)

BROKER_DEFAULT = -1
"""Partition count or replication factor that leaves the choice to the broker (KIP-464)."""

ASSIGNMENT_VERSION_SIZE = 2


class ResourceType(IntEnum):
    """What a configuration belongs to (Kafka's ConfigResource.Type)."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8


class AlterOperation(IntEnum):
    """What IncrementalAlterConfigs does with a key (KIP-339)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(slots=True)
class NewTopic:
    """A topic to be created; `replica_assignments` (broker ids by partition) takes the place of the two counts."""

    name: str
    partition_count: int = BROKER_DEFAULT
    replication_factor: int = BROKER_DEFAULT
    configs: Mapping[str, str] = field(default_factory=dict)
    replica_assignments: Sequence[Sequence[int]] = ()


@dataclass(slots=True)
class ClusterDescription:
    """The cluster's id, its controller, and host and port of each broker by node id."""

    cluster_id: str | None
    controller_id: int
    brokers: dict[int, tuple[str, int]]


class Admin:
    """Administers a cluster::

        async with Admin("localhost:9092") as admin:
            await admin.create_topics([NewTopic("orders", partition_count=3)])

    Keywords are Kafka's admin keys with underscores (`AdminConfig`). Every method raises BrokerError for the first
    refusal in the broker's answer, and DeadlineExceededError after `default.api.timeout.ms`.
    """

    def __init__(self, bootstrap_servers: str | Iterable[str], **config: object) -> None:
        self.config = AdminConfig.from_properties(config)
        self._metrics = Metrics()
        self._cluster = Cluster(bootstrap_servers, self.config, self._metrics)
        self._background = BackgroundTasks()

    async def __aenter__(self) -> Self:
        nursery = await self._background.open()
        await nursery.start(self._cluster.run)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._background.close()

    # --- topics ---

    async def create_topics(self, topics: Iterable[NewTopic], *, validate_only: bool = False) -> None:
        """Create topics, or only check whether they could be."""
        request = CreateTopicsRequest(
            topics=[_creatable(topic) for topic in topics],
            timeout_ms=self.config.request_timeout_ms,
            validate_only=validate_only,
        )
        answer = await self._ask_controller(request, CreateTopicsResponse)
        for topic in answer.topics:
            _raise_for(topic.error_code, topic.error_message or topic.name)

    async def delete_topics(self, names: Iterable[str]) -> None:
        """Delete topics and all that is in them."""
        request = DeleteTopicsRequest(topic_names=list(names), timeout_ms=self.config.request_timeout_ms)
        answer = await self._ask_controller(request, DeleteTopicsResponse)
        for topic in answer.responses:
            _raise_for(topic.error_code, topic.error_message or topic.name)

    async def create_partitions(self, topic: str, total_count: int) -> None:
        """Let a topic have `total_count` partitions, more than before."""
        request = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=topic, count=total_count, assignments=None)],
            timeout_ms=self.config.request_timeout_ms,
        )
        answer = await self._ask_controller(request, CreatePartitionsResponse)
        for result in answer.results:
            _raise_for(result.error_code, result.error_message or result.name)

    async def list_topics(self, *, include_internal: bool = False) -> list[str]:
        """Names of all topics, sorted."""
        topics = await self._metadata(None)
        return sorted(topic.name for topic in topics if include_internal or not topic.is_internal)

    async def describe_topics(self, names: Iterable[str] | None = None) -> list[TopicMetadata]:
        """Ids, partitions, leaders and replicas of these topics, or of all."""
        return await self._metadata(None if names is None else list(names))

    async def _metadata(self, names: list[str] | None) -> list[TopicMetadata]:
        async def attempt() -> list[TopicMetadata]:
            answer = await self._cluster.refresh(names)
            for topic in answer.topics:
                if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise UnknownTopicError(topic.name)
                _raise_for(topic.error_code, topic.name)
            return [self._cluster.topics[topic.name or ""] for topic in answer.topics]

        return await self._retry(attempt, "Metadata")

    # --- the cluster ---

    async def describe_cluster(self) -> ClusterDescription:
        """Cluster id, controller and brokers."""
        connection = await self._cluster.any_connection()
        if ApiKey.DESCRIBE_CLUSTER in connection.versions:
            answer = await connection.request(DescribeClusterRequest(), DescribeClusterResponse)
            _raise_for(answer.error_code, answer.error_message)
            brokers = {broker.broker_id: (broker.host, broker.port) for broker in answer.brokers}
            return ClusterDescription(answer.cluster_id, answer.controller_id, brokers)
        await self._cluster.refresh([])
        return ClusterDescription(self._cluster.cluster_id, self._cluster.controller_id, self._cluster.brokers)

    async def describe_log_dirs(self) -> dict[int, list[DescribeLogDirsResult]]:
        """Log directories with the size of each partition in bytes, by broker."""
        await self._cluster.refresh([])
        described = {}
        for node in self._cluster.brokers:
            answer = await self._cluster.request(node, DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse)
            _raise_for(answer.error_code, "DescribeLogDirs")
            described[node] = answer.results
        return described

    async def describe_clients(self) -> list[DescribeClientsResponse]:
        """Who uses each broker, and how. Only Gregor brokers answer: ConnectionLostError from any other Kafka."""
        await self._cluster.refresh([])
        request = DescribeClientsRequest()
        return [
            await self._cluster.request(node, request, DescribeClientsResponse, version=0)
            for node in self._cluster.brokers
        ]

    async def api_versions(self) -> dict[ApiKey, int]:
        """The version that this client speaks of each API with a broker of the cluster."""
        versions = (await self._cluster.any_connection()).versions
        return {key: versions.version(key) for key in ApiKey if key in versions}

    # --- configurations ---

    async def describe_configs(
        self, resource_type: ResourceType, name: str, keys: Sequence[str] | None = None
    ) -> list[DescribeConfigsResourceResult]:
        """The configuration of a topic (by name) or a broker (by node id as text), or only these keys of it."""
        request = DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(
                    resource_type=resource_type,
                    resource_name=name,
                    configuration_keys=None if keys is None else list(keys),
                )
            ],
        )
        answer = await self._ask_resource(resource_type, name, request, DescribeConfigsResponse)
        for result in answer.results:
            _raise_for(result.error_code, result.error_message or name)
        return [entry for result in answer.results for entry in result.configs]

    async def alter_configs(
        self,
        resource_type: ResourceType,
        name: str,
        changes: Iterable[tuple[AlterOperation, str, str | None]],
    ) -> None:
        """Change single keys: (operation, key, value), the value None for DELETE. All or nothing."""
        request = IncrementalAlterConfigsRequest(
            resources=[
                AlterConfigsResource(
                    resource_type=resource_type,
                    resource_name=name,
                    configs=[
                        AlterableConfig(config_operation=operation, name=key, value=value)
                        for operation, key, value in changes
                    ],
                )
            ]
        )
        answer = await self._ask_resource(resource_type, name, request, IncrementalAlterConfigsResponse)
        for result in answer.responses:
            _raise_for(result.error_code, result.error_message or name)

    async def _ask_resource(
        self, resource_type: ResourceType, name: str, request: Message, answer: type[Response]
    ) -> Response:
        """A broker's configuration is asked of that broker, all else of any."""

        async def attempt() -> Response:
            if resource_type is not ResourceType.TOPIC and name:
                await self._cluster.refresh([])
                return await self._cluster.request(int(name), request, answer)
            return await self._cluster.request_any(request, answer)

        return await self._retry(attempt, type(request).__name__)

    # --- groups ---

    async def list_groups(self) -> list[ListedGroup]:
        """The groups of all brokers."""

        async def attempt() -> list[ListedGroup]:
            await self._cluster.refresh([])
            groups: list[ListedGroup] = []
            for node in self._cluster.brokers:
                answer = await self._cluster.request(node, ListGroupsRequest(), ListGroupsResponse)
                _raise_for(answer.error_code, "ListGroups")
                groups += answer.groups
            return groups

        return await self._retry(attempt, "ListGroups")

    async def describe_group(self, group_id: str) -> DescribedGroup:
        """State, protocol and members of a group; an unknown one is described as Dead."""

        async def attempt(node: int) -> DescribedGroup:
            request = DescribeGroupsRequest(groups=[group_id])
            answer = await self._cluster.request(node, request, DescribeGroupsResponse)
            group = answer.groups[0]
            if group.error_code != ErrorCode.GROUP_ID_NOT_FOUND:
                _raise_for(group.error_code, group.error_message or group_id)
            return group

        return await self._ask_coordinator(group_id, attempt, "DescribeGroups")

    async def delete_groups(self, group_ids: Iterable[str]) -> None:
        """Delete groups without members, and their offsets."""
        for group_id in group_ids:

            async def attempt(node: int, group_id: str = group_id) -> None:
                request = DeleteGroupsRequest(groups_names=[group_id])
                answer = await self._cluster.request(node, request, DeleteGroupsResponse)
                for result in answer.results:
                    _raise_for(result.error_code, result.error_message or group_id)

            await self._ask_coordinator(group_id, attempt, "DeleteGroups")

    async def group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, int]:
        """What a group has committed, for these partitions or all."""
        return await fetch_committed(
            self._cluster, group_id, partitions, self.config, timeout_ms=self.config.default_api_timeout_ms
        )

    async def alter_group_offsets(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit offsets for a group without members."""
        await commit_offsets(
            self._cluster, group_id, offsets, self.config, timeout_ms=self.config.default_api_timeout_ms
        )

    async def delete_group_offsets(self, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        """Forget a group's offsets of these partitions."""
        request = OffsetDeleteRequest(
            group_id=group_id,
            topics=[
                OffsetDeleteRequestTopic(
                    name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=p) for _, p in places]
                )
                for topic, places in groupby(sorted(partitions), key=lambda place: place[0])
            ],
        )

        async def attempt(node: int) -> None:
            answer = await self._cluster.request(node, request, OffsetDeleteResponse)
            _raise_for(answer.error_code, group_id)
            for topic in answer.topics:
                for part in topic.partitions:
                    _raise_for(part.error_code, f"{topic.name}-{part.partition_index}")

        await self._ask_coordinator(group_id, attempt, "OffsetDelete")

    # --- records ---

    async def list_offsets(
        self, wanted: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Offsets for LATEST, EARLIEST, MAX_TIMESTAMP or a time in milliseconds; see `offset_lookup.list_offsets`."""
        return await list_offsets(self._cluster, wanted, self.config, timeout_ms=self.config.default_api_timeout_ms)

    async def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Delete the records before these offsets (-1: all up to the high watermark); returns the new first offsets."""

        async def attempt() -> dict[TopicPartition, int]:
            await self._cluster.refresh({topic for topic, _ in before})
            by_leader: defaultdict[int, list[TopicPartition]] = defaultdict(list)
            for place in sorted(before):
                leader = self._cluster.leader(*place)
                if leader is None:
                    raise UnknownTopicError(f"{place[0]}-{place[1]}")
                by_leader[leader].append(place)
            first_offsets: dict[TopicPartition, int] = {}
            for leader, places in by_leader.items():
                first_offsets |= await self._delete_on(leader, places, before)
            return first_offsets

        return await self._retry(attempt, "DeleteRecords")

    async def _delete_on(
        self, leader: int, places: list[TopicPartition], before: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        request = DeleteRecordsRequest(
            topics=[
                DeleteRecordsTopic(
                    name=topic,
                    partitions=[DeleteRecordsPartition(partition_index=p[1], offset=before[p]) for p in group],
                )
                for topic, group in groupby(places, key=lambda place: place[0])
            ],
            timeout_ms=self.config.request_timeout_ms,
        )
        answer = await self._cluster.request(leader, request, DeleteRecordsResponse)
        first_offsets = {}
        for topic in answer.topics:
            for part in topic.partitions:
                _raise_for(part.error_code, f"{topic.name}-{part.partition_index}")
                first_offsets[topic.name, part.partition_index] = part.low_watermark
        return first_offsets

    # --- asking ---

    async def _ask_controller(self, request: Message, answer: type[Response]) -> Response:
        async def attempt() -> Response:
            await self._cluster.refresh([])
            if self._cluster.controller_id in self._cluster.brokers:
                return await self._cluster.request(self._cluster.controller_id, request, answer)
            return await self._cluster.request_any(request, answer)

        return await self._retry(attempt, type(request).__name__)

    async def _ask_coordinator(self, group_id: str, attempt: Callable[[int], Awaitable[T]], what: str) -> T:
        return await ask_coordinator(
            self._cluster, group_id, attempt, self.config, timeout_ms=self.config.default_api_timeout_ms, what=what
        )

    async def _retry(self, attempt: Callable[[], Awaitable[T]], what: str) -> T:
        return await retry(attempt, self.config, timeout_ms=self.config.default_api_timeout_ms, what=what)


def assigned_partitions(assignment: bytes) -> list[TopicPartition]:
    """The partitions in a member's assignment as `describe_group` has it (of the consumer protocol)."""
    if len(assignment) < ASSIGNMENT_VERSION_SIZE:
        return []
    decoded = decode(ConsumerProtocolAssignment, assignment[ASSIGNMENT_VERSION_SIZE:], 0)
    return [(item.topic, partition) for item in decoded.assigned_partitions for partition in item.partitions]


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


def _raise_for(code: int, message: str | None) -> None:
    if code:
        raise BrokerError(ErrorCode(code), message)
