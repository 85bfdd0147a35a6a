"""The controller's listener: the APIs that it serves, and its answers to malformed requests."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from gregor.protocol.apis import (
    AnyApiKey,
    ApiKey,
    ControllerApiKey,
    request_header_version,
    response_class,
    response_header_version,
)
from gregor.protocol.codec import decode, encode
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages.api_versions import ApiVersionsRequest
from gregor.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from gregor.protocol.messages.broker_registration import BrokerRegistrationRequest, Listener
from gregor.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from gregor.protocol.messages.default_principal_data import DefaultPrincipalData
from gregor.protocol.messages.describe_cluster import DescribeClusterRequest
from gregor.protocol.messages.envelope import EnvelopeRequest
from gregor.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from gregor.protocol.messages.fetch_snapshot import FetchSnapshotRequest, PartitionSnapshot, SnapshotId, TopicSnapshot
from gregor.protocol.messages.header import RequestHeader, ResponseHeader
from tests.cluster_of_processes import ClusterOfProcesses, running_cluster
from tests.wire import Wire

METADATA_ID = UUID(int=1)
CONTROLLERS = 2


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterOfProcesses]:
    """Provide one node, broker and controller."""
    with running_cluster(tmp_path_factory.mktemp("one"), 1) as running:
        yield running


@pytest.fixture
def wire(cluster: ClusterOfProcesses) -> Iterator[Wire]:
    """Provide a connection to the controller."""
    with Wire(cluster.controller_address, client_id="test") as connected:
        yield connected


def frame(key: AnyApiKey, version: int, request: Any) -> bytes:
    header = RequestHeader(request_api_key=key, request_api_version=version, correlation_id=7, client_id="inside")
    return encode(header, request_header_version(key, version)) + encode(request, version)


def envelope(data: bytes, *, principal: bytes | None = None, host: str = "10.1.2.3") -> EnvelopeRequest:
    if principal is None:
        principal = b"\0\0" + encode(DefaultPrincipalData(type="User", name="alice"), 0)
    return EnvelopeRequest(
        request_data=data, request_principal=principal, client_host_address=ipaddress.ip_address(host).packed
    )


def test_the_controller_listener_offers_the_apis_of_kafkas_controllers(wire: Wire) -> None:
    answer = wire.ask(ApiKey.API_VERSIONS, 3, ApiVersionsRequest(client_software_name="t", client_software_version="1"))
    offered = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}
    assert offered[ApiKey.FETCH] == (12, 17)
    assert offered[ControllerApiKey.BROKER_REGISTRATION] == (0, 4)
    assert ApiKey.PRODUCE not in offered
    assert ApiKey.METADATA not in offered


def test_listeners_for_clients_do_not_serve_controller_apis(cluster: ClusterOfProcesses) -> None:
    with cluster.wire(1) as client, pytest.raises(ConnectionError):
        client.ask(ControllerApiKey.BROKER_HEARTBEAT, 0, BrokerHeartbeatRequest(broker_id=1))
    with cluster.wire(1) as client, pytest.raises(ConnectionError):
        client.ask(ApiKey.ENVELOPE, 0, envelope(b""))


def test_the_controller_listener_describes_the_quorum(wire: Wire) -> None:
    answer = wire.ask(ApiKey.DESCRIBE_CLUSTER, 1, DescribeClusterRequest(endpoint_type=CONTROLLERS))
    assert (answer.error_code, answer.controller_id, len(answer.brokers)) == (0, 1, 1)
    refused = wire.ask(ApiKey.DESCRIBE_CLUSTER, 1, DescribeClusterRequest(endpoint_type=1))
    assert refused.error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE


def test_an_enveloped_request_gets_an_enveloped_response(wire: Wire) -> None:
    topic = CreatableTopic(name="enveloped", num_partitions=1, replication_factor=1)
    inside = frame(ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest(topics=[topic]))
    answer = wire.ask(ApiKey.ENVELOPE, 0, envelope(inside))
    assert answer.error_code == 0
    size = len(encode(ResponseHeader(correlation_id=7), response_header_version(ApiKey.CREATE_TOPICS, 7)))
    response: Any = decode(response_class(ApiKey.CREATE_TOPICS), bytes(answer.response_data)[size:], 7)
    assert [(result.name, result.error_code) for result in response.topics] == [("enveloped", 0)]


CREATION = frame(ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest())


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (envelope(b""), ErrorCode.INVALID_REQUEST),
        (envelope(b"\0" * 40), ErrorCode.UNSUPPORTED_VERSION),
        (envelope(CREATION[:-3]), ErrorCode.INVALID_REQUEST),
        (envelope(CREATION, principal=b"\0"), ErrorCode.INVALID_REQUEST),
        (
            envelope(CREATION, principal=b"\0\0\xff"),
            ErrorCode.INVALID_REQUEST,
        ),
    ],
)
def test_envelopes_with_nonsense_are_refused(wire: Wire, request_: EnvelopeRequest, code: ErrorCode) -> None:
    assert wire.ask(ApiKey.ENVELOPE, 0, request_).error_code == code


def test_an_envelope_with_an_invalid_client_address_is_refused(wire: Wire) -> None:
    request = envelope(CREATION)
    request.client_host_address = b"abc"
    assert wire.ask(ApiKey.ENVELOPE, 0, request).error_code == ErrorCode.INVALID_REQUEST


def test_an_envelope_inside_an_envelope_is_refused(wire: Wire) -> None:
    inner = frame(ApiKey.ENVELOPE, 0, envelope(CREATION))
    answer = wire.ask(ApiKey.ENVELOPE, 0, envelope(inner))
    response: Any = decode(response_class(ApiKey.ENVELOPE), bytes(answer.response_data)[5:], 0)
    assert response.error_code == ErrorCode.INVALID_REQUEST


def test_heartbeats_with_an_unknown_broker_id_or_a_stale_broker_epoch_are_refused(wire: Wire) -> None:
    stranger = BrokerHeartbeatRequest(broker_id=77, broker_epoch=1)
    assert wire.ask(ControllerApiKey.BROKER_HEARTBEAT, 1, stranger).error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
    former = BrokerHeartbeatRequest(broker_id=1, broker_epoch=123456)
    assert wire.ask(ControllerApiKey.BROKER_HEARTBEAT, 1, former).error_code == ErrorCode.STALE_BROKER_EPOCH


def test_brokers_of_another_cluster_are_refused(wire: Wire) -> None:
    request = BrokerRegistrationRequest(
        broker_id=5, cluster_id="another", incarnation_id=UUID(int=5), listeners=[Listener(name="PLAINTEXT")]
    )
    answer = wire.ask(ControllerApiKey.BROKER_REGISTRATION, 4, request)
    assert answer.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID


def fetch(topic_id: UUID, offset: int = 0) -> FetchRequest:
    partition = FetchPartition(partition_max_bytes=10_000, fetch_offset=offset)
    return FetchRequest(max_wait_ms=0, topics=[FetchTopic(topic_id=topic_id, partitions=[partition])])


def test_the_controller_listener_serves_fetches_of_the_metadata_topic_only(wire: Wire) -> None:
    assert wire.ask(ApiKey.FETCH, 17, fetch(UUID(int=99))).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    answer = wire.ask(ApiKey.FETCH, 17, fetch(METADATA_ID))
    (partition,) = answer.responses[0].partitions
    assert (partition.error_code, partition.current_leader.leader_id) == (0, 1)
    assert len(partition.records) > 0


@pytest.mark.parametrize("offset", [-1, 10**12])
def test_a_metadata_fetch_out_of_range_gets_an_error_or_a_diverging_epoch(wire: Wire, offset: int) -> None:
    (partition,) = wire.ask(ApiKey.FETCH, 17, fetch(METADATA_ID, offset)).responses[0].partitions
    assert partition.error_code or partition.diverging_epoch.end_offset >= 0


def test_a_fetch_of_an_unknown_snapshot_gets_snapshot_not_found(wire: Wire) -> None:
    wanted = PartitionSnapshot(snapshot_id=SnapshotId(end_offset=10**15, epoch=-5), position=-1)
    topic = TopicSnapshot(name="__cluster_metadata", partitions=[wanted])
    answer = wire.ask(ControllerApiKey.FETCH_SNAPSHOT, 1, FetchSnapshotRequest(topics=[topic]))
    assert answer.topics[0].partitions[0].error_code == ErrorCode.SNAPSHOT_NOT_FOUND
