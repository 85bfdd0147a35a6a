"""Large answers that name brokers: kept as long as nothing changes."""

from __future__ import annotations

import itertools

import pytest
import trio

from gregor.broker.server.parts import BUFFERS, Answer
from gregor.gateway import rewritten
from gregor.gateway.addresses import rewrite_brokers
from gregor.gateway.frames import answer_parts, read_answer
from gregor.gateway.rewritten import RewrittenAnswers
from gregor.protocol.apis import ApiKey
from gregor.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from gregor.protocol.schema import Message
from tests.gateway.test_leader_hints import CLIENT, Shown


def joined(answer: Answer) -> bytes:
    """Return the bytes of an answer."""
    return b"".join(part for part in answer if isinstance(part, BUFFERS))


def metadata(partitions: int, version: int, correlation_id: int, leader: int = 1) -> bytes:
    """Return the frame of an answer with one topic and three brokers."""
    parts = [
        MetadataResponsePartition(
            partition_index=number, leader_id=leader, replica_nodes=[0, 1, 2], isr_nodes=[1, 2], offline_replicas=[0]
        )
        for number in range(partitions)
    ]
    brokers = [MetadataResponseBroker(node_id=node, host=f"kafka-{node}.internal", port=9092) for node in range(3)]
    topics = [MetadataResponseTopic(name="orders", partitions=parts)]
    response = MetadataResponse(brokers=brokers, controller_id=2, topics=topics)
    return joined(answer_parts(ApiKey.METADATA, version, correlation_id, response))


class Gateway:
    """The rewriting part of a gateway, with counters."""

    def __init__(self, shown: Shown) -> None:
        self.shown = shown
        self.state = 0
        self.learned: list[Message] = []
        self.answers = RewrittenAnswers(shown, lambda: self.state)

    def given(self, found: bytes, version: int) -> bytes:
        """Return what a client gets."""
        return joined(trio.run(self.answer, found, version))

    async def answer(self, found: bytes, version: int) -> Answer:
        """Return the parts of what a client gets."""
        return await self.answers.answer(ApiKey.METADATA, version, found, CLIENT, self.learned.append)

    def expected(self, found: bytes, version: int) -> bytes:
        """Return what a client must get."""
        response = read_answer(ApiKey.METADATA, version, found)
        rewrite_brokers(response, version, self.shown, CLIENT)
        return joined(answer_parts(ApiKey.METADATA, version, int.from_bytes(found[:4], "big"), response))


@pytest.fixture(params=[True, False], ids=["one address", "a port for each broker"])
def gateway(request: pytest.FixtureRequest) -> Gateway:
    """Provide a gateway of each mode."""
    return Gateway(Shown("gateway", changes_node_ids=request.param))


@pytest.mark.parametrize("version", [0, 1, 5, 8, 9, 12])
@pytest.mark.parametrize("partitions", [1, 3_000])
def test_each_client_gets_its_own_correlation_id_and_known_addresses(
    gateway: Gateway, version: int, partitions: int
) -> None:
    for correlation_id in (1, 0x7FFFFFFF, 3):
        found = metadata(partitions, version, correlation_id)
        given = gateway.given(found, version)
        assert given == gateway.expected(found, version)
        assert b"kafka-1" not in given
    assert len(gateway.learned) == (3 if partitions == 1 else 1)


def test_the_same_answer_is_not_decoded_again_until_something_changes(gateway: Gateway) -> None:
    calls = itertools.count(1)
    former = metadata(3_000, 9, next(calls))
    gateway.given(former, 9)
    gateway.given(metadata(3_000, 9, next(calls)), 9)
    assert len(gateway.learned) == 1
    # A broker has refused to be the leader: the answer must be learned again, although it is the same.
    gateway.state += 1
    gateway.given(metadata(3_000, 9, next(calls)), 9)
    assert len(gateway.learned) == 2
    moved = metadata(3_000, 9, next(calls), leader=2)
    assert gateway.given(moved, 9) == gateway.expected(moved, 9)
    assert len(gateway.learned) == 3
    other = metadata(3_000, 8, next(calls))
    assert gateway.given(other, 8) == gateway.expected(other, 8)
    assert len(gateway.learned) == 4


def test_clients_that_ask_at_the_same_time_wait_for_one_translation(gateway: Gateway) -> None:
    given: list[bytes] = []

    async def ask(correlation_id: int) -> None:
        found = metadata(3_000, 9, correlation_id)
        given.append(joined(await gateway.answer(found, 9)))
        assert given[-1] == gateway.expected(found, 9)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for number in range(5):
                nursery.start_soon(ask, number)

    trio.run(main)
    assert len(given) == 5
    assert len(gateway.learned) == 1


def test_clients_that_know_the_gateway_by_another_name_get_that_name(gateway: Gateway) -> None:
    found = metadata(3_000, 9, 1)
    assert b"gateway" in gateway.given(found, 9)
    gateway.shown.host = "another.name"
    given = gateway.given(found, 9)
    assert b"another.name" in given
    assert given == gateway.expected(found, 9)


def test_few_answers_are_kept_and_no_huge_one(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    for leader in range(rewritten.MOST_KEPT + 1):
        gateway.given(metadata(3_000, 9, 1, leader), 9)
    gateway.given(metadata(3_000, 9, 1, 0), 9)
    assert len(gateway.learned) == rewritten.MOST_KEPT + 2
    monkeypatch.setattr(rewritten, "MOST_KEPT_BYTES", 1000)
    for _ in range(2):
        found = metadata(3_000, 9, 1, 7)
        assert gateway.given(found, 9) == gateway.expected(found, 9)
    assert len(gateway.learned) == rewritten.MOST_KEPT + 4
