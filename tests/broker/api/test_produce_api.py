"""Produce: what is appended, what is refused and how, and the short cut that must answer as the handler does."""

from __future__ import annotations

import random
from typing import Any

import pytest

from gregor.broker.api.dispatch import Dispatcher
from gregor.broker.api.handlers.produce import handle_produce
from gregor.protocol.apis import ApiKey
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from gregor.protocol.records.compression import Codec
from tests.asking import Asking
from tests.broker.api.log_requests import (
    answered,
    answered_now,
    batch,
    fetch,
    fetched,
    frame_of,
    message_set,
    produce,
    produced,
    response_of,
    values_of,
)

SHORT_CUT_VERSIONS = range(3, 12)


@pytest.fixture
def topic(asking: Asking) -> str:
    """The name of a topic with two partitions."""
    return asking.broker.services.metadata.create_topic("t", partitions=2).name


@pytest.mark.parametrize("version", range(12))
async def test_every_version_appends(asking: Asking, topic: str, version: int) -> None:
    data = batch(b"a", b"b") if version >= 3 else message_set(1 if version == 2 else 0, b"a", b"b")
    answers = [await produced(asking, produce(bytearray(data)), version) for _ in range(2)]
    assert [(answer.error_code, answer.base_offset) for answer in answers] == [(0, 0), (0, 2)]
    (read,) = await fetched(asking, fetch((0, 0)))
    assert await values_of(read) == [(0, b"a"), (1, b"b"), (2, b"a"), (3, b"b")]


@pytest.mark.parametrize(
    ("request_", "error", "log_start_offset"),
    [
        (produce(batch(b"a"), "none"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
        (produce(batch(b"a"), partition=2), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
        (produce(batch(b"a"), acks=2), ErrorCode.INVALID_REQUIRED_ACKS, -1),
        (produce(batch(b"a")[:-1]), ErrorCode.INVALID_RECORD, -1),
        (produce(batch(b"a") * 2), ErrorCode.INVALID_RECORD, -1),
        (produce(message_set(1, b"a")), ErrorCode.INVALID_RECORD, -1),
        (produce(batch(b"a") + b"\0"), ErrorCode.NONE, 0),
        (produce(batch(b"a", base_offset=7)), ErrorCode.INVALID_RECORD, 0),
        (produce(batch(bytes(2 << 20))), ErrorCode.MESSAGE_TOO_LARGE, -1),
    ],
)
async def test_what_is_refused_and_how(
    asking: Asking, topic: str, request_: ProduceRequest, error: ErrorCode, log_start_offset: int
) -> None:
    answer = await produced(asking, request_)
    assert (answer.error_code, answer.log_start_offset) == (error, log_start_offset)
    assert answer.base_offset == (-1 if error else 0)


async def test_damage_is_refused_and_nothing_stored(asking: Asking, topic: str) -> None:
    damaged = batch(b"a", b"b")
    damaged[-1] ^= 1
    assert (await produced(asking, produce(damaged))).error_code == ErrorCode.CORRUPT_MESSAGE
    assert asking.broker.services.partitions.get("t", 0).log.log_end_offset == 0


async def test_a_bad_partition_hinders_no_good_one(asking: Asking, topic: str) -> None:
    parts = [PartitionProduceData(index=index, records=memoryview(batch(b"a"))) for index in (0, 9, 1)]
    request = ProduceRequest(acks=1, topic_data=[TopicProduceData(name="t", partition_data=parts)])
    response = await asking.ask(handle_produce, request, 7)
    assert [p.error_code for p in response.responses[0].partition_responses] == [0, 3, 0]


async def test_old_clients_get_no_error_for_nothing(asking: Asking, topic: str) -> None:
    answer = await produced(asking, produce(b""), 2)
    assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, -1)


async def test_internal_topics_are_not_written_to(asking: Asking) -> None:
    asking.broker.services.metadata.ensure_topic("__consumer_offsets")
    answer = await produced(asking, produce(batch(b"a"), "__consumer_offsets"))
    assert answer.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


async def test_a_large_compressed_batch_is_validated_beside_the_loop(asking: Asking, topic: str) -> None:
    noise = bytes(range(256)) * 400
    values = [bytes((byte * 7 + index) % 256 for byte in noise) for index in range(4)]
    data = batch(*values, codec=Codec.SNAPPY)
    answer = await produced(asking, produce(data))
    assert answer.error_code == ErrorCode.NONE


# --- the short cut


@pytest.fixture
async def dispatcher(asking: Asking, topic: str) -> Dispatcher:
    """A dispatcher that has heard of its client, as after any first request."""
    dispatcher = Dispatcher(asking.broker.services)
    await answered(dispatcher, asking, frame_of(ApiKey.PRODUCE, 3, produce(batch(b"first"), partition=1)))
    return dispatcher


@pytest.mark.parametrize("version", SHORT_CUT_VERSIONS)
@pytest.mark.parametrize(("size_bytes", "codec"), [(1, Codec.NONE), (100, Codec.LZ4), (20_000, Codec.NONE)])
async def test_the_short_cut_answers_as_the_handler(
    asking: Asking, dispatcher: Dispatcher, version: int, size_bytes: int, codec: Codec
) -> None:
    data = batch(bytes(size_bytes), b"b", codec=codec)
    now = answered_now(dispatcher, asking, frame_of(ApiKey.PRODUCE, version, produce(data)))
    assert now is not None
    later = await answered(dispatcher, asking, frame_of(ApiKey.PRODUCE, version, produce(data)))
    first, second = (response_of(ApiKey.PRODUCE, version, answer) for answer in (now, later))
    (partition,) = second.responses[0].partition_responses
    assert partition.base_offset == 2
    partition.base_offset = 0
    assert first == second
    (read,) = await fetched(asking, fetch((0, 0)))
    assert [offset for offset, _ in await values_of(read)] == [0, 1, 2, 3]


@pytest.mark.parametrize("version", SHORT_CUT_VERSIONS)
async def test_the_short_cut_says_nothing_where_no_answer_is_expected(
    asking: Asking, dispatcher: Dispatcher, version: int
) -> None:
    assert answered_now(dispatcher, asking, frame_of(ApiKey.PRODUCE, version, produce(batch(b"a"), acks=0))) == b""
    assert asking.broker.services.partitions.get("t", 0).log.log_end_offset == 1


def corrupt(data: bytearray) -> bytearray:
    data[-1] ^= 1
    return data


UNCOMMON: dict[str, Any] = {
    "unknown topic": produce(batch(b"a"), "none"),
    "long topic": produce(batch(b"a"), "x" * 249),
    "unknown partition": produce(batch(b"a"), partition=7),
    "acks": produce(batch(b"a"), acks=2),
    "transaction": produce(batch(b"a"), transactional_id="x"),
    "no topic": ProduceRequest(acks=1),
    "two topics": ProduceRequest(acks=1, topic_data=[*produce(batch(b"a")).topic_data] * 2),
    "no records": produce(b""),
    "old format": produce(message_set(1, b"a")),
    "compressed, and large": produce(batch(random.Random(1).randbytes(70_000), codec=Codec.GZIP)),
    "two batches": produce(batch(b"a") * 2),
    "cut": produce(batch(b"a")[:-1]),
    "tail": produce(batch(b"a") + b"x"),
    "corrupt": produce(corrupt(batch(b"a"))),
    "too large": produce(batch(bytes(2 << 20))),
}


@pytest.mark.parametrize("version", SHORT_CUT_VERSIONS)
@pytest.mark.parametrize("name", UNCOMMON)
async def test_the_short_cut_leaves_alone_what_is_not_common(
    asking: Asking, dispatcher: Dispatcher, version: int, name: str
) -> None:
    frame = frame_of(ApiKey.PRODUCE, version, UNCOMMON[name])
    assert answered_now(dispatcher, asking, frame) is None
    assert asking.broker.services.partitions.get("t", 0).log.log_end_offset == 0


@pytest.mark.parametrize("version", SHORT_CUT_VERSIONS)
async def test_the_short_cut_takes_zstd_from_version_7_on(asking: Asking, dispatcher: Dispatcher, version: int) -> None:
    frame = frame_of(ApiKey.PRODUCE, version, produce(batch(b"a", codec=Codec.ZSTD)))
    assert (answered_now(dispatcher, asking, frame) is not None) == (version >= 7)


@pytest.mark.parametrize("version", SHORT_CUT_VERSIONS)
async def test_the_short_cut_takes_no_cut_frame(asking: Asking, dispatcher: Dispatcher, version: int) -> None:
    frame = frame_of(ApiKey.PRODUCE, version, produce(batch(b"a")))
    for length in range(len(frame)):
        assert answered_now(dispatcher, asking, frame[:length]) is None
    assert asking.broker.services.partitions.get("t", 0).log.log_end_offset == 0


async def test_the_short_cut_waits_for_a_new_client_id_to_be_noted(asking: Asking, dispatcher: Dispatcher) -> None:
    frame = frame_of(ApiKey.PRODUCE, 8, produce(batch(b"a")), client_id="another")
    assert answered_now(dispatcher, asking, frame) is None
    await answered(dispatcher, asking, frame)
    assert answered_now(dispatcher, asking, frame_of(ApiKey.PRODUCE, 8, produce(batch(b"a")), client_id="another"))


async def test_requests_are_counted_by_partition_and_failures_apart(asking: Asking, topic: str) -> None:
    """Kafka's TotalProduceRequestsPerSec and FailedProduceRequestsPerSec: what a client may expect is no failure."""
    dispatcher = Dispatcher(asking.broker.services)
    await answered(dispatcher, asking, frame_of(ApiKey.PRODUCE, 3, produce(batch(b"handler"))))
    assert answered_now(dispatcher, asking, frame_of(ApiKey.PRODUCE, 3, produce(batch(b"short cut"))))
    for request in (produce(batch(bytes(2 << 20))), produce(batch(b"a")[:-1]), produce(batch(b"a"), "none")):
        await produced(asking, request)
    counters = asking.broker.services.metrics.topics
    assert (counters["t"].produce_requests, counters["t"].failed_produce_requests) == (4, 1)
    assert "none" not in counters
