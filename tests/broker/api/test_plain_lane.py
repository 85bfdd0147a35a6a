"""The lane for plain Produce requests: the same answers as from handlers, and all other requests are left to these."""

from __future__ import annotations

import errno
import random
import socket
from collections.abc import AsyncIterator
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from gregor.broker.api import dispatch
from gregor.broker.api.dispatch import Dispatcher
from gregor.broker.api.handlers.quotas import handle_alter_client_quotas
from gregor.broker.metadata.state import PartitionState
from gregor.broker.replicas.partition import Partition
from gregor.broker.replicas.replication.leadership import ReplicationRules
from gregor.broker.server.connection import Connection
from gregor.broker.server.pending import Pending
from gregor.broker.server.readiness import Readiness
from gregor.broker.server.receive_buffer_cy import ReceiveBuffer
from gregor.broker.server.request_times import RequestTimes
from gregor.broker.server.transport import SocketTransport
from gregor.protocol.apis import ApiKey, request_header_version
from gregor.protocol.errors import BrokerError, DecodeError, ErrorCode
from gregor.protocol.messages import alter_client_quotas
from gregor.protocol.messages.metadata import MetadataRequest
from gregor.protocol.messages.produce import ProduceRequest
from gregor.protocol.records.compression import Codec
from gregor.storage.log.partition_log import PartitionLog
from tests.asking import Asking, a_client
from tests.broker.api.log_requests import answered, batch, frame_of, message_set, produce, response_of

FRAME_LIMIT_BYTES = 1 << 20
VERSIONS = range(3, 12)


@pytest.fixture(params=["compiled", "pure python"])
def build(request: pytest.FixtureRequest, pure_modules: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch) -> str:
    """Run a test with both builds of the lane."""
    if request.param == "pure python":
        pure = pure_modules["plain_lane_cy"]
        monkeypatch.setattr(dispatch, "PlainLane", pure.PlainLane)
    return str(request.param)


@pytest.fixture
async def dispatcher(asking: Asking, build: str) -> Dispatcher:
    """Return a dispatcher that has seen the client, with the topics t and others of one partition."""
    for name in ("t", "others"):
        asking.broker.services.metadata.create_topic(name)
    found = Dispatcher(asking.broker.services)
    await answered(found, asking, frame_of(ApiKey.METADATA, 9, MetadataRequest(topics=[])))
    return found


def framed(frame: bytes | memoryview) -> bytes:
    return len(frame).to_bytes(4, "big") + bytes(frame)


def plain(version: int = 8, *values: bytes, **more: Any) -> bytes:
    """Return a plain request with its length."""
    return framed(frame_of(ApiKey.PRODUCE, version, produce(batch(*values or (b"a",)), **{"acks": 1, **more})))


def filled(*pieces: bytes) -> ReceiveBuffer:
    """Return a buffer that has received the bytes."""
    buffer = ReceiveBuffer(FRAME_LIMIT_BYTES)
    receive(buffer, b"".join(pieces))
    return buffer


def receive(buffer: ReceiveBuffer, data: bytes) -> None:
    while data:
        space = buffer.space()
        taken = min(len(space), len(data))
        space[:taken] = data[:taken]
        buffer.received(taken)
        data = data[taken:]


def lane_answers(dispatcher: Dispatcher, asking: Asking, buffer: ReceiveBuffer) -> list[bytes]:
    """Return the answers of the lane without their lengths."""
    assert dispatcher.plain_lane is not None
    answers = list(dispatcher.plain_lane.answer(buffer, asking.client))
    assert [int.from_bytes(answer[:4], "big") for answer in answers] == [len(answer) - 4 for answer in answers]
    return [answer[4:] for answer in answers]


def offsets(version: int, answers: list[bytes]) -> list[tuple[int, int]]:
    """Return the error and the base offset in each answer."""
    parts = [response_of(ApiKey.PRODUCE, version, answer).responses[0].partition_responses[0] for answer in answers]
    return [(part.error_code, part.base_offset) for part in parts]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("acks", [1, -1])
async def test_pipelined_requests_are_answered_in_their_order(
    asking: Asking, dispatcher: Dispatcher, version: int, acks: int
) -> None:
    requests = [plain(version, *[b"x"] * count, acks=acks) for count in (1, 3, 2)]
    buffer = filled(*requests)
    assert offsets(version, lane_answers(dispatcher, asking, buffer)) == [(0, 0), (0, 1), (0, 4)]
    assert buffer.is_empty()
    assert asking.client.request_counts[ApiKey.PRODUCE, version] == 3
    counters = asking.broker.services.metrics.topics["t"]
    assert (counters.produce_requests, counters.messages_in) == (3, 6)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
@pytest.mark.parametrize("version", [6, 8, 9])
async def test_the_lane_and_the_handler_give_the_same_answer(
    asking: Asking, dispatcher: Dispatcher, version: int, codec: Codec
) -> None:
    frame = frame_of(ApiKey.PRODUCE, version, produce(batch(b"a", b"b" * 500, codec=codec), acks=1))
    found = lane_answers(dispatcher, asking, filled(framed(frame)))
    other = await answered(
        dispatcher, asking, frame_of(ApiKey.PRODUCE, version, produce(batch(b"a"), "others", acks=1))
    )
    if codec is Codec.ZSTD and version < 7:
        assert not found, "the handler refuses the codec"
    else:
        (answer,) = found
        assert answer.replace(b"t", b"others") != answer
        assert offsets(version, [answer]) == offsets(version, [other]) == [(0, 0)]


async def test_incomplete_requests_wait_for_their_rest(asking: Asking, dispatcher: Dispatcher) -> None:
    stream = plain(8, b"a") + plain(9, b"b")
    buffer = ReceiveBuffer(FRAME_LIMIT_BYTES)
    found = []
    for place in range(len(stream)):
        receive(buffer, stream[place : place + 1])
        found += lane_answers(dispatcher, asking, buffer)
    assert len(found) == 2
    assert (offsets(8, found[:1]), offsets(9, found[1:])) == ([(0, 0)], [(0, 1)])


def of_another_client(version: int = 8) -> bytes:
    return framed(frame_of(ApiKey.PRODUCE, version, produce(batch(b"a"), acks=1), client_id="else"))


def two_partitions() -> ProduceRequest:
    request = produce(batch(b"a"), acks=1)
    request.topic_data[0].partition_data *= 2
    return request


OTHERS = {
    "another API": framed(frame_of(ApiKey.METADATA, 9, MetadataRequest(topics=[]))),
    "no answer": plain(8, acks=0),
    "wrong acks": plain(8, acks=2),
    "unknown topic": plain(8, topic="unknown"),
    "topic that is no text": plain(8, topic="u").replace(b"\0\1u", b"\0\1\xff"),
    "unknown partition": plain(8, partition=7),
    "internal topic": plain(8, topic="__consumer_offsets"),
    "another client": of_another_client(),
    "flexible, another client": of_another_client(9),
    "null client id": framed(frame_of(ApiKey.PRODUCE, 8, produce(batch(b"a"), acks=1), client_id=None)),
    "old version": framed(frame_of(ApiKey.PRODUCE, 2, produce(message_set(1, b"a"), acks=1))),
    "unknown version": plain(8).replace(b"\0\0\0\x08", b"\0\0\0\x7f", 1),
    "two partitions": framed(frame_of(ApiKey.PRODUCE, 8, two_partitions())),
    "a transaction": plain(8, transactional_id="x"),
    "two batches": framed(frame_of(ApiKey.PRODUCE, 8, produce(batch(b"a") * 2, acks=1))),
    "damaged batch": plain(8)[:-1] + b"?",
    "chosen offset": framed(frame_of(ApiKey.PRODUCE, 8, produce(batch(b"a", base_offset=7), acks=1))),
    "no header": framed(b"\0\0\0\x08"),
    "empty": framed(b""),
    "too long": (FRAME_LIMIT_BYTES + 1).to_bytes(4, "big"),
    "negative length": b"\xff" * 4,
}


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
async def test_requests_that_are_not_plain_stay_in_the_buffer(
    asking: Asking, dispatcher: Dispatcher, other: bytes
) -> None:
    asking.broker.services.metadata.ensure_topic("__consumer_offsets")
    buffer = filled(plain(8), other, plain(8))
    assert offsets(8, lane_answers(dispatcher, asking, buffer)) == [(0, 0)]
    assert buffer.consumed == len(plain(8))
    assert lane_answers(dispatcher, asking, buffer) == []
    assert asking.broker.services.partitions.get("t", 0).log.log_end_offset == 1


async def test_the_first_request_of_a_client_is_left_to_the_handler(asking: Asking, dispatcher: Dispatcher) -> None:
    asking.client = a_client()
    assert lane_answers(dispatcher, asking, filled(plain(8))) == []


async def test_requests_under_quotas_are_left_to_the_handler(asking: Asking, dispatcher: Dispatcher) -> None:
    entity = alter_client_quotas.EntityData(entity_type="client-id", entity_name=None)
    limit = alter_client_quotas.OpData(key="producer_byte_rate", value=1e9)
    request = alter_client_quotas.AlterClientQuotasRequest(
        entries=[alter_client_quotas.EntryData(entity=[entity], ops=[limit])]
    )
    assert lane_answers(dispatcher, asking, filled(plain(8)))
    await asking.ask(handle_alter_client_quotas, request)
    assert lane_answers(dispatcher, asking, filled(plain(8))) == []


@pytest.mark.parametrize(
    "properties",
    [
        {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"},
        {"gregor.fault.injection.enable": "true"},
    ],
    ids=["authorizer", "faults"],
)
async def test_brokers_that_read_each_request_have_no_lane(asking: Asking) -> None:
    assert asking.broker.dispatcher.plain_lane is None
    assert asking.broker.dispatcher._plain_fetch is None


@pytest.mark.parametrize("version", VERSIONS)
async def test_refused_appends_are_answered_as_by_the_handler(
    asking: Asking, dispatcher: Dispatcher, version: int, caplog: pytest.LogCaptureFixture
) -> None:
    def request(sequence: int, topic: str) -> memoryview:
        data = batch(b"a", producer_id=5, producer_epoch=0, base_sequence=sequence)
        return frame_of(ApiKey.PRODUCE, version, produce(data, topic, acks=1))

    # In order, a duplicate, out of order.
    for sequence, told in ((0, (0, 0)), (0, (0, 0)), (7, (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1))):
        found = lane_answers(dispatcher, asking, filled(framed(request(sequence, "t"))))
        expected = await answered(dispatcher, asking, request(sequence, "others"))
        assert offsets(version, found) == offsets(version, [expected]) == [told]
        assert len(found[0]) - len("t") == len(expected) - len("others")


async def test_a_full_disk_refuses_and_the_next_request_is_appended(
    asking: Asking, dispatcher: Dispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR) from OSError(errno.ENOSPC, "no space")

    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    for failing, code in ((full, ErrorCode.KAFKA_STORAGE_ERROR), (broken, ErrorCode.UNKNOWN_SERVER_ERROR)):
        with monkeypatch.context() as broken_log:
            broken_log.setattr(PartitionLog, "append", failing)
            assert offsets(8, lane_answers(dispatcher, asking, filled(plain(8)))) == [(code, -1)]
    assert offsets(8, lane_answers(dispatcher, asking, filled(plain(8)))) == [(0, 0)]
    counters = asking.broker.services.metrics.topics["t"]
    assert (counters.produce_requests, counters.failed_produce_requests) == (3, 1)


async def test_damaged_requests_have_the_same_effect_as_on_the_handler(asking: Asking, dispatcher: Dispatcher) -> None:
    """The handler gives the answers of the lane, with the next offset."""
    log = asking.broker.services.partitions.get("t", 0).log
    chance = random.Random(5)
    taken = 0
    for _ in range(600):
        version = chance.choice(VERSIONS)
        frame = bytearray(plain(version, b"a", b"bc")[4:])
        for _ in range(chance.randint(0, 2)):
            frame[chance.randrange(len(frame))] = chance.choice((0, 1, 2, 0x7F, 0x80, 0xFF))
        before = log.log_end_offset
        found = lane_answers(dispatcher, asking, filled(framed(bytes(frame))))
        if not found:
            assert log.log_end_offset == before
            continue
        taken += 1
        version = int.from_bytes(frame[2:4], "big")
        try:
            expected = await answered(dispatcher, asking, memoryview(frame))
        except DecodeError:
            pytest.fail(f"the handler refuses {frame.hex()}")
        assert found[0][:4] == expected[:4]
        first, second = (response_of(ApiKey.PRODUCE, version, b"\0\0\0M" + each[4:]) for each in (found[0], expected))
        (first_part,), (second_part,) = (each.responses[0].partition_responses for each in (first, second))
        second_part.base_offset -= 2
        assert (first, first_part.base_offset) == (second, before)
    assert taken > 50


# --- over a connection


class Client:
    """A client of a connection that the dispatcher serves."""

    def __init__(self, dispatcher: Dispatcher, nursery: trio.Nursery) -> None:
        here, there = socket.socketpair()
        self.stream = trio.SocketStream(trio.socket.from_stdlib_socket(here))
        self.times = RequestTimes()
        readiness = Readiness()
        self.client = a_client()
        self.connection = Connection(
            SocketTransport(there),
            dispatcher,
            self.client,
            readiness,
            frame_limit_bytes=FRAME_LIMIT_BYTES,
            times=self.times,
        )
        nursery.start_soon(readiness.run)
        nursery.start_soon(self.connection.run)

    async def answers(self, count: int) -> list[bytes]:
        """Return the next answers without their lengths."""
        data = bytearray()
        found: list[bytes] = []
        while len(found) < count:
            size_bytes = int.from_bytes(data[:4], "big")
            if len(data) >= 4 and len(data) >= 4 + size_bytes:
                found.append(bytes(data[4 : 4 + size_bytes]))
                del data[: 4 + size_bytes]
                continue
            piece = await self.stream.receive_some()
            assert piece, "the broker closed the connection"
            data += piece
        assert not data
        return found


@pytest.fixture
async def client(dispatcher: Dispatcher, nursery: trio.Nursery) -> AsyncIterator[Client]:
    """Provide a connected client."""
    found = Client(dispatcher, nursery)
    yield found
    await found.stream.aclose()


async def test_plain_and_other_requests_of_a_connection_are_answered_in_order_and_timed(
    asking: Asking, client: Client
) -> None:
    metadata = OTHERS["another API"]
    pieces = [plain(8), plain(8), metadata, plain(8), OTHERS["unknown topic"], OTHERS["no answer"], plain(8)]
    await client.stream.send_all(b"".join(pieces))
    first, second, told, third, unknown, fourth = await client.answers(6)
    assert response_of(ApiKey.METADATA, 9, told).topics == []
    assert offsets(8, [first, second, third, fourth]) == [(0, 0), (0, 1), (0, 2), (0, 4)]
    assert offsets(8, [unknown]) == [(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)]
    counts = {key: times.count for key, times in client.times.by_api()}
    assert counts == {ApiKey.PRODUCE: 6, ApiKey.METADATA: 1}


@pytest.mark.parametrize("request_count", [1, 2, 1000])
async def test_each_of_many_requests_in_flight_is_answered_once(
    client: Client, nursery: trio.Nursery, request_count: int
) -> None:
    nursery.start_soon(client.stream.send_all, plain(8) * request_count)
    found = await client.answers(request_count)
    assert offsets(8, found) == [(0, offset) for offset in range(request_count)]


async def test_requests_before_an_invalid_one_are_answered_and_the_connection_ends(
    asking: Asking, client: Client
) -> None:
    await client.stream.send_all(plain(8) * 3 + OTHERS["negative length"] + plain(8))
    assert offsets(8, await client.answers(3)) == [(0, 0), (0, 1), (0, 2)]
    assert await client.stream.receive_some() == b""


async def test_a_client_that_disconnects_within_a_request_loses_only_that_one(asking: Asking, client: Client) -> None:
    await client.stream.send_all(plain(8) * 2 + plain(8)[:50])
    await client.answers(2)
    await client.stream.aclose()
    await wait_all_tasks_blocked()
    assert asking.broker.services.partitions.get("t", 0).log.log_end_offset == 2


async def test_an_expired_session_is_not_served(asking: Asking, client: Client) -> None:
    await client.stream.send_all(plain(8) * 2)
    await client.answers(2)
    client.client.session_expires_at = trio.current_time() - 1
    await client.stream.send_all(plain(8))
    assert await client.stream.receive_some() == b""
    assert asking.broker.services.partitions.get("t", 0).log.log_end_offset == 2


def test_the_versions_with_flexible_headers_are_those_of_the_declaration(pure_modules: dict[str, ModuleType]) -> None:
    flexible = [version for version in VERSIONS if request_header_version(ApiKey.PRODUCE, version) >= 2]
    assert flexible[0] == pure_modules["plain_produce_cy"].FIRST_FLEXIBLE_VERSION == 9


FOLLOWER = 7


def lead(asking: Asking, *in_sync: int, topic: str = "t", min_in_sync: int = 1) -> Partition:
    """Let this broker lead the topic's partition, which has another replica."""
    services = asking.broker.services
    here = services.config.node_id
    partition = services.partitions.get(topic, 0)
    partition.log.config = replace(partition.log.config, min_insync_replicas=min_in_sync)
    rules = ReplicationRules(here, 30_000, services.clock.now_ms, lambda *_: True, lambda *_: None)
    partition.become_leader(PartitionState(0, here, 1, [here, FOLLOWER], [here, *in_sync], 1), rules)
    return partition


def later(dispatcher: Dispatcher, asking: Asking, version: int, *values: bytes, **more: Any) -> Pending[Any] | None:
    """Return the lane's pending answer to a request with acks=all; None if it leaves the request."""
    frame = frame_of(ApiKey.PRODUCE, version, produce(batch(*values or (b"a",)), **{"acks": -1, **more}))
    assert dispatcher.plain_lane is not None
    found = dispatcher.plain_lane.answer_later(memoryview(frame), asking.client)
    assert found is None or isinstance(found, Pending)
    return found


def fetched(partition: Partition, offset: int) -> None:
    partition.follower_fetched(FOLLOWER, offset, log_start_offset=0, broker_epoch=1)


@pytest.mark.parametrize("version", VERSIONS)
async def test_an_answer_to_acks_all_waits_until_the_replicas_in_sync_have_the_records(
    asking: Asking, dispatcher: Dispatcher, version: int
) -> None:
    partition = lead(asking, FOLLOWER)
    answers = [later(dispatcher, asking, version, *values) for values in ((b"a",), (b"b", b"c"))]
    assert [answer is not None and answer.is_complete for answer in answers] == [False, False]
    fetched(partition, 1)
    assert [answer is not None and answer.is_complete for answer in answers] == [True, False]
    fetched(partition, 3)
    told = [answer.result() for answer in answers if answer is not None]
    assert [len(each) for each in told] == [1, 1]
    assert offsets(version, [each[0] for each in told]) == [(0, 0), (0, 1)]
    counters = asking.broker.services.metrics.topics["t"]
    assert (counters.produce_requests, counters.messages_in) == (2, 3)
    assert asking.client.request_counts[ApiKey.PRODUCE, version] == 2


@pytest.mark.parametrize("version", [3, 8, 9, 11])
async def test_the_dispatcher_gives_requests_with_acks_all_to_the_lane(
    asking: Asking, dispatcher: Dispatcher, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = lead(asking, FOLLOWER)
    monkeypatch.setattr(dispatcher, "respond", lambda *_: pytest.fail("the handler was asked"))
    frame = frame_of(ApiKey.PRODUCE, version, produce(batch(b"a"), acks=-1))
    outcome = dispatcher.answer(memoryview(frame), asking.client)
    assert isinstance(outcome, Pending)
    fetched(partition, 1)
    assert offsets(version, [bytes(outcome.result()[0])]) == [(0, 0)]


@pytest.mark.parametrize("version", [3, 9, 10, 11])
async def test_records_that_are_not_replicated_are_refused(
    asking: Asking, dispatcher: Dispatcher, version: int
) -> None:
    partition = lead(asking, FOLLOWER)
    answer = later(dispatcher, asking, version)
    assert answer is not None
    partition.become_follower(PartitionState(0, FOLLOWER, 2, [FOLLOWER], [FOLLOWER], 2))
    assert offsets(version, [bytes(answer.result()[0])]) == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, 0)]
    partition = lead(asking, FOLLOWER, topic="others")
    answer = later(dispatcher, asking, version, topic="others")
    assert answer is not None
    partition.give_up_late(trio.current_time() + 2)
    assert offsets(version, [bytes(answer.result()[0])]) == [(ErrorCode.REQUEST_TIMED_OUT, 0)]


async def test_an_answer_to_acks_all_without_followers_in_sync_comes_at_once(
    asking: Asking, dispatcher: Dispatcher
) -> None:
    partition = lead(asking)
    partition.leadership.followers.clear()  # type: ignore[union-attr]
    frame = frame_of(ApiKey.PRODUCE, 8, produce(batch(b"a"), acks=-1))
    assert dispatcher.plain_lane is not None
    found = dispatcher.plain_lane.answer_later(memoryview(frame), asking.client)
    assert isinstance(found, list)
    assert offsets(8, found) == [(0, 0)]


@pytest.mark.parametrize(
    "more", [{"acks": 1}, {"acks": 0}, {"acks": 2}, {"transactional_id": "x"}, {"topic": "others"}, {"partition": 1}]
)
async def test_requests_whose_answers_cannot_wait_are_left_to_the_handler(
    asking: Asking, dispatcher: Dispatcher, more: dict[str, Any]
) -> None:
    partition = lead(asking, FOLLOWER)
    assert later(dispatcher, asking, 8, **more) is None
    assert partition.log.log_end_offset == 0


async def test_too_few_replicas_in_sync_are_reported_by_the_handler(asking: Asking, dispatcher: Dispatcher) -> None:
    partition = lead(asking, min_in_sync=2)
    assert later(dispatcher, asking, 8) is None
    assert partition.log.log_end_offset == 0
    frame = frame_of(ApiKey.PRODUCE, 8, produce(batch(b"a"), acks=-1))
    assert offsets(8, [await answered(dispatcher, asking, frame)]) == [(ErrorCode.NOT_ENOUGH_REPLICAS, -1)]
