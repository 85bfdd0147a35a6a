"""Kafka requests on behalf of ZooKeeper's clients, answered as if these clients had sent them.

So the requests have the rights of an unauthenticated client at the address of the ZooKeeper client, and the same limits
and policies as any others. The versions are the oldest that Kafka 4 serves (KIP-896), which suits every cluster behind
a gateway.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Protocol, TypeVar

import trio

from ...protocol.apis import AnyApiKey, ApiKey, request_header_version, response_header_version
from ...protocol.codec import decode, decode_prefix, encode
from ...protocol.errors import BrokerError, DecodeError, ErrorCode
from ...protocol.kafka_4_floor import ZOOKEEPER_SOFTWARE
from ...protocol.messages.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResponse,
)
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
from ...protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ...protocol.messages.header import RequestHeader, ResponseHeader
from ...protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from ...protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ...protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from ...protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from ...protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic, OffsetFetchResponse
from ...protocol.schema import Message
from ...zookeeper.kafka_cluster import ClientAddress, TopicPartition
from ..config import BrokerConfig
from ..config.listeners import Endpoint, security_protocol
from ..server.client_census import ClientCensus
from ..server.client_connection import ClientConnection, ClientGoneError, UnanswerableError
from ..server.connection_views import Responder
from ..server.outcome import result_of

Response = TypeVar("Response", bound=Message)
T = TypeVar("T")

CLIENT_ID = "zookeeper"
PLAINTEXT = "PLAINTEXT"
MOST_HOSTS = 100
"""Most hosts whose connections are kept for further requests; beyond, the one that was used longest ago is ended."""
FIRST_METADATA_WITHOUT_CREATION = 4
"""The first version of Metadata that can ask for a topic without creating it."""
FIRST_CREATION_WITH_DEFAULTS = 4
"""The first version of CreateTopics that leaves the replication factor to the cluster (KIP-464)."""
RETRY_BACKOFF_S = 0.1
TOPIC_RESOURCE = 2
MOVED = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})
RETRIABLE = MOVED | {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.BROKER_NOT_AVAILABLE,
}


class AskBroker(Protocol):
    """A function that sends a request to another broker; see `peers.Peers.ask`."""

    def __call__(
        self, node_id: int, request: Message, response: type[Response], *, timeout_s: float, version: int | None = ...
    ) -> Awaitable[Response]: ...


@dataclass(slots=True, eq=False)
class _HostConnection:
    """A connection in place of the real ones of a host's clients; its requests are answered one by one."""

    client: ClientConnection
    lock: trio.Lock = field(default_factory=trio.Lock)


class KafkaRequests:
    """A maker of the requests of a `zookeeper.kafka_cluster.KafkaCluster`, whose errors are the interface's."""

    def __init__(
        self,
        responder: Responder,
        census: ClientCensus,
        endpoint: Endpoint,
        *,
        timeout_s: float,
        places_replicas: bool = True,
        ask_broker: AskBroker | None = None,
        other_brokers: Callable[[], Collection[int]] = tuple,
    ) -> None:
        """Make requests to a responder, as if clients had connected to `endpoint`.

        Unless clients place replicas, as they do not know the brokers' ids, the cluster places those of new topics.
        Where the responder is a broker of several, `ask_broker` asks the brokers that coordinate groups elsewhere, and
        `other_brokers` returns the ids of these brokers.
        """
        self._responder = responder
        self._census = census
        self._endpoint = endpoint
        self._timeout_s = timeout_s
        self._places_replicas = places_replicas
        self._ask_broker = ask_broker
        self._other_brokers = other_brokers
        self._correlation_ids = itertools.count(1)
        self._connections: OrderedDict[str, _HostConnection] = OrderedDict()

    async def list_groups(self, client: ClientAddress) -> Collection[str]:
        """Return the ids of all groups."""

        async def attempt() -> set[str]:
            request = ListGroupsRequest()
            answer = await self._ask(client, ApiKey.LIST_GROUPS, 0, request, ListGroupsResponse)
            _check(answer.error_code)
            groups = {group.group_id for group in answer.groups}
            ask_broker = self._ask_broker
            for node_id in self._other_brokers() if ask_broker else ():
                assert ask_broker is not None
                answer = await ask_broker(node_id, request, ListGroupsResponse, timeout_s=self._timeout_s, version=0)
                _check(answer.error_code)
                groups |= {group.group_id for group in answer.groups}
            return groups

        return await self._retried(attempt)

    async def fetch_offsets(
        self, client: ClientAddress, group: str, partitions: Sequence[TopicPartition] | None
    ) -> Mapping[TopicPartition, int]:
        """Return a group's committed offsets of these partitions, or of all for None; without those not committed."""
        topics = None
        if partitions is not None:
            topics = [
                OffsetFetchRequestTopic(name=topic, partition_indexes=[place.partition for place in places])
                for topic, places in groupby(sorted(partitions), key=lambda place: place.topic)
            ]
        request = OffsetFetchRequest(group_id=group, topics=topics)

        async def attempt() -> Mapping[TopicPartition, int]:
            answer = await self._ask_coordinator(
                client, group, ApiKey.OFFSET_FETCH, 2, request, OffsetFetchResponse, lambda answer: answer.error_code
            )
            found = {}
            for topic in answer.topics:
                for partition in topic.partitions:
                    if partition.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                        _check(partition.error_code)
                    if partition.committed_offset >= 0:
                        found[TopicPartition(topic.name, partition.partition_index)] = partition.committed_offset
            return await self._visible(client, found) if self._ask_broker is not None else found

        return await self._retried(attempt)

    async def _visible(
        self, client: ClientAddress, offsets: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, int]:
        """Return the offsets of topics that the client may describe; another coordinator has not checked that."""
        names = dict.fromkeys(place.topic for place in offsets)
        if not names:
            return offsets
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=False
        )
        answer = await self._ask(client, ApiKey.METADATA, FIRST_METADATA_WITHOUT_CREATION, request, MetadataResponse)
        denied = {topic.name for topic in answer.topics if topic.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED}
        return {place: offset for place, offset in offsets.items() if place.topic not in denied}

    async def commit_offset(self, client: ClientAddress, group: str, partition: TopicPartition, offset: int) -> None:
        """Commit an offset for a group, as a consumer that is not a member."""
        committed = OffsetCommitRequestPartition(partition_index=partition.partition, committed_offset=offset)
        request = OffsetCommitRequest(
            group_id=group, topics=[OffsetCommitRequestTopic(name=partition.topic, partitions=[committed])]
        )

        async def attempt() -> None:
            await self._ask_coordinator(
                client, group, ApiKey.OFFSET_COMMIT, 2, request, OffsetCommitResponse, _error_of_one_partition
            )

        await self._retried(attempt)

    async def delete_offset(self, client: ClientAddress, group: str, partition: TopicPartition) -> None:
        """Delete a committed offset of a group."""
        doomed = OffsetDeleteRequestPartition(partition_index=partition.partition)
        request = OffsetDeleteRequest(
            group_id=group, topics=[OffsetDeleteRequestTopic(name=partition.topic, partitions=[doomed])]
        )

        async def attempt() -> None:
            await self._ask_coordinator(
                client,
                group,
                ApiKey.OFFSET_DELETE,
                0,
                request,
                OffsetDeleteResponse,
                lambda answer: answer.error_code or _error_of_one_partition(answer),
            )

        await self._retried(attempt)

    async def create_topic(
        self, client: ClientAddress, topic: str, replicas: Sequence[Sequence[int]], configs: Mapping[str, str]
    ) -> None:
        """Create a topic, with the broker ids of each partition's replicas."""
        assignments = [
            CreatableReplicaAssignment(partition_index=index, broker_ids=list(ids))
            for index, ids in enumerate(replicas)
        ]
        version = 2 if self._places_replicas else FIRST_CREATION_WITH_DEFAULTS
        creatable = CreatableTopic(
            name=topic,
            num_partitions=-1 if self._places_replicas else len(replicas),
            replication_factor=-1,
            assignments=assignments if self._places_replicas else [],
            configs=[CreatableTopicConfig(name=name, value=value) for name, value in configs.items()],
        )
        request = CreateTopicsRequest(topics=[creatable], timeout_ms=self._timeout_ms)

        async def attempt() -> None:
            answer = await self._ask(client, ApiKey.CREATE_TOPICS, version, request, CreateTopicsResponse)
            for result in answer.topics:
                _check(result.error_code, result.error_message)

        await self._retried(attempt)

    async def add_partitions(
        self, client: ClientAddress, topic: str, count: int, added: Sequence[Sequence[int]]
    ) -> None:
        """Increase a topic's partitions to `count`; `added` has the broker ids of each new partition's replicas."""
        assignments = [CreatePartitionsAssignment(broker_ids=list(ids)) for ids in added]
        changed = CreatePartitionsTopic(
            name=topic, count=count, assignments=assignments if self._places_replicas else None
        )
        request = CreatePartitionsRequest(topics=[changed], timeout_ms=self._timeout_ms)

        async def attempt() -> None:
            answer = await self._ask(client, ApiKey.CREATE_PARTITIONS, 0, request, CreatePartitionsResponse)
            for result in answer.results:
                _check(result.error_code, result.error_message)

        await self._retried(attempt)

    async def set_configs(self, client: ClientAddress, topic: str, configs: Mapping[str, str]) -> None:
        """Replace a topic's own configuration."""
        resource = AlterConfigsResource(
            resource_type=TOPIC_RESOURCE,
            resource_name=topic,
            configs=[AlterableConfig(name=name, value=value) for name, value in configs.items()],
        )
        request = AlterConfigsRequest(resources=[resource])

        async def attempt() -> None:
            answer = await self._ask(client, ApiKey.ALTER_CONFIGS, 0, request, AlterConfigsResponse)
            for result in answer.responses:
                _check(result.error_code, result.error_message)

        await self._retried(attempt)

    async def delete_topic(self, client: ClientAddress, topic: str) -> None:
        """Delete a topic."""
        request = DeleteTopicsRequest(topic_names=[topic], timeout_ms=self._timeout_ms)

        async def attempt() -> None:
            answer = await self._ask(client, ApiKey.DELETE_TOPICS, 1, request, DeleteTopicsResponse)
            for result in answer.responses:
                _check(result.error_code)

        await self._retried(attempt)

    @property
    def _timeout_ms(self) -> int:
        return int(self._timeout_s * 1000)

    async def _retried(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Repeat an attempt while its error is one that passes by itself, up to the timeout."""
        deadline = trio.current_time() + self._timeout_s
        while True:
            with trio.move_on_at(deadline):
                try:
                    return await attempt()
                except BrokerError as error:
                    if error.code not in RETRIABLE or trio.current_time() + RETRY_BACKOFF_S >= deadline:
                        raise
                await trio.sleep(RETRY_BACKOFF_S)
                continue
            raise BrokerError(ErrorCode.REQUEST_TIMED_OUT)

    async def _ask_coordinator(
        self,
        client: ClientAddress,
        group: str,
        key: ApiKey,
        version: int,
        request: Message,
        response: type[Response],
        error_of: Callable[[Response], int],
    ) -> Response:
        """Return the answer of a group's coordinator, here or on another broker. Raises BrokerError."""
        answer = await self._ask(client, key, version, request, response)
        code = error_of(answer)
        if code in MOVED and self._ask_broker is not None:
            find = FindCoordinatorRequest(key=group)
            found = await self._ask(client, ApiKey.FIND_COORDINATOR, 1, find, FindCoordinatorResponse)
            _check(found.error_code, found.error_message)
            # The rights were checked above: this broker refuses a client without them before it says NOT_COORDINATOR.
            answer = await self._ask_broker(
                found.node_id, request, response, timeout_s=self._timeout_s, version=version
            )
            code = error_of(answer)
        _check(code)
        return answer

    async def _ask(
        self, client: ClientAddress, key: AnyApiKey, version: int, request: Message, response: type[Response]
    ) -> Response:
        header = RequestHeader(
            request_api_key=key,
            request_api_version=version,
            correlation_id=next(self._correlation_ids) & 0x7FFFFFFF,
            client_id=CLIENT_ID,
        )
        frame = encode(header, request_header_version(key, version)) + encode(request, version)
        connection = self._connection(client)
        try:
            async with connection.lock:
                answer = await result_of(self._responder.answer(memoryview(frame), connection.client))
            assert answer is not None
            whole = memoryview(b"".join(bytes(part) for part in answer))  # type: ignore[arg-type]
            _, position = decode_prefix(ResponseHeader, whole, response_header_version(key, version))
            return decode(response, whole[position:], version)
        except DecodeError as error:
            raise BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from error
        except (UnanswerableError, ClientGoneError) as error:
            # A real client would be disconnected, and would try again.
            raise BrokerError(ErrorCode.NETWORK_EXCEPTION, str(error)) from error

    def _connection(self, client: ClientAddress) -> _HostConnection:
        """Return the connection that stands for the clients of a host, as the census of clients and a gateway see it.

        A gateway keeps connections to upstream brokers for it. What the process itself asks, as a client without a
        host, is not in the census.
        """
        host, port = client.peer
        connection = self._connections.get(host)
        if connection is None:
            local = client.local[0], self._endpoint.port
            connection_id = f"{local[0]}:{local[1]}-{host}:{port}-{CLIENT_ID}"
            made = ClientConnection(client.peer, local, self._endpoint.name, connection_id, trio.Event())
            made.software_name, made.is_admitted = ZOOKEEPER_SOFTWARE, bool(host)
            connection = self._connections[host] = _HostConnection(made)
            self._census.connected(made)
        self._connections.move_to_end(host)
        for oldest in list(self._connections):
            if len(self._connections) <= MOST_HOSTS:
                break
            if not self._connections[oldest].lock.locked() and oldest != host:
                self._census.disconnected(self._connections.pop(oldest).client)
        return connection

    def close(self) -> None:
        """Take all hosts for disconnected, as at the end; a gateway closes what it keeps for them."""
        while self._connections:
            self._census.disconnected(self._connections.popitem()[1].client)


def plaintext_endpoint(listening: Sequence[Endpoint], config: BrokerConfig) -> Endpoint:
    """Return the first endpoint that old consumers can use: one without TLS and SASL, else the first of all."""
    protocols = config.security_protocols
    plain = (endpoint for endpoint in listening if security_protocol(endpoint.name, protocols) == PLAINTEXT)
    return next(plain, listening[0])


def _error_of_one_partition(answer: OffsetCommitResponse | OffsetDeleteResponse) -> int:
    codes = [partition.error_code for topic in answer.topics for partition in topic.partitions]
    return codes[0] if codes else ErrorCode.UNKNOWN_SERVER_ERROR


def _check(code: int, message: str | None = None) -> None:
    if code:
        raise BrokerError(ErrorCode(code), message)
