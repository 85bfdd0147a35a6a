"""Random requests that look like real ones: each gets a specified answer."""

from __future__ import annotations

import contextlib
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import pytest

from gregor.protocol.apis import AnyApiKey, ApiKey, ControllerApiKey, request_class, valid_versions
from gregor.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from gregor.protocol.messages.metadata import MetadataRequest
from gregor.protocol.records import v2
from gregor.protocol.records.record import Record
from tests.broker_process import BrokerProcess, running_broker
from tests.cluster_of_processes import running_cluster
from tests.protocol.random_messages import RandomValues
from tests.wire import Wire

TOPICS = ("orders", "__consumer_offsets", "__transaction_state", "__cluster_metadata", "unheard-of")
NAMES = (*TOPICS, "orders", "group", "transaction", "member", "1", "", "(", ".*", "retention.ms", "compact", "range")
NUMBERS = (0, 0, 0, 1, 1, 2, 3, -1, -1, -2, 10)
RECORDS = [Record(offset=n, timestamp=1_790_000_000_000, key=b"k", value=b"v") for n in range(3)]
METADATA = b"\x00\x01\x00\x00\x00\x01\x00\x06orders\x00\x00\x00\x01\x00\x00\x00\x00\xff\xff\xff\xff"
"""Protocol metadata that a consumer of the topic sends to its group."""
WAITS = ("timeout_ms", "max_wait_ms", "rebalance_timeout_ms")
CLIENTS: list[AnyApiKey] = [key for key in ApiKey if key is not ApiKey.UNREGISTER_BROKER]
PATIENCE_S = 0.5
"""Of who asks; some questions rightly have no answer for longer."""


class PlausibleValues(RandomValues):
    """Values that are mostly names of existing things, small numbers and valid batches, and sometimes others."""

    def __init__(self, random: Random, topic_ids: list[UUID]) -> None:
        super().__init__(random)
        self._topic_ids = topic_ids

    def number(self, code: str) -> int:
        if self.random.random() < 0.1:
            return super().number(code)
        number = self.random.choice(NUMBERS)
        return number if code.islower() else abs(number)

    def uuid(self) -> UUID:
        return self.random.choice(self._topic_ids)

    def text(self) -> str:
        return self.random.choice(NAMES)

    def data(self) -> bytes:
        kind = self.random.random()
        if kind < 0.4:
            return v2.build_batch(RECORDS)
        if kind < 0.6:
            return v2.build_batch(RECORDS, producer_id=self.number("q"), producer_epoch=0, base_sequence=0)
        return METADATA if kind < 0.8 else super().data()


def make_topics(address: tuple[str, int], replication_factor: int) -> list[UUID]:
    """Create the topics that the requests name; return their ids."""
    with Wire(address) as wire:
        orders = CreatableTopic(name="orders", num_partitions=3, replication_factor=replication_factor)
        wire.ask(ApiKey.CREATE_TOPICS, 4, CreateTopicsRequest(topics=[orders], timeout_ms=20_000))
        known = wire.ask(ApiKey.METADATA, 12, MetadataRequest(topics=None)).topics
    return [topic.topic_id for topic in known]


def talk(
    random: Random, count: int, keys: list[AnyApiKey], addresses: list[tuple[str, int]], topic_ids: list[UUID]
) -> None:
    """Send each request to a random broker, over a new connection. Raises OSError if the broker does not listen."""
    values = PlausibleValues(random, [UUID(int=0), *topic_ids])
    for _ in range(count):
        key = random.choice(keys)
        version = random.randint(*valid_versions(key))
        request: Any = values.message(request_class(key), version)
        for name in WAITS:
            if hasattr(request, name):
                setattr(request, name, random.choice([0, 50]))
        wire = Wire(random.choice(addresses), timeout=PATIENCE_S)
        # Requests that cannot be encoded are not sent; malformed requests end their connection; long waits time out.
        with wire, contextlib.suppress(ValueError, ConnectionError, TimeoutError):
            wire.ask(key, version, request)


def nothing_was_unforeseen(broker: BrokerProcess) -> None:
    assert broker.process.poll() is None, broker.output()[-4000:]
    output = broker.output()
    start = output.find("Traceback")
    assert start < 0, output[max(0, start - 500) : start + 4000]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_a_single_broker_answers_plausible_random_requests_without_tracebacks(tmp_path: Path, seed: int) -> None:
    with running_broker(tmp_path) as broker:
        topic_ids = make_topics(broker.address, 1)
        talk(Random(seed), 1_000, CLIENTS, [broker.address], topic_ids)
        nothing_was_unforeseen(broker)
        make_topics(broker.address, 1)


@pytest.mark.peer
def test_a_cluster_and_its_controller_answer_plausible_random_requests_without_tracebacks(tmp_path: Path) -> None:
    with running_cluster(
        tmp_path, 3, "offsets.topic.num.partitions=2", "transaction.state.log.num.partitions=2"
    ) as cluster:
        brokers = list(cluster.brokers.values())
        topic_ids = make_topics(brokers[0].address, 3)
        random = Random(3)
        for _ in range(10):
            talk(random, 200, CLIENTS, [broker.address for broker in brokers], topic_ids)
            talk(random, 50, [*CLIENTS, *ControllerApiKey], [cluster.controller_address], topic_ids)
        for broker in brokers:
            nothing_was_unforeseen(broker)
        cluster.wait_until_all_see_all()
