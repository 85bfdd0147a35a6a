"""Metadata: requests for all and for no topics by version, ids, missing topics, the entries of brokers."""

from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from gregor.broker.api.authorized_operations import NOT_ASKED
from gregor.broker.api.handlers.metadata import handle_metadata
from gregor.broker.server import advertised
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tests.asking import DIALLED, Asking

ALL_ON_A_TOPIC = 0b1101_1111_1000
"""READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS and ALTER_CONFIGS, by their codes in Kafka."""
ALL_ON_A_CLUSTER = 0b1_1111_1010_0000
"""CREATE, ALTER, DESCRIBE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS and IDEMPOTENT_WRITE."""


def named(*names: str) -> list[MetadataRequestTopic]:
    return [MetadataRequestTopic(name=name) for name in names]


async def metadata(asking: Asking, version: int = 12, **fields: Any) -> MetadataResponse:
    request = MetadataRequest(**{"allow_auto_topic_creation": False, **fields})
    response = await asking.ask(handle_metadata, request, version)
    assert isinstance(response, MetadataResponse)
    return response


async def test_metadata_v0_with_an_empty_list_returns_all_topics(asking: Asking) -> None:
    asking.broker.services.metadata.create_topic("a")
    assert [topic.name for topic in (await metadata(asking, 0, topics=[])).topics] == ["a"]


@pytest.mark.parametrize("version", [1, 8, 12])
async def test_metadata_from_v1_on_returns_all_topics_for_null_and_none_for_an_empty_list(
    asking: Asking, version: int
) -> None:
    asking.broker.services.metadata.create_topic("a")
    assert [topic.name for topic in (await metadata(asking, version, topics=None)).topics] == ["a"]
    assert (await metadata(asking, version, topics=[])).topics == []


async def test_a_topic_is_described_with_its_partitions(asking: Asking) -> None:
    made = asking.broker.services.metadata.create_topic("a", partitions=2)
    (topic,) = (await metadata(asking, topics=named("a"))).topics
    assert (topic.name, topic.topic_id, topic.is_internal) == ("a", made.topic_id, False)
    described = [(p.partition_index, p.leader_id, p.leader_epoch, p.replica_nodes) for p in topic.partitions]
    assert described == [(0, 1, 0, [1]), (1, 1, 0, [1])]


async def test_a_topic_named_twice_is_described_once(asking: Asking) -> None:
    asking.broker.services.metadata.create_topic("a")
    assert len((await metadata(asking, topics=named("a", "a"))).topics) == 1


async def test_metadata_returns_the_address_that_the_client_connected_to(asking: Asking) -> None:
    response = await metadata(asking, topics=[])
    assert [(b.node_id, b.host, b.port, b.rack) for b in response.brokers] == [(1, *DIALLED, "r1")]
    assert response.controller_id == 1
    assert response.cluster_id == asking.broker.services.metadata.cluster_id != ""


@pytest.mark.parametrize("properties", [{"advertised.listeners": "PLAINTEXT://kafka.example:19092"}])
async def test_metadata_returns_the_advertised_listener(asking: Asking) -> None:
    response = await metadata(asking, topics=[])
    assert [(b.host, b.port) for b in response.brokers] == [("kafka.example", 19092)]


BY_GATEWAY = {"gregor.gateway.advertised.listeners": "PLAINTEXT://localhost:19092"}


@pytest.mark.parametrize("properties", [BY_GATEWAY])
async def test_clients_that_connect_through_the_default_gateway_get_the_mapped_address(
    asking: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind a published port of a container the socket has the container's address, not the one dialled."""
    for gateway, told in ((asking.client.peer[0], ("localhost", 19092)), ("10.0.0.1", DIALLED), (None, DIALLED)):
        monkeypatch.setattr(advertised, "default_gateway", lambda gateway=gateway: gateway)
        response = await metadata(asking, topics=[])
        assert [(b.host, b.port) for b in response.brokers] == [told]


@pytest.mark.parametrize("properties", [BY_GATEWAY | {"advertised.listeners": "PLAINTEXT://kafka.example:9092"}])
async def test_advertised_listeners_take_precedence_over_the_mapped_address(
    asking: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(advertised, "default_gateway", lambda: asking.client.peer[0])
    response = await metadata(asking, topics=[])
    assert [(b.host, b.port) for b in response.brokers] == [("kafka.example", 9092)]


def test_the_default_gateway_is_read_from_the_routing_table(tmp_path: Path) -> None:
    table = tmp_path / "route"
    table.write_text(
        "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\n"
        "eth0\t000011AC\t00000000\t0001\t0\t0\t0\t0000FFFF\n"
        "eth0\t00000000\t010011AC\t0003\t0\t0\t0\t00000000\n"
    )
    assert advertised.default_gateway(table) == "172.17.0.1"
    assert advertised.default_gateway(tmp_path / "missing") is None


async def test_metadata_creates_a_missing_topic_and_returns_it_to_the_next_request(asking: Asking) -> None:
    (first,) = (await metadata(asking, topics=named("new"), allow_auto_topic_creation=True)).topics
    (second,) = (await metadata(asking, topics=named("new"), allow_auto_topic_creation=True)).topics
    assert first.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (second.error_code, len(second.partitions)) == (ErrorCode.NONE, 1)


async def test_clients_before_v4_cannot_forbid_creation(asking: Asking) -> None:
    await metadata(asking, 3, topics=named("new"), allow_auto_topic_creation=False)
    assert "new" in asking.broker.services.metadata.topics


async def test_clients_from_v4_on_can_forbid_creation(asking: Asking) -> None:
    await metadata(asking, 4, topics=named("new"), allow_auto_topic_creation=False)
    assert asking.broker.services.metadata.topics == {}


@pytest.mark.parametrize("properties", [{"auto.create.topics.enable": "false"}])
async def test_the_operator_can_forbid_creation(asking: Asking) -> None:
    await metadata(asking, topics=named("new"), allow_auto_topic_creation=True)
    assert asking.broker.services.metadata.topics == {}


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "é", "x" * 250])
async def test_metadata_does_not_create_topics_with_invalid_names(asking: Asking, name: str) -> None:
    (topic,) = (await metadata(asking, topics=named(name), allow_auto_topic_creation=True)).topics
    assert topic.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert asking.broker.services.metadata.topics == {}


async def test_metadata_v12_finds_topics_by_id(asking: Asking) -> None:
    made, missing = asking.broker.services.metadata.create_topic("a"), uuid4()
    wanted = [MetadataRequestTopic(topic_id=topic_id, name=None) for topic_id in (made.topic_id, missing)]
    found, lost = (await metadata(asking, topics=wanted)).topics
    assert (found.name, found.error_code) == ("a", ErrorCode.NONE)
    assert (lost.name, lost.error_code, lost.topic_id) == (None, ErrorCode.UNKNOWN_TOPIC_ID, missing)


async def test_metadata_v10_refuses_requests_by_topic_id(asking: Asking) -> None:
    wanted = [MetadataRequestTopic(topic_id=uuid4(), name=None)]
    response = await metadata(asking, 10, topics=wanted)
    assert [topic.error_code for topic in response.topics] == [ErrorCode.INVALID_REQUEST]
    assert response.brokers == []


async def test_metadata_returns_authorized_operations_on_request(asking: Asking) -> None:
    asking.broker.services.metadata.create_topic("a")
    silent = await metadata(asking, 8, topics=named("a"))
    asked = await metadata(
        asking,
        8,
        topics=named("a"),
        include_cluster_authorized_operations=True,
        include_topic_authorized_operations=True,
    )
    assert (silent.cluster_authorized_operations, silent.topics[0].topic_authorized_operations) == (NOT_ASKED,) * 2
    assert asked.cluster_authorized_operations == ALL_ON_A_CLUSTER
    assert asked.topics[0].topic_authorized_operations == ALL_ON_A_TOPIC
