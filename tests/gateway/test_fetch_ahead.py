"""Fetches that a gateway sends before an old consumer asks for them: all records arrive once, and memory is freed."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from gregor.gateway.fetching.buffer_memory import BufferMemory
from gregor.protocol.apis import ApiKey
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages.delete_topics import DeleteTopicsRequest
from gregor.protocol.messages.metadata import MetadataRequest
from gregor.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from gregor.protocol.messages.sasl_handshake import SaslHandshakeRequest
from gregor.protocol.records.batches import iter_batches, iter_records
from gregor.protocol.records.compression import Codec
from tests.gateway.kafka_4 import GatewayAndBroker, gateway_before_kafka_4
from tests.gateway.test_fetched_records import new_batch
from tests.gateway.test_old_versions import fetch, new_topic, records_of
from tests.gateway.test_security import BROKER, OWN_LOGIN
from tests.waiting import wait_until
from tests.wire import Wire

MEMORY = 4 << 20


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayAndBroker]:
    """Provide a gateway with little memory."""
    settings = {"gregor.gateway.buffer.memory": str(MEMORY)}
    with gateway_before_kafka_4(tmp_path_factory.mktemp("small"), settings) as pair:
        yield pair


@pytest.fixture
def wire(small: GatewayAndBroker) -> Iterator[Wire]:
    """Provide a client of that gateway."""
    with Wire(small.address) as connected:
        yield connected


def filled_topic(wire: Wire, codec: Codec, value_bytes: int) -> tuple[str, int]:
    """Return a topic of 400 kB of records that hardly compress, and the number of records."""
    topic, chance = new_topic(wire), random.Random(value_bytes)
    count = 400_000 // value_bytes
    values = [chance.randbytes(value_bytes - 8) + b"%8d" % number for number in range(count)]
    for start in range(0, count, 20):
        new_batch(wire, topic, codec, *values[start : start + 20])
    return topic, count


def read(wire: Wire, version: int, topic: str, offset: int) -> list[int]:
    """Return the numbers in the records from ``offset`` on that one fetch returns; they are the offsets."""
    part = fetch(wire, version, topic, offset, max_bytes=60_000)
    assert part.error_code == ErrorCode.NONE
    found = [record for batch in iter_batches(records_of(part)) for record in iter_records(batch)]
    assert all(record.value is not None and int(record.value[-8:]) == record.offset for record in found)
    return [record.offset for record in found if record.offset >= offset]


@pytest.mark.parametrize("version", [0, 2, 3])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
@pytest.mark.parametrize("value_bytes", [20, 500])
def test_a_consumer_reads_every_record_once(
    small: GatewayAndBroker, wire: Wire, version: int, codec: Codec, value_bytes: int
) -> None:
    topic, count = filled_topic(wire, codec, value_bytes)
    found: list[int] = []
    was_ahead = False
    while len(found) < count:
        found += read(wire, version, topic, len(found))
        was_ahead = was_ahead or small.gateway.memory.used_bytes > 0
    assert found == list(range(count))
    assert was_ahead, "between two requests memory is held only for a fetch that was sent ahead"


def go_on(wire: Wire, topic: str, times: int = 3) -> int:
    """Fetch several times from where the last answer ended, so that the next fetch is sent ahead; return its offset."""
    offset = 0
    for _ in range(times):
        offset = read(wire, 2, topic, offset)[-1] + 1
    return offset


def test_a_fetch_ahead_delays_no_other_request_and_answers_no_other_offset(small: GatewayAndBroker, wire: Wire) -> None:
    """A fetch that was sent ahead delays no other request of its connection, and answers no other fetch."""
    topic, _ = filled_topic(wire, Codec.NONE, 500)
    offset = go_on(wire, topic)
    wait_until(lambda: small.gateway.memory.used_bytes > 0)
    assert wire.ask(ApiKey.METADATA, 0, MetadataRequest()).brokers
    assert read(wire, 2, topic, offset)[0] == offset
    assert read(wire, 2, topic, 7)[0] == 7
    go_on(wire, topic)
    assert read(wire, 3, topic, offset)[0] == offset


def test_records_of_a_deleted_topic_are_not_served_as_those_of_a_new_one(wire: Wire) -> None:
    topic, _ = filled_topic(wire, Codec.NONE, 500)
    offset = go_on(wire, topic)
    request = DeleteTopicsRequest(topic_names=[topic], timeout_ms=10000)
    assert wire.ask(ApiKey.DELETE_TOPICS, 1, request).responses[0].error_code == ErrorCode.NONE
    # What the broker had sent before the deletion may still be answered, for a second.
    wait_until(lambda: fetch(wire, 2, topic, offset).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def test_fetch_ahead_of_idle_consumers_uses_at_most_half_of_the_memory(small: GatewayAndBroker, wire: Wire) -> None:
    """Each idle consumer has a fetch ahead; those that find no memory for theirs are served all the same."""
    topic, _ = filled_topic(wire, Codec.NONE, 500)
    memory = small.gateway.memory
    with contextlib.ExitStack() as stack:
        idle = [stack.enter_context(Wire(small.address)) for _ in range(40)]
        offsets = [go_on(client, topic) for client in idle]
        assert 0 < memory.used_bytes <= MEMORY // 2
        for client, offset in zip(idle, offsets, strict=True):
            assert read(client, 2, topic, offset)[0] == offset
    wait_until(lambda: memory.used_bytes == 0)


async def test_memory_of_a_fetch_ahead_is_released_for_a_waiting_fetch() -> None:
    """A fetch that the client waits for never waits for one that was sent ahead."""
    memory = BufferMemory(MEMORY)

    def drop() -> None:
        assert spare is not None
        spare.release()

    spare = memory.take_spare(60_000, drop)
    assert spare is not None
    needed = await memory.take_exactly(MEMORY)
    assert (spare.size_bytes, needed.size_bytes, memory.used_bytes) == (0, MEMORY, MEMORY)
    assert memory.take_spare(60_000, drop) is None
    needed.release()


@pytest.mark.parametrize("has_arrived", [False, True])
def test_a_fetch_ahead_that_is_dropped_keeps_the_connection_of_a_login(tmp_path: Path, has_arrived: bool) -> None:
    """The exchange of SCRAM cannot be repeated, so the connection must not end while the client is connected."""
    settings = {**OWN_LOGIN, "gregor.gateway.sasl.pass.through": "true", "gregor.gateway.buffer.memory": str(MEMORY)}
    with gateway_before_kafka_4(tmp_path, settings, BROKER) as pair, Wire(pair.address) as wire:
        wire.ask(ApiKey.SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism="PLAIN"))
        wire.ask(ApiKey.SASL_AUTHENTICATE, 0, SaslAuthenticateRequest(auth_bytes=b"\0alice\0a"))
        topic, count = filled_topic(wire, Codec.GZIP, 500)
        (session,) = (each for each in pair.gateway.sessions._sessions.values() if each.is_logged_in)
        links = list(session._links.values())
        found: list[int] = []
        drops = 0
        while len(found) < count:
            found += read(wire, 2, topic, len(found))
            if pair.gateway.memory.used_bytes and session.ahead is not None:
                if has_arrived:
                    wire.ask(ApiKey.METADATA, 0, MetadataRequest())
                session.ahead.drop()
                assert pair.gateway.memory.used_bytes == 0
                drops += 1
        assert found == list(range(count))
        assert drops > 1
        assert list(session._links.values()) == links


async def test_memory_of_a_fetch_ahead_that_is_still_being_sent_is_released_for_others() -> None:
    """While the request is sent, nothing but the hold is known of it."""
    memory = BufferMemory(MEMORY)
    spare = memory.take_spare(60_000, lambda: None)
    assert spare is not None
    with trio.fail_after(1):
        needed = await memory.take_exactly(MEMORY)
    assert (spare.size_bytes, needed.size_bytes) == (0, MEMORY)
    needed.release()
