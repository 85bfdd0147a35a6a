"""Client quotas of a broker process: the clients that are throttled, the throttle times, muted connections."""

from __future__ import annotations

import itertools
import select
from collections.abc import Iterator
from typing import Any

import pytest
import trio

from gregor.broker.api.contract import RequestContext
from gregor.broker.api.table import APIS
from gregor.broker.config import BrokerConfig
from gregor.broker.metadata.state import Entity
from gregor.broker.quotas.enforcement import ClientQuotas
from gregor.broker.server.client_connection import ClientConnection
from gregor.protocol.apis import ApiKey
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from gregor.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from gregor.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from gregor.protocol.messages.delete_topics import DeleteTopicsRequest
from gregor.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from gregor.protocol.messages.metadata import MetadataRequest
from gregor.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from gregor.protocol.records import v2
from gregor.protocol.records.record import Record
from gregor.storage.clock import ManualClock
from tests.broker_process import BrokerProcess, running_broker
from tests.wire import Wire

TOPIC = "bounded"
BATCH_BYTES = 60_000
MUTATION_RATE = 0.01
"""Partitions per second: no test is so slow that it earns one."""
FOR_MINUTES = 400.0
"""Bytes per second, so few that a client waits for minutes after one batch: no test is so slow that the wait ends."""
NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """Provide a broker that allows bursts of one second's bytes, and of eleven partitions at `MUTATION_RATE`.

    Also, its connections that wait must not hold up its end.
    """
    overrides = ("quota.window.num=2", f"controller.quota.window.num={round(11 / MUTATION_RATE)}")
    with running_broker(tmp_path_factory.mktemp("quotas"), *overrides) as running:
        with Wire(running.address, client_id="setup") as wire:
            topic = CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1)
            wire.ask(ApiKey.CREATE_TOPICS, 4, CreateTopicsRequest(topics=[topic], timeout_ms=5000))
        yield running


@pytest.fixture
def client_id() -> str:
    """Return a client id of its own for each test, so that no test inherits another one's rate."""
    return f"client-{next(NUMBERS)}"


@pytest.fixture
def client(broker: BrokerProcess, client_id: str) -> Iterator[Wire]:
    with Wire(broker.address, client_id=client_id) as wire:
        yield wire


def bind(broker: BrokerProcess, client_id: str, **quotas: float) -> None:
    entry = EntryData(
        entity=[EntityData(entity_type="client-id", entity_name=client_id)],
        ops=[OpData(key=key, value=value) for key, value in quotas.items()],
    )
    with Wire(broker.address, client_id="setup") as wire:
        answer = wire.ask(ApiKey.ALTER_CLIENT_QUOTAS, 1, AlterClientQuotasRequest(entries=[entry]))
    assert answer.entries[0].error_code == 0


def produce_request(*, acks: int = 1) -> ProduceRequest:
    batch = v2.build_batch([Record(offset=0, timestamp=-1, key=None, value=b"x" * BATCH_BYTES)])
    data = TopicProduceData(name=TOPIC, partition_data=[PartitionProduceData(index=0, records=batch)])
    return ProduceRequest(acks=acks, timeout_ms=5000, topic_data=[data])


def produce(client: Wire, times: int = 1) -> list[int]:
    """Return the throttle time of each answer, in ms."""
    return [client.ask(ApiKey.PRODUCE, 9, produce_request()).throttle_time_ms for _ in range(times)]


def fetch(client: Wire) -> Any:
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topics = [FetchTopic(topic=TOPIC, partitions=[partition])]
    return client.ask(ApiKey.FETCH, 11, FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, topics=topics))


def test_clients_without_a_quota_are_never_throttled(broker: BrokerProcess, client: Wire) -> None:
    bind(broker, "somebody else", producer_byte_rate=1)
    assert produce(client, 30) == [0] * 30


def test_a_producer_over_its_byte_rate_gets_a_throttle_time(
    broker: BrokerProcess, client: Wire, client_id: str
) -> None:
    bind(broker, client_id, producer_byte_rate=3 * BATCH_BYTES)
    # The quota of one second is two batches and the header of the third.
    assert produce(client, 2) == [0, 0]
    throttled = next(throttle_ms for _ in range(1000) for throttle_ms in produce(client) if throttle_ms)
    assert 0 < throttled < 1000


def test_a_throttled_connection_is_muted_and_others_are_not(
    broker: BrokerProcess, client: Wire, client_id: str
) -> None:
    bind(broker, client_id, producer_byte_rate=FOR_MINUTES)
    assert produce(client)[0] > 60_000
    client.send(ApiKey.METADATA, 4, MetadataRequest(topics=[]))
    with Wire(broker.address, client_id="unhindered") as other:
        other.ask(ApiKey.METADATA, 4, MetadataRequest(topics=[]))
    assert not select.select([client.socket], [], [], 0)[0]


def test_a_producer_with_acks_0_is_throttled_too(broker: BrokerProcess, client: Wire, client_id: str) -> None:
    bind(broker, client_id, producer_byte_rate=FOR_MINUTES)
    client.send(ApiKey.PRODUCE, 9, produce_request(acks=0))
    client.send(ApiKey.METADATA, 4, MetadataRequest(topics=[]))
    with Wire(broker.address, client_id="unhindered") as other:
        other.ask(ApiKey.METADATA, 4, MetadataRequest(topics=[]))
    assert not select.select([client.socket], [], [], 0)[0]


def test_a_fetch_over_the_rate_is_answered_empty_and_later_in_full(
    broker: BrokerProcess, client: Wire, client_id: str
) -> None:
    with Wire(broker.address, client_id="filler") as filler:
        produce(filler, 2)
    bind(broker, client_id, consumer_byte_rate=BATCH_BYTES * 11 // 10)
    first = fetch(client)
    assert first.throttle_time_ms == 0
    assert len(first.responses[0].partitions[0].records) >= BATCH_BYTES
    # Two changes within a second exceed the quota.
    refused = next(answer for answer in (fetch(client) for _ in range(1000)) if answer.throttle_time_ms)
    assert refused.responses == []
    # Records that were not delivered do not count, so that the client makes progress.
    later = next(answer for answer in (fetch(client) for _ in range(1000)) if answer.responses)
    assert len(later.responses[0].partitions[0].records) >= BATCH_BYTES


def test_the_throttle_time_of_the_request_percentage_is_limited_to_one_sample(
    broker: BrokerProcess, client: Wire, client_id: str
) -> None:
    bind(broker, client_id, request_percentage=0.0001)
    answer = client.ask(ApiKey.METADATA, 4, MetadataRequest(topics=None))
    assert answer.throttle_time_ms == 1000


def create(client: Wire, version: int, *names: str, validate_only: bool = False) -> Any:
    topics = [CreatableTopic(name=name, num_partitions=6, replication_factor=1) for name in names]
    request = CreateTopicsRequest(topics=topics, timeout_ms=5000, validate_only=validate_only)
    return client.ask(ApiKey.CREATE_TOPICS, version, request)


def test_topic_changes_over_the_rate_are_refused(broker: BrokerProcess, client: Wire, client_id: str) -> None:
    bind(broker, client_id, controller_mutation_rate=MUTATION_RATE)
    names = [f"{client_id}-{letter}" for letter in "abc"]
    # Tokens for eleven partitions: the first topic leaves five, the second uses more than five, the third is refused.
    answer = create(client, 7, *names)
    refused = ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert [topic.error_code for topic in answer.topics] == [ErrorCode.NONE, ErrorCode.NONE, refused]
    assert 0 < answer.throttle_time_ms <= 1000 / MUTATION_RATE


def test_validate_only_requests_count_against_the_mutation_rate(
    broker: BrokerProcess, client: Wire, client_id: str
) -> None:
    bind(broker, client_id, controller_mutation_rate=MUTATION_RATE)
    create(client, 7, f"{client_id}-a", validate_only=True)
    answer = create(client, 7, f"{client_id}-b", f"{client_id}-c")
    assert [topic.error_code for topic in answer.topics] == [ErrorCode.NONE, ErrorCode.THROTTLING_QUOTA_EXCEEDED]


def test_create_topics_v5_is_throttled_instead_of_refused(broker: BrokerProcess, client_id: str) -> None:
    bind(broker, client_id, controller_mutation_rate=MUTATION_RATE)
    for version, name in ((5, "a"), (5, "b"), (5, "c")):
        with Wire(broker.address, client_id=client_id) as wire:
            answer = create(wire, version, f"{client_id}-{name}")
            assert answer.topics[0].error_code == ErrorCode.NONE
    assert answer.throttle_time_ms > 5000 / MUTATION_RATE


def test_added_and_deleted_partitions_count_against_the_mutation_rate(broker: BrokerProcess, client_id: str) -> None:
    name = f"{client_id}-topic"
    with Wire(broker.address, client_id="setup") as wire:
        create(wire, 7, name)
    bind(broker, client_id, controller_mutation_rate=MUTATION_RATE)
    more = CreatePartitionsTopic(name=name, count=20, assignments=None)
    with Wire(broker.address, client_id=client_id) as wire:
        added = wire.ask(ApiKey.CREATE_PARTITIONS, 3, CreatePartitionsRequest(topics=[more], timeout_ms=5000))
        assert added.results[0].error_code == ErrorCode.NONE
    with Wire(broker.address, client_id=client_id) as wire:
        deleted = wire.ask(ApiKey.DELETE_TOPICS, 5, DeleteTopicsRequest(topic_names=[name], timeout_ms=5000))
        assert deleted.responses[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED


USER, CLIENT = ("user", "ANONYMOUS"), ("client-id", "shop")
ANY_USER, ANY_CLIENT = ("user", None), ("client-id", None)
BY_PRECEDENCE: list[Entity] = [
    (CLIENT, USER),
    (ANY_CLIENT, USER),
    (USER,),
    (CLIENT, ANY_USER),
    (ANY_CLIENT, ANY_USER),
    (ANY_USER,),
    (CLIENT,),
    (ANY_CLIENT,),
]


def of_the_shop() -> RequestContext:
    client = ClientConnection(("10.0.0.1", 40000), ("10.0.0.9", 9092), "PLAINTEXT", "connection", trio.Event())
    unused: Any = None
    return RequestContext(unused, client, APIS[ApiKey.FETCH], 11, unused, client_id="shop")


@pytest.mark.parametrize("strongest", range(len(BY_PRECEDENCE)))
def test_the_most_specific_quota_binds(strongest: int) -> None:
    quotas = ClientQuotas(BrokerConfig(), ManualClock())
    limits = {entity: {"consumer_byte_rate": float(1000 + rank)} for rank, entity in enumerate(BY_PRECEDENCE)}
    quotas.take(dict(list(limits.items())[strongest:]))
    # Ten of the eleven samples of one second.
    assert quotas.most_fetch_bytes(of_the_shop()) == 10 * (1000 + strongest)


def test_a_quota_for_others_does_not_bind() -> None:
    quotas = ClientQuotas(BrokerConfig(), ManualClock())
    assert not quotas.is_active
    quotas.take({(("client-id", "other"),): {"consumer_byte_rate": 1.0}})
    assert quotas.is_active
    assert quotas.most_fetch_bytes(of_the_shop()) == (1 << 31) - 1


def test_ip_quotas_do_not_apply_to_clients() -> None:
    quotas = ClientQuotas(BrokerConfig(), ManualClock())
    quotas.take({(("ip", "10.0.0.1"),): {"connection_creation_rate": 1.0}})
    assert not quotas.is_active
