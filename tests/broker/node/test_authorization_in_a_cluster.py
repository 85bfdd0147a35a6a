"""An authorizer on several nodes: ACLs reach all of them, and forwarded requests keep their client's rights."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest

from gregor.protocol.acls import CLUSTER_NAME, AclOperation, AclResourceType
from gregor.protocol.apis import AnyApiKey, ApiKey, ControllerApiKey, request_class
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from gregor.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from gregor.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.cluster_of_processes import CONTROLLER, ClusterOfProcesses, running_cluster, until
from tests.wire import Wire

OTHER = 2
STRANGER = "127.9.9.9"
"""The address of a client that is neither a broker nor the administrator."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterOfProcesses]:
    with socket.socket() as probe:
        try:
            probe.bind((STRANGER, 0))
        except OSError:
            pytest.skip("127.0.0.0/8 has one address here")
    settings = (
        "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found=true",
    )
    with running_cluster(tmp_path_factory.mktemp("authorized"), 2, *settings) as running:
        everything = [
            acl(kind, CLUSTER_NAME if kind is AclResourceType.CLUSTER else "*", AclOperation.ALL, "127.0.0.1")
            for kind in (AclResourceType.CLUSTER, AclResourceType.TOPIC, AclResourceType.GROUP)
        ]
        create_acls(running, OTHER, *everything)
        yield running


def acl(kind: AclResourceType, name: str, operation: AclOperation, host: str = STRANGER) -> AclCreation:
    return AclCreation(
        resource_type=kind,
        resource_name=name,
        principal="User:ANONYMOUS",
        host=host,
        operation=operation,
        permission_type=3,
    )


def create_acls(cluster: ClusterOfProcesses, node_id: int, *acls: AclCreation) -> None:
    with cluster.wire(node_id) as administrator:
        answer = administrator.ask(ApiKey.CREATE_ACLS, 3, CreateAclsRequest(creations=list(acls)))
    assert [result.error_code for result in answer.results] == [0] * len(acls)


def as_a_stranger(address: tuple[str, int], key: AnyApiKey, version: int, request: Any) -> Any:
    with Wire(address, source=STRANGER) as wire:
        return wire.ask(key, version, request)


def test_a_forwarded_request_has_its_clients_rights(cluster: ClusterOfProcesses) -> None:
    def created(name: str) -> int:
        topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
        request = CreateTopicsRequest(topics=[topic], timeout_ms=30000)
        answer = as_a_stranger(cluster.brokers[OTHER].address, ApiKey.CREATE_TOPICS, 5, request)
        return int(answer.topics[0].error_code)

    assert created("mine") == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    create_acls(cluster, CONTROLLER, acl(AclResourceType.TOPIC, "mine", AclOperation.CREATE))
    assert created("mine") == ErrorCode.NONE
    assert created("other") == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    refused = (
        "Denied operation = CREATE from host = 127.9.9.9 on resource = Topic:LITERAL:other for request = CreateTopics"
    )
    assert refused in cluster.brokers[CONTROLLER].output()


@pytest.mark.parametrize("asked", [CONTROLLER, OTHER])
def test_acls_are_replicated_to_every_broker_and_kept_after_a_restart(cluster: ClusterOfProcesses, asked: int) -> None:
    name = f"described-{asked}"
    create_acls(cluster, OTHER, acl(AclResourceType.TOPIC, name, AclOperation.DESCRIBE))
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)

    def code() -> int:
        answer = as_a_stranger(cluster.brokers[asked].address, ApiKey.METADATA, 9, request)
        return int(answer.topics[0].error_code)

    until(lambda: code() == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    cluster.brokers[OTHER].kill()
    cluster.brokers[OTHER].start_again()
    until(lambda: code() == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


@pytest.mark.parametrize(
    ("key", "version"),
    [
        (ApiKey.FETCH, 13),
        (ApiKey.ALTER_PARTITION, 3),
        (ApiKey.ENVELOPE, 0),
        (ApiKey.ALLOCATE_PRODUCER_IDS, 0),
        (ApiKey.DESCRIBE_CLUSTER, 1),
        (ControllerApiKey.FETCH_SNAPSHOT, 0),
        (ControllerApiKey.BROKER_REGISTRATION, 4),
        (ControllerApiKey.BROKER_HEARTBEAT, 1),
        (ControllerApiKey.ASSIGN_REPLICAS_TO_DIRS, 0),
        (ApiKey.DESCRIBE_QUORUM, 1),
    ],
)
def test_only_brokers_may_ask_the_controller(cluster: ClusterOfProcesses, key: AnyApiKey, version: int) -> None:
    answer = as_a_stranger(cluster.controller_address, key, version, request_class(key)())
    assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
