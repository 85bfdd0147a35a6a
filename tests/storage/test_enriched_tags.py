"""What the index says of a batch beyond its bytes, and that a rebuilt index says the same."""

import pytest

from gregor.protocol.records import v1
from gregor.protocol.records.batches import iter_records
from gregor.protocol.records.compression import Codec, compress
from gregor.protocol.records.enriched import KafkaTags
from gregor.protocol.records.validation import AppendRules, validate
from gregor.storage.clock import ManualClock
from gregor.storage.disk.open_files import OpenFiles
from gregor.storage.index.enriched_tags import tags_of
from gregor.storage.log.log_config import LogConfig
from gregor.storage.log.partition_log import PartitionLog
from tests.storage.forgetful_files import ForgetfulFiles
from tests.storage.payloads import payload

NOW_MS = 7_000


def open_log(files: ForgetfulFiles, clock: ManualClock) -> PartitionLog:
    return PartitionLog.open("/logs/topic-0", LogConfig(), clock, pool=OpenFiles(files))


def all_tags(log: PartitionLog) -> list[KafkaTags]:
    return [tags_of(segment, batch) for segment in log.segments for batch in segment.batches_from(0)]


def lazy_producers_set() -> bytes:
    """A v1 wrapper whose inner offsets are all zero, as old clients wrote them."""
    data = v1.build_message(0, 900, b"k", b"v") * 3
    return v1.build_message(2, 900, None, compress(Codec.GZIP, data, magic=1), attributes=int(Codec.GZIP))


@pytest.fixture
def log() -> PartitionLog:
    files, clock = ForgetfulFiles(), ManualClock(NOW_MS)
    log = open_log(files, clock)
    for produced in (
        payload([b"a", b"b"], magic=0),
        payload([b"a", b"b", b"c"], magic=0, codec=Codec.GZIP, key=None),
        payload([b"a", b"b"], magic=1, codec=Codec.GZIP, timestamp=900),
        validate(bytearray(lazy_producers_set()), AppendRules(), now_ms=NOW_MS),
        payload([b"a", b"b"], codec=Codec.ZSTD, timestamp=800, key=None),
        payload([b"a"], codec=Codec.ZSTD, timestamp=800),
        payload([b"a"], timestamp=800),
    ):
        log.append(produced, leader_epoch=0)
        clock.advance(10)
    return log


EXPECTED = [
    KafkaTags(7_000, 1, True, None),
    KafkaTags(7_000, 1, True, None),
    KafkaTags(7_010, 3, False, False),
    KafkaTags(900, 2, True, True),
    KafkaTags(900, 3, False, True),
    KafkaTags(800, 2, True, False),
    KafkaTags(800, 1, True, True),
    KafkaTags(800, 1, True, None),
]


def test_tags_of_every_kind(log: PartitionLog) -> None:
    assert all_tags(log) == EXPECTED


def test_they_survive_a_kill(log: PartitionLog) -> None:
    again = PartitionLog.open("/logs/topic-0", LogConfig(), ManualClock(), pool=log.segment_list._pool)
    assert all_tags(again) == EXPECTED


def test_without_the_index_only_receipt_times_are_guessed(log: PartitionLog) -> None:
    files = log.segment_list._pool.files
    assert isinstance(files, ForgetfulFiles)
    files.remove(log.segments[0].index.path)
    modified_ms = files.modified_ms(log.segments[0].path)
    again = PartitionLog.open("/logs/topic-0", LogConfig(), ManualClock(), pool=OpenFiles(files))
    guessed = [tags._replace(timestamp_ms=modified_ms) for tags in EXPECTED[:3]]
    assert all_tags(again) == guessed + EXPECTED[3:]


def test_records_of_a_lazy_producer_are_numbered_by_index(log: PartitionLog) -> None:
    (segment,) = log.segments
    batches = [batch for batch in segment.batches_from(0) if batch.is_numbered_by_index]
    assert [[record.offset for record in iter_records(batch)] for batch in batches] == [[2, 3, 4], [7, 8, 9]]
