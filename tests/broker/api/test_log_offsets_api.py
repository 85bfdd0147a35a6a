"""ListOffsets, OffsetForLeaderEpoch and DeleteRecords."""

from __future__ import annotations

import pytest

from gregor.broker.api.handlers.delete_records import handle_delete_records
from gregor.broker.api.handlers.list_offsets import handle_list_offsets
from gregor.broker.api.handlers.offset_for_leader_epoch import handle_offset_for_leader_epoch
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from gregor.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from gregor.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from gregor.protocol.records import v2
from gregor.protocol.records.record import Record
from tests.asking import Asking
from tests.broker.api.log_requests import NOW_MS, produce, produced

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -3, -4, -5


@pytest.fixture
async def topic(asking: Asking) -> str:
    """Return a topic whose one partition holds times 10, 30, 20 and 40 seconds after NOW_MS at offsets 0 to 3."""
    name = asking.broker.services.metadata.create_topic("t").name
    for seconds in ((10, 30), (20, 40)):
        records = [Record(index, NOW_MS + 1000 * at, None, b"v") for index, at in enumerate(seconds)]
        await produced(asking, produce(bytearray(v2.build_batch(records))))
    return name


async def listed(
    asking: Asking, timestamp: int, version: int = 9, *, times: int = 1, **more: int
) -> ListOffsetsPartitionResponse:
    wanted = ListOffsetsPartition(partition_index=0, timestamp=timestamp, **more)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=[wanted] * times)])
    response = await asking.ask(handle_list_offsets, request, version)
    answer: ListOffsetsPartitionResponse = response.topics[0].partitions[0]
    return answer


@pytest.mark.parametrize(
    ("timestamp", "found"),
    [
        (LATEST, (-1, 4)),
        (EARLIEST, (-1, 0)),
        (MAX_TIMESTAMP, (NOW_MS + 40_000, 3)),
        (EARLIEST_LOCAL, (-1, 0)),
        (LATEST_TIERED, (-1, -1)),
        (0, (NOW_MS + 10_000, 0)),
        (NOW_MS + 15_000, (NOW_MS + 30_000, 1)),
        (NOW_MS + 35_000, (NOW_MS + 40_000, 3)),
        (NOW_MS + 41_000, (-1, -1)),
    ],
)
async def test_list_offsets_finds_the_offset_of_a_timestamp(
    asking: Asking, topic: str, timestamp: int, found: tuple[int, int]
) -> None:
    answer = await listed(asking, timestamp)
    assert (answer.error_code, answer.timestamp, answer.offset) == (0, *found)


@pytest.mark.parametrize(
    ("timestamp", "first_version"),
    [(LATEST, 1), (EARLIEST, 1), (MAX_TIMESTAMP, 7), (EARLIEST_LOCAL, 8), (LATEST_TIERED, 9), (-6, 10)],
)
async def test_list_offsets_refuses_special_timestamps_in_older_versions(
    asking: Asking, topic: str, timestamp: int, first_version: int
) -> None:
    for version in range(1, 10):
        error = ErrorCode.NONE if version >= first_version else ErrorCode.UNSUPPORTED_VERSION
        assert (await listed(asking, timestamp, version)).error_code == error


@pytest.mark.parametrize(
    ("timestamp", "most", "offsets"),
    [(LATEST, 10, [4, 0]), (LATEST, 1, [4]), (EARLIEST, 10, [0]), (0, 10, []), (LATEST, 0, [])],
)
async def test_list_offsets_v0_returns_segment_offsets(
    asking: Asking, topic: str, timestamp: int, most: int, offsets: list[int]
) -> None:
    answer = await listed(asking, timestamp, 0, max_num_offsets=most)
    assert (answer.error_code, answer.old_style_offsets) == (0, offsets)


async def test_list_offsets_refuses_a_duplicate_partition_except_in_version_0(asking: Asking, topic: str) -> None:
    assert (await listed(asking, LATEST, 1, times=2)).error_code == ErrorCode.INVALID_REQUEST
    assert (await listed(asking, LATEST, 0, times=2)).error_code == ErrorCode.NONE


async def test_list_offsets_of_an_unknown_partition_is_unknown_topic_or_partition(asking: Asking) -> None:
    assert (await listed(asking, LATEST)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize(
    ("epoch", "current", "found"),
    [(0, -1, (0, 0, 4)), (5, 0, (0, 0, 4)), (-1, 0, (0, -1, -1)), (0, 3, (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1))],
)
async def test_offset_for_leader_epoch_returns_the_end_offset_of_an_epoch(
    asking: Asking, topic: str, epoch: int, current: int, found: tuple[int, int, int]
) -> None:
    wanted = OffsetForLeaderPartition(partition=0, current_leader_epoch=current, leader_epoch=epoch)
    request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic="t", partitions=[wanted])])
    (answer,) = (await asking.ask(handle_offset_for_leader_epoch, request)).topics[0].partitions
    if epoch <= 0:
        assert (answer.error_code, answer.leader_epoch, answer.end_offset) == found
    else:
        assert answer.error_code == ErrorCode.NONE


async def deleted(asking: Asking, offset: int, topic: str = "t") -> DeleteRecordsPartitionResult:
    wanted = DeleteRecordsPartition(partition_index=0, offset=offset)
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=[wanted])])
    answer: DeleteRecordsPartitionResult = (await asking.ask(handle_delete_records, request)).topics[0].partitions[0]
    return answer


@pytest.mark.parametrize(
    ("offset", "error", "low_watermark"),
    [(0, 0, 0), (3, 0, 3), (4, 0, 4), (-1, 0, 4), (5, ErrorCode.OFFSET_OUT_OF_RANGE, -1), (-2, 1, -1)],
)
async def test_records_are_deleted_up_to_an_offset(
    asking: Asking, topic: str, offset: int, error: int, low_watermark: int
) -> None:
    answer = await deleted(asking, offset)
    assert (answer.error_code, answer.low_watermark) == (error, low_watermark)
    assert (await listed(asking, EARLIEST)).offset == max(low_watermark, 0)


async def test_delete_records_refuses_compacted_unknown_and_internal_topics(asking: Asking) -> None:
    asking.broker.services.metadata.create_topic("compact", configs={"cleanup.policy": "compact"})
    assert (await deleted(asking, 0, "compact")).error_code == ErrorCode.POLICY_VIOLATION
    assert (await deleted(asking, 0, "none")).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (await deleted(asking, 0, "__consumer_offsets")).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
