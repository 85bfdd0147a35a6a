"""The lane for plain Fetch requests: the same answers as from the handler, and all other requests are left to it."""

from __future__ import annotations

import random
from types import ModuleType
from typing import Any

import pytest

from gregor.broker.api.dispatch import Dispatcher
from gregor.broker.api.handlers.quotas import handle_alter_client_quotas
from gregor.broker.server.client_connection import ClientConnection
from gregor.broker.server.outcome import result_of
from gregor.protocol.apis import ApiKey
from gregor.protocol.errors import BrokerError, ErrorCode
from gregor.protocol.messages import alter_client_quotas
from gregor.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from gregor.protocol.messages.metadata import MetadataRequest
from gregor.protocol.records.compression import Codec
from gregor.storage.log.log_config import LogConfig
from gregor.storage.log.partition_log import PartitionLog
from tests.asking import Asking, a_client
from tests.broker.api.fetch_lanes import two_dispatchers, use_pure_lane
from tests.broker.api.log_requests import (
    answered,
    batch,
    bytes_of_parts,
    fetch,
    frame_of,
    message_set,
    produce,
    produced,
)

VERSIONS = range(12)
END = 120
"""The number of records in each partition of t."""


@pytest.fixture(params=["compiled", "pure python"])
def build(request: pytest.FixtureRequest, pure_modules: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch) -> str:
    """Run a test with both builds of the lane."""
    if request.param == "pure python":
        use_pure_lane(pure_modules, monkeypatch)
    return str(request.param)


class TwoWays:
    """A broker's dispatchers with and without the lane, each with a client of its own."""

    def __init__(self, asking: Asking) -> None:
        self.asking = asking
        self.with_lane, self.handler = two_dispatchers(asking.broker.services)
        self.other_client = a_client()

    async def introduce(self) -> None:
        """Send the first request of each client."""
        hello = frame_of(ApiKey.METADATA, 9, MetadataRequest(topics=[]))
        await answered(self.with_lane, self.asking, hello)
        await answered(self.handler, Asking(self.asking.broker, self.other_client), hello)

    def plan(self, frame: memoryview) -> list[Any] | None:
        """Return the answer of the lane."""
        lane, client = self.with_lane._plain_fetch, self.asking.client
        assert lane is not None
        start = 10 + max(int.from_bytes(frame[8:10], "big", signed=True), 0)
        return lane.answer(frame, start, int.from_bytes(frame[2:4], "big"), 77, client)

    async def handled(self, frame: memoryview) -> bytes:
        """Return the answer of the handler."""
        return await sent(self.handler, frame, self.other_client)


async def sent(dispatcher: Dispatcher, frame: memoryview, client: ClientConnection) -> bytes:
    answer = await result_of(dispatcher.answer(frame, client))
    assert answer is not None
    return await bytes_of_parts(list(answer))


@pytest.fixture
async def ways(asking: Asking, build: str) -> TwoWays:
    """Provide the topics t (batches of different sizes in several segments), mixed, old and empty."""
    metadata = asking.broker.services.metadata
    metadata.create_topic("t", partitions=3, configs={"segment.bytes": "40000", "index.interval.bytes": "1500"})
    for name in ("mixed", "old", "empty"):
        metadata.create_topic(name, partitions=1)
    chance = random.Random(3)
    for partition in range(3):
        count = 0
        while count < END:
            values = [chance.randbytes(chance.choice((5, 100, 900))) for _ in range(chance.randint(1, 40))][
                : END - count
            ]
            count += len(values)
            await produced(asking, produce(batch(*values), partition=partition))
    await produced(asking, produce(message_set(1, b"a", b"b"), "old"), 2)
    await produced(asking, produce(batch(b"a" * 500), "mixed"))
    await produced(asking, produce(batch(*[b"b" * 500] * 9, codec=Codec.GZIP), "mixed"))
    await produced(asking, produce(message_set(1, b"c"), "mixed"), 2)
    found = TwoWays(asking)
    await found.introduce()
    return found


def random_request(chance: random.Random) -> FetchRequest:
    """Return a request that is often plain."""

    def wanted(partition: int) -> FetchPartition:
        offset = chance.randrange(END) if chance.random() < 0.9 else chance.choice((-1, END, END + 1, 10**12))
        return FetchPartition(
            partition=partition,
            current_leader_epoch=chance.choice((-1, -1, -1, 0)) if chance.random() < 0.97 else 1,
            fetch_offset=offset,
            partition_max_bytes=chance.choice((10**6, 10**6, 10**6, 20_000, 3000, 100, 0)),
        )

    topics = [FetchTopic(topic="t", partitions=[wanted(p) for p in chance.sample(range(3), chance.randint(1, 3))])]
    if chance.random() < 0.3:
        name = chance.choice(("empty", "mixed", "old", "unknown"))
        offset = chance.choice((0, 0, 1, 5))
        other = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=chance.choice((10**6, 700)))
        topics.insert(chance.randint(0, 1), FetchTopic(topic=name, partitions=[other]))
    return FetchRequest(
        replica_id=-1,
        min_bytes=chance.choice((0, 1, 1, 1, 5000)),
        max_bytes=chance.choice((50 << 20, 50 << 20, 50 << 20, 30_000, 1000, 0)),
        isolation_level=chance.choice((0, 0, 0, 1)),
        topics=topics,
    )


@pytest.mark.parametrize("version", VERSIONS)
async def test_the_lane_and_the_handler_give_the_same_answers(ways: TwoWays, version: int) -> None:
    chance = random.Random(version)
    taken = 0
    for _ in range(60):
        request = random_request(chance)
        frame = frame_of(ApiKey.FETCH, version, request)
        answer = ways.plan(frame)
        expected = await ways.handled(frame)
        if answer is not None:
            taken += 1
            assert await bytes_of_parts(answer) == expected, request
        assert await sent(ways.with_lane, frame, ways.asking.client) == expected
    assert taken > 15


@pytest.mark.parametrize("version", [1, 3, 11])
async def test_logs_of_an_earlier_start_are_read_alike(ways: TwoWays, version: int) -> None:
    """Batches that this process has not written are checked, and files are opened, by the first read."""
    log = ways.asking.broker.services.partitions.get("t", 0).log
    log.segment_list.close()
    for segment in log.segments:
        segment.apply_summary(segment._summary())
    frame = frame_of(ApiKey.FETCH, version, fetch((0, 5)))
    assert ways.plan(frame) is None
    expected = await ways.handled(frame)
    answer = ways.plan(frame)
    assert answer is not None
    assert await bytes_of_parts(answer) == expected


async def test_counters_are_those_of_the_handler(ways: TwoWays) -> None:
    services = ways.asking.broker.services
    topic = services.metrics.topics["t"]

    def counted() -> tuple[int, ...]:
        return (
            topic.fetch_requests,
            topic.failed_fetch_requests,
            topic.bytes_out,
            topic.fetch_conversion.record_count,
            topic.fetch_conversion.stored_bytes,
            services.metrics.fetch_conversions.request_count,
        )

    for version in (1, 3, 4, 11):
        frame = frame_of(ApiKey.FETCH, version, fetch((0, 5), (2, 50), (1, END)))
        differences = []
        for client, dispatcher in ((ways.other_client, ways.handler), (ways.asking.client, ways.with_lane)):
            before = counted()
            await sent(dispatcher, frame, client)
            differences.append([after - was for after, was in zip(counted(), before, strict=True)])
            assert client.request_counts[ApiKey.FETCH, version] == 1
        assert differences[0] == differences[1]
    assert ways.asking.client.down_conversion.record_count == ways.other_client.down_conversion.record_count > 0
    assert ways.asking.client.down_conversion.cpu_ns > 0


OTHERS: dict[str, tuple[int, FetchRequest]] = {
    "nothing to return": (11, fetch((0, END))),
    "fewer bytes than wanted": (11, fetch((0, 0), min_bytes=1 << 20)),
    "unknown topic": (11, fetch((0, 0), topic="unknown")),
    "unknown partition": (11, fetch((0, 0), (7, 0))),
    "offset out of range": (11, fetch((0, 0), (1, END + 1))),
    "a follower": (11, fetch((0, 0), replica_id=1)),
    "a session": (11, fetch((0, 0), session_epoch=0)),
    "wrong isolation level": (11, fetch((0, 0), isolation_level=2)),
    "negative limit": (11, fetch((0, 0), partition_max_bytes=-1)),
    "a limit below the first batch": (1, fetch((0, 0), partition_max_bytes=20)),
    "compressed batches to convert": (3, fetch((0, 1), topic="mixed")),
    "batches to convert up": (4, fetch((0, 0), topic="old")),
    "old batches": (3, fetch((0, 0), topic="old")),
    "a flexible version": (12, fetch((0, 0))),
}


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
async def test_other_requests_are_left_to_the_handler(ways: TwoWays, other: tuple[int, FetchRequest]) -> None:
    version, request = other
    before = ways.asking.client.request_counts[ApiKey.FETCH, version]
    assert ways.plan(frame_of(ApiKey.FETCH, version, request)) is None
    assert ways.asking.client.request_counts[ApiKey.FETCH, version] == before
    for segment in ways.asking.broker.services.partitions.get("t", 0).log.segments:
        assert segment._file is None or not segment._file.is_held


async def test_disabled_conversions_and_failed_disks_are_left_to_the_handler(
    ways: TwoWays, monkeypatch: pytest.MonkeyPatch
) -> None:
    services = ways.asking.broker.services
    old, new = (frame_of(ApiKey.FETCH, version, fetch((0, 0))) for version in (3, 11))
    assert ways.plan(old)
    assert ways.plan(new)
    log = services.partitions.get("t", 0).log
    kept = log.config
    log.config = LogConfig(message_downconversion_enable=False)
    assert ways.plan(old) is None
    assert ways.plan(new)
    log.config = LogConfig(compression_type="zstd")
    assert ways.plan(old) is None
    assert ways.plan(new)
    log.config = kept

    def failed(*_: object) -> None:
        raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR)

    monkeypatch.setattr(PartitionLog, "aborted_transactions", failed)
    assert ways.plan(frame_of(ApiKey.FETCH, 11, fetch((0, 0), isolation_level=1))) is None


async def test_requests_under_quotas_are_left_to_the_handler(ways: TwoWays) -> None:
    entity = alter_client_quotas.EntityData(entity_type="client-id", entity_name=None)
    limit = alter_client_quotas.OpData(key="consumer_byte_rate", value=1e9)
    entry = alter_client_quotas.EntryData(entity=[entity], ops=[limit])
    frame = frame_of(ApiKey.FETCH, 11, fetch((0, 0)))
    assert ways.plan(frame)
    await ways.asking.ask(handle_alter_client_quotas, alter_client_quotas.AlterClientQuotasRequest(entries=[entry]))
    assert ways.plan(frame) is None


@pytest.mark.parametrize("version", [3, 11])
async def test_the_first_request_of_a_client_takes_the_lane_and_introduces_the_client(
    ways: TwoWays, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = frame_of(ApiKey.FETCH, version, fetch((0, 0)))
    expected = await ways.handled(frame)

    def refused(*_: object) -> None:
        raise AssertionError("the request was left to the handler")

    monkeypatch.setattr(ways.with_lane, "_handle", refused)
    client = a_client()
    assert await sent(ways.with_lane, frame, client) == expected
    assert client.client_id == "tester"
    assert client.request_counts[ApiKey.FETCH, version] == 1


async def test_a_changed_client_id_is_noted(ways: TwoWays) -> None:
    frame = frame_of(ApiKey.FETCH, 11, fetch((0, 0)))
    other = memoryview(bytes(frame).replace(b"tester", b"TESTER"))
    await sent(ways.with_lane, other, ways.asking.client)
    assert ways.asking.client.client_id == "TESTER"
    await sent(ways.with_lane, frame, ways.asking.client)
    assert ways.asking.client.client_id == "tester"


async def test_damaged_requests_are_answered_as_by_the_handler(ways: TwoWays) -> None:
    chance = random.Random(7)
    taken = 0
    for _ in range(200):
        version = chance.choice(VERSIONS)
        frame = bytearray(frame_of(ApiKey.FETCH, version, fetch((0, 5), (1, 40))))
        frame[chance.randrange(20, len(frame))] = chance.choice((0, 1, 2, 0x7F, 0x80, 0xFF))
        answer = ways.plan(memoryview(frame))
        if answer is not None:
            taken += 1
            assert await bytes_of_parts(answer) == await ways.handled(memoryview(frame))
    assert taken > 50
