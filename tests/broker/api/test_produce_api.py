"""Produce: appended and refused batches, errors, and frames of plain batches."""

from __future__ import annotations

from random import Random

import pytest

from gregor.broker.api.dispatch import Dispatcher
from gregor.broker.api.handlers.produce import handle_produce
from gregor.broker.server.client_connection import UnanswerableError
from gregor.broker.server.outcome import result_of
from gregor.protocol.apis import ApiKey
from gregor.protocol.errors import DecodeError, ErrorCode
from gregor.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from gregor.protocol.records.compression import Codec
from tests.asking import Asking
from tests.broker.api.log_requests import (
    answered,
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

VERSIONS_OF_V2 = range(3, 12)


@pytest.fixture
def topic(asking: Asking) -> str:
    """Return the name of a topic with two partitions."""
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
async def test_error_codes_of_refused_batches(
    asking: Asking, topic: str, request_: ProduceRequest, error: ErrorCode, log_start_offset: int
) -> None:
    answer = await produced(asking, request_)
    assert (answer.error_code, answer.log_start_offset) == (error, log_start_offset)
    assert answer.base_offset == (-1 if error else 0)


@pytest.mark.parametrize("version", [2, 3, 11])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY])
@pytest.mark.parametrize("size", [2_000, 300_000], ids=["small", "large"])
async def test_a_batch_larger_than_a_segment_is_refused(asking: Asking, version: int, codec: Codec, size: int) -> None:
    """The size on the wire counts; a large compressed batch is checked in a worker thread."""
    noise = Random(1).randbytes(size)
    data = batch(noise, codec=codec) if version >= 3 else message_set(1, noise, codec=codec)
    for name, segment_bytes in (("exact", len(data)), ("short", len(data) - 1)):
        asking.broker.services.metadata.create_topic(name, configs={"segment.bytes": str(segment_bytes)})
    assert (await produced(asking, produce(bytearray(data), "exact"), version)).error_code == ErrorCode.NONE
    answer = await produced(asking, produce(bytearray(data), "short"), version)
    assert (answer.error_code, answer.log_start_offset) == (ErrorCode.RECORD_LIST_TOO_LARGE, -1)
    assert asking.broker.services.partitions.get("short", 0).log.log_end_offset == 0


async def test_damage_is_refused_and_nothing_stored(asking: Asking, topic: str) -> None:
    damaged = batch(b"a", b"b")
    damaged[-1] ^= 1
    assert (await produced(asking, produce(damaged))).error_code == ErrorCode.CORRUPT_MESSAGE
    assert asking.broker.services.partitions.get("t", 0).log.log_end_offset == 0


async def test_an_unknown_partition_does_not_stop_appends_to_the_others(asking: Asking, topic: str) -> None:
    parts = [PartitionProduceData(index=index, records=memoryview(batch(b"a"))) for index in (0, 9, 1)]
    request = ProduceRequest(acks=1, topic_data=[TopicProduceData(name="t", partition_data=parts)])
    response = await asking.ask(handle_produce, request, 7)
    assert [p.error_code for p in response.responses[0].partition_responses] == [0, 3, 0]


async def test_produce_v2_accepts_empty_records(asking: Asking, topic: str) -> None:
    answer = await produced(asking, produce(b""), 2)
    assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, -1)


async def test_internal_topics_are_not_written_to(asking: Asking) -> None:
    asking.broker.services.metadata.ensure_topic("__consumer_offsets")
    answer = await produced(asking, produce(batch(b"a"), "__consumer_offsets"))
    assert answer.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


async def test_a_large_compressed_batch_that_a_worker_thread_validates_is_accepted(asking: Asking, topic: str) -> None:
    noise = bytes(range(256)) * 400
    values = [bytes((byte * 7 + index) % 256 for byte in noise) for index in range(4)]
    data = batch(*values, codec=Codec.SNAPPY)
    answer = await produced(asking, produce(data))
    assert answer.error_code == ErrorCode.NONE


# --- frames


@pytest.fixture
async def dispatcher(asking: Asking, topic: str) -> Dispatcher:
    return Dispatcher(asking.broker.services)


@pytest.mark.parametrize("version", VERSIONS_OF_V2)
@pytest.mark.parametrize(("size_bytes", "codec"), [(1, Codec.NONE), (100, Codec.LZ4), (20_000, Codec.NONE)])
async def test_frames_of_plain_batches_are_appended_in_every_version(
    asking: Asking, dispatcher: Dispatcher, version: int, size_bytes: int, codec: Codec
) -> None:
    data = batch(bytes(size_bytes), b"b", codec=codec)
    for base_offset in (0, 2):
        answer = await answered(dispatcher, asking, frame_of(ApiKey.PRODUCE, version, produce(data)))
        (topic,) = response_of(ApiKey.PRODUCE, version, answer).responses
        log_start_offset = 0 if version >= 5 else -1
        told = PartitionProduceResponse(base_offset=base_offset, log_start_offset=log_start_offset)
        assert (topic.name, topic.partition_responses) == ("t", [told])
    (read,) = await fetched(asking, fetch((0, 0)))
    assert [offset for offset, _ in await values_of(read)] == [0, 1, 2, 3]


@pytest.mark.parametrize("version", VERSIONS_OF_V2)
@pytest.mark.parametrize("is_good", [True, False])
async def test_produce_with_acks_0_has_no_answer_and_an_error_closes_the_connection(
    asking: Asking, dispatcher: Dispatcher, version: int, is_good: bool
) -> None:
    frame = frame_of(ApiKey.PRODUCE, version, produce(batch(b"a"), acks=0, partition=0 if is_good else 7))
    if is_good:
        assert await result_of(dispatcher.answer(frame, asking.client)) is None
    else:
        with pytest.raises(UnanswerableError):
            await result_of(dispatcher.answer(frame, asking.client))
    assert asking.broker.services.partitions.get("t", 0).log.log_end_offset == is_good


@pytest.mark.parametrize("version", VERSIONS_OF_V2)
async def test_zstd_batches_are_refused_before_produce_version_7(
    asking: Asking, dispatcher: Dispatcher, version: int
) -> None:
    frame = frame_of(ApiKey.PRODUCE, version, produce(batch(b"a", codec=Codec.ZSTD)))
    response = response_of(ApiKey.PRODUCE, version, await answered(dispatcher, asking, frame))
    told = ErrorCode.NONE if version >= 7 else ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert response.responses[0].partition_responses[0].error_code == told


@pytest.mark.parametrize("version", VERSIONS_OF_V2)
async def test_truncated_produce_frames_are_decode_errors(asking: Asking, dispatcher: Dispatcher, version: int) -> None:
    frame = frame_of(ApiKey.PRODUCE, version, produce(batch(b"a")))
    for length in range(len(frame)):
        with pytest.raises(DecodeError):
            dispatcher.answer(frame[:length], asking.client)
    assert asking.broker.services.partitions.get("t", 0).log.log_end_offset == 0


async def test_the_metrics_count_produce_requests_and_failed_produce_requests(asking: Asking, topic: str) -> None:
    """Kafka's TotalProduceRequestsPerSec and FailedProduceRequestsPerSec: expected errors do not count."""
    dispatcher = Dispatcher(asking.broker.services)
    for version in (3, 9):
        await answered(dispatcher, asking, frame_of(ApiKey.PRODUCE, version, produce(batch(b"a"))))
    for request in (produce(batch(bytes(2 << 20))), produce(batch(b"a")[:-1]), produce(batch(b"a"), "none")):
        await produced(asking, request)
    counters = asking.broker.services.metrics.topics
    assert (counters["t"].produce_requests, counters["t"].failed_produce_requests) == (4, 1)
    assert "none" not in counters
