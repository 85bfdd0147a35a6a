"""Records of v0 in a LogAppendTime topic: readers of formats with timestamps get the receipt time."""

from __future__ import annotations

from pathlib import Path

import pytest

from gregor.protocol.records.batches import iter_batches, iter_records
from gregor.protocol.records.compression import Codec
from gregor.protocol.records.record import TimestampType
from gregor.storage.clock import ManualClock
from gregor.storage.log.log_config import LogConfig
from gregor.storage.log.partition_log import PartitionLog
from tests.asking import Asking
from tests.broker.api.log_requests import bytes_of, fetch, fetched, message_set, produce, produced
from tests.storage.payloads import append

APPEND_TIME = {"message.timestamp.type": "LogAppendTime"}


async def times(asking: Asking, version: int, offset: int = 0) -> list[tuple[int, int, TimestampType]]:
    (answer,) = await fetched(asking, fetch((0, offset)), version)
    return [
        (record.offset, record.timestamp, TimestampType(found.timestamp_type))
        for found in iter_batches(await bytes_of(answer))
        for record in iter_records(found)
    ]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
@pytest.mark.parametrize("version", [2, 4, 11])
async def test_readers_of_v1_and_v2_get_the_log_append_time_of_v0_records(
    asking: Asking, codec: Codec, version: int
) -> None:
    asking.broker.services.metadata.create_topic("t", configs=APPEND_TIME)
    clock = asking.broker.services.logs.get("t", 0)._clock = ManualClock(5000)  # type: ignore[union-attr]
    await produced(asking, produce(message_set(0, b"a", b"b", codec=codec)), 1)
    clock.advance(1000)
    await produced(asking, produce(message_set(0, b"c", codec=codec)), 1)
    stamped = TimestampType.LOG_APPEND_TIME
    expected = [(0, 5000, stamped), (1, 5000, stamped), (2, 6000, stamped)]
    seen = await times(asking, version)
    # v1 is larger than v0: bytes beyond the stored size are fetched next time (KIP-283).
    assert seen == expected[: len(seen)]
    assert len(seen) == 3 or version == 2
    assert (await times(asking, version, offset=2))[-1] == expected[2]


async def test_readers_of_v0_get_what_was_produced(asking: Asking) -> None:
    asking.broker.services.metadata.create_topic("t", configs=APPEND_TIME)
    await produced(asking, produce(message_set(0, b"a")), 1)
    (answer,) = await fetched(asking, fetch((0, 0)), 1)
    assert await bytes_of(answer) == message_set(0, b"a")


async def test_v0_records_of_a_create_time_topic_have_no_timestamp(asking: Asking) -> None:
    """As in Kafka, records without a timestamp of their producer have none."""
    asking.broker.services.metadata.create_topic("t")
    await produced(asking, produce(message_set(0, b"a")), 1)
    assert await times(asking, 11) == [(0, -1, TimestampType.CREATE_TIME)]


def test_receipt_times_survive_a_restart(tmp_path: Path) -> None:
    clock = ManualClock(5000)
    config = LogConfig(message_timestamp_type="LogAppendTime", segment_bytes=200)
    log = PartitionLog.open(str(tmp_path / "t-0"), config, clock)
    for number in range(10):
        append(log, b"%d" % number, magic=0)
        clock.advance(1 + number % 2 * 10)
    for is_clean in (True, False):
        if is_clean:
            log.close()
        else:
            log.abandon()
        log = PartitionLog.open(str(tmp_path / "t-0"), config, clock, is_clean=is_clean)
        seen = {}
        for offset in range(10):
            with log.read(offset, 1 << 20) as found:
                seen[offset] = found.receipts.at(0)
        assert seen == {number: 5000 + number + number // 2 * 10 for number in range(10)}
    log.close()
