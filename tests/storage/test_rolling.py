"""New segments after `segment.ms`: the age of a segment is that of its records and survives a restart (KAFKA-881)."""

import pytest

from gregor.protocol.records.compression import Codec
from gregor.storage.clock import ManualClock
from gregor.storage.disk.open_files import OpenFiles
from gregor.storage.index.index_format import NO_RECEIPT
from gregor.storage.log.log_config import LogConfig
from gregor.storage.log.partition_log import PartitionLog
from tests.storage.forgetful_files import ForgetfulFiles
from tests.storage.payloads import append

NOW_MS = 1_000_000


def open_log(files: ForgetfulFiles, clock: ManualClock, **config: int) -> PartitionLog:
    return PartitionLog.open("/logs/t-0", LogConfig(**config), clock, pool=OpenFiles(files))  # type: ignore[arg-type]


@pytest.mark.parametrize("ending", ["clean", "killed"])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
@pytest.mark.parametrize(("magic", "timestamp"), [(0, -1), (1, NOW_MS), (1, -1), (2, NOW_MS), (2, -1)])
def test_the_age_of_a_segment_survives_a_restart(magic: int, timestamp: int, codec: Codec, ending: str) -> None:
    files, clock = ForgetfulFiles(), ManualClock(NOW_MS)
    files.now_ms = NOW_MS
    log = open_log(files, clock, segment_ms=10_000)
    append(log, b"first", timestamp=timestamp, magic=magic, codec=codec)
    clock.advance(8_000)
    if ending == "clean":
        log.close()
    log = open_log(files, clock, segment_ms=10_000)
    append(log, b"young", timestamp=-1 if timestamp < 0 else clock.now_ms(), magic=magic, codec=codec)
    assert len(log.segments) == 1
    clock.advance(3_000)
    append(log, b"late", timestamp=-1 if timestamp < 0 else clock.now_ms(), magic=magic, codec=codec)
    assert [segment.base_offset for segment in log.segments] == [0, 2]


def test_a_log_without_receipt_times_counts_its_age_from_the_start() -> None:
    files, clock = ForgetfulFiles(), ManualClock(NOW_MS)
    log = open_log(files, clock, segment_ms=10_000)
    append(log, b"timeless", timestamp=-1)
    log.close()
    del files.nodes["/logs/t-0/00000000000000000000.gindex"]
    files.nodes["/logs/t-0/00000000000000000000.log"].modified_ms = NO_RECEIPT
    clock.advance(8_000)
    log = open_log(files, clock, segment_ms=10_000)
    clock.advance(3_000)
    append(log, b"young", timestamp=-1)
    assert len(log.segments) == 1


def test_an_empty_segment_has_no_age() -> None:
    clock = ManualClock(NOW_MS)
    log = open_log(ForgetfulFiles(), clock, segment_ms=10_000)
    clock.advance(60_000)
    append(log, b"first", timestamp=-1)
    assert len(log.segments) == 1


@pytest.mark.parametrize("compacts", [False, True])
def test_a_compacted_segment_is_no_older_than_the_compaction_lag(compacts: bool) -> None:
    """KIP-354: `max.compaction.lag.ms` limits the age of the active segment, which is never compacted."""
    clock = ManualClock(NOW_MS)
    policy = "compact" if compacts else "delete"
    config = LogConfig(segment_ms=60_000, max_compaction_lag_ms=10_000, cleanup_policy=policy)
    log = PartitionLog.open("/logs/t-0", config, clock, pool=OpenFiles(ForgetfulFiles()))
    append(log, b"first", timestamp=NOW_MS)
    append(log, b"second", timestamp=NOW_MS + 10_001)
    assert len(log.segments) == 1 + compacts


def test_segments_that_begin_together_end_apart_with_jitter() -> None:
    """`segment.jitter.ms` shortens the age by a random time, so that not all partitions flush at once."""
    ages = set()
    for _ in range(20):
        log = open_log(ForgetfulFiles(), ManualClock(NOW_MS), segment_ms=1_000, segment_jitter_ms=900)
        append(log, b"first", timestamp=NOW_MS)
        age_ms = 0
        while len(log.segments) == 1:
            age_ms += 50
            append(log, b"next", timestamp=NOW_MS + age_ms)
        ages.add(age_ms)
        assert 100 <= age_ms <= 1_050
    assert len(ages) > 1
