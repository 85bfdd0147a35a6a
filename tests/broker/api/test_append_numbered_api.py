"""AppendNumbered: batches of a mirror keep their offsets, are accepted twice, and cannot overwrite records."""

from __future__ import annotations

import pytest

from gregor.broker.api.handlers.append_numbered import handle_append_numbered
from gregor.broker.api.handlers.produce import handle_produce
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages.append_numbered import (
    AppendNumberedPartition,
    AppendNumberedPartitionResponse,
    AppendNumberedRequest,
    AppendNumberedTopic,
)
from gregor.protocol.records import v0, v1, v2
from gregor.protocol.records.batches import iter_batches
from gregor.protocol.records.compression import Codec
from gregor.protocol.records.record import Record
from gregor.protocol.records.tag_runs import TagRun, TagRuns
from gregor.protocol.records.tagged_batches import decode_tagged_batches
from tests.asking import Asking
from tests.broker.api.log_requests import NOW_MS, batch, bytes_of, fetch, fetched, produce, values_of


@pytest.fixture
def topic(asking: Asking) -> str:
    return asking.broker.services.metadata.create_topic("t", partitions=1).name


def numbered(offset: int, *values: bytes, **more: object) -> bytes:
    records = [Record(offset + index, NOW_MS, None, value) for index, value in enumerate(values)]
    return v2.build_batch(records, base_offset=offset, leader_epoch=77, **more)  # type: ignore[arg-type]


async def append(
    asking: Asking, data: bytes, topic: str = "t", tag_runs: bytes | None = None
) -> AppendNumberedPartitionResponse:
    part = AppendNumberedPartition(index=0, records=data, tag_runs=tag_runs)
    request = AppendNumberedRequest(topics=[AppendNumberedTopic(name=topic, partitions=[part])])
    response = await asking.ask(handle_append_numbered, request, 0)
    answer: AppendNumberedPartitionResponse = response.topics[0].partitions[0]
    return answer


async def test_append_numbered_keeps_offsets_and_ignores_repeated_batches(asking: Asking, topic: str) -> None:
    first = numbered(100, b"a", b"b")
    for _ in range(2):
        answer = await append(asking, first)
        assert (answer.error_code, answer.log_start_offset, answer.log_end_offset) == (0, 100, 102)
    answer = await append(asking, first + numbered(105, b"c"))
    assert (answer.error_code, answer.log_end_offset) == (0, 106)
    (read,) = await fetched(asking, fetch((0, 100)))
    assert await values_of(read) == [(100, b"a"), (101, b"b"), (105, b"c")]
    (read,) = await fetched(asking, fetch((0, 100)))
    epochs = {found.leader_epoch for found in iter_batches(await bytes_of(read))}
    assert epochs == {asking.broker.services.partitions.get("t", 0).leader_epoch}
    await asking.ask(handle_produce, produce(batch(b"d")), 7)
    assert (await append(asking, b"")).log_end_offset == 107


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (numbered(9, b"over", b"lap"), ErrorCode.OFFSET_OUT_OF_RANGE),
        (numbered(10, b"a", is_transactional=True, producer_id=3), ErrorCode.INVALID_RECORD),
        (numbered(10, b"a", is_control=True, producer_id=3), ErrorCode.INVALID_RECORD),
        (numbered(10, b"a")[:-1] + b"?", ErrorCode.CORRUPT_MESSAGE),
        (b"\0" * 40, ErrorCode.CORRUPT_MESSAGE),
    ],
    ids=["overlap", "transactional", "control", "damaged", "no batch"],
)
async def test_a_refused_append_leaves_the_log_unchanged(
    asking: Asking, topic: str, data: bytes, code: ErrorCode
) -> None:
    await append(asking, numbered(0, *[b"v"] * 10))
    answer = await append(asking, data)
    assert (ErrorCode(answer.error_code), answer.log_end_offset) == (code, 10)


async def test_append_numbered_refuses_unknown_and_internal_topics(asking: Asking) -> None:
    assert (await append(asking, b"", "nowhere")).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    asking.broker.services.metadata.create_topic("__consumer_offsets", partitions=1)
    assert (await append(asking, b"", "__consumer_offsets")).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


async def test_append_numbered_takes_receipt_times_from_tags_and_computes_the_other_tags(
    asking: Asking, topic: str
) -> None:
    first, second = numbered(0, b"a"), numbered(1, b"b", codec=Codec.GZIP)
    wrapped = v1.build_message_set([Record(offset, NOW_MS, b"k", b"v") for offset in (2, 3)], codec=Codec.GZIP)
    at = len(first) + len(second)
    runs = TagRuns([TagRun(0, 7_000), TagRun(len(first), 8_000, keyed=False), TagRun(at, 9_000, False, 3, 1)]).encode()
    assert (await append(asking, first, tag_runs=TagRuns([TagRun(0, 7_000)]).encode())).error_code == 0
    assert (await append(asking, first + second + wrapped, tag_runs=runs)).log_end_offset == 4
    assert (await append(asking, numbered(4, b"c"))).log_end_offset == 5
    (answer,) = await fetched(asking, fetch((0, 0), gregor_with_tags=True, gregor_as_stored=True), 12)
    tags = dict(decode_tagged_batches(answer.gregor_batch_tags or b""))
    assert [tags[offset].timestamp_ms for offset in (0, 1, 2)] == [7_000, 8_000, 9_000]
    assert (tags[4].timestamp_ms or 0) > 9_000, "no tags: it is received now"
    assert [tags[offset].keyed for offset in (1, 2)] == [True, True]
    assert tags[2].message_count == 2


@pytest.mark.parametrize("tag_runs", [b"?", TagRuns([TagRun(5), TagRun(5)]).encode()])
async def test_append_numbered_refuses_invalid_tags(asking: Asking, topic: str, tag_runs: bytes) -> None:
    answer = await append(asking, numbered(0, b"a"), tag_runs=tag_runs)
    assert (ErrorCode(answer.error_code), answer.log_end_offset) == (ErrorCode.INVALID_RECORD, 0)


async def test_old_formats_are_appended_as_they_are_and_fetched_as_stored_on_request(
    asking: Asking, topic: str
) -> None:
    old = v0.build_message_set([Record(20, -1, b"k", b"a"), Record(25, -1, b"k", b"b")])
    assert (await append(asking, old)).log_end_offset == 26
    (converted,) = await fetched(asking, fetch((0, 20)), version=12)
    assert {found.magic for found in iter_batches(await bytes_of(converted))} == {2}
    (stored,) = await fetched(asking, fetch((0, 20), gregor_as_stored=True), version=12)
    assert await bytes_of(stored) == old
