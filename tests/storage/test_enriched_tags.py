"""The enriched tags of a batch in the index, and in a rebuilt index."""

import pytest

from gregor.protocol.records import v1
from gregor.protocol.records.batches import iter_records
from gregor.protocol.records.compression import Codec, compress
from gregor.protocol.records.enriched import KafkaTags
from gregor.protocol.records.validation import AppendRules, validate
from gregor.storage.clock import ManualClock
from gregor.storage.disk.open_files import OpenFiles
from gregor.storage.index.enriched_tags import tags_of
from gregor.storage.index.index_format import ENTRY_SIZE, HEADER_SIZE, RECEIPT_RESOLUTION_MS
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
    """Return a v1 wrapper whose inner offsets are all zero, as old clients wrote them."""
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
    clock.advance(RECEIPT_RESOLUTION_MS)
    log.append(payload([b"a"], timestamp=800), leader_epoch=0)
    return log


EXPECTED = [
    KafkaTags(7_000, 1, True, None),
    KafkaTags(7_000, 1, True, None),
    KafkaTags(7_010, 3, False, False),
    KafkaTags(7_010, 2, True, True),
    KafkaTags(7_010, 3, False, True),
    KafkaTags(7_010, 2, True, False),
    KafkaTags(7_010, 1, True, True),
    KafkaTags(7_010, 1, True, None),
    KafkaTags(8_070, 1, True, None),
]
"""The receipt times of v0 messages are exact, those of other batches to RECEIPT_RESOLUTION_MS."""


def test_the_index_has_the_tags_of_batches_of_every_format(log: PartitionLog) -> None:
    assert all_tags(log) == EXPECTED


def test_tags_survive_a_kill(log: PartitionLog) -> None:
    again = PartitionLog.open("/logs/topic-0", LogConfig(), ManualClock(), pool=log.segment_list._pool)
    assert all_tags(again) == EXPECTED


def test_a_rebuilt_index_has_all_tags_but_takes_receipt_times_from_the_file(log: PartitionLog) -> None:
    files = log.segment_list._pool.files
    assert isinstance(files, ForgetfulFiles)
    files.remove(log.segments[0].index.path)
    modified_ms = files.modified_ms(log.segments[0].path)
    again = PartitionLog.open("/logs/topic-0", LogConfig(), ManualClock(), pool=OpenFiles(files))
    assert all_tags(again) == [tags._replace(timestamp_ms=modified_ms) for tags in EXPECTED]


@pytest.mark.parametrize("damaged", [range(1), range(9, 11), range(3, 4), range(12, 99), range(99)], ids=str)
@pytest.mark.parametrize("is_cut", [False, True])
def test_receipt_times_of_damaged_index_entries_are_never_too_early(damaged: range, is_cut: bool) -> None:
    """Records that seem to be older than they are would be deleted too early."""
    files, clock = ForgetfulFiles(), ManualClock(NOW_MS)
    files.now_ms = NOW_MS + 14 * RECEIPT_RESOLUTION_MS
    log = open_log(files, clock)
    for _ in range(15):
        log.append(payload([b"a"]), leader_epoch=0)
        clock.advance(RECEIPT_RESOLUTION_MS)
    before = [tags.timestamp_ms or 0 for tags in all_tags(log)]
    assert len(set(before)) == 15, "each batch has an entry of its own"
    log.close()
    path = log.segments[0].index.path
    index = bytearray(files.read(path))
    entries = [index[at : at + ENTRY_SIZE] for at in range(HEADER_SIZE, len(index), ENTRY_SIZE)]
    for number in damaged:
        if number < len(entries):
            entries[number][5] ^= 0x10
    if is_cut:
        entries = entries[: damaged.start]
    files.replace(path, bytes(index[: HEADER_SIZE - 80]) + bytes(80) + b"".join(entries))
    again = [tags.timestamp_ms or 0 for tags in all_tags(open_log(files, clock))]
    assert all(found >= true for found, true in zip(again, before, strict=True))
    intact = range(damaged.start) if is_cut else (n for n in range(15) if n not in damaged)
    assert all(again[number] == before[number] for number in intact)
    if not is_cut and damaged.stop < 15:
        assert again[damaged.start] == before[damaged.stop], "that of the next good entry"


def test_a_rebuilt_index_takes_receipt_times_from_log_append_times() -> None:
    files, clock = ForgetfulFiles(), ManualClock(NOW_MS)
    log = PartitionLog.open(
        "/logs/topic-0", LogConfig(message_timestamp_type="LogAppendTime"), clock, pool=OpenFiles(files)
    )
    for magic in (1, 2, 0):
        log.append(payload([b"a"], magic=magic, timestamp=800), leader_epoch=0)
        clock.advance(10)
    files.remove(log.segments[0].index.path)
    again = open_log(files, clock)
    modified_ms = files.modified_ms(log.segments[0].path)
    assert [tags.timestamp_ms for tags in all_tags(again)] == [NOW_MS, NOW_MS + 10, modified_ms]


def test_records_of_wrappers_with_invalid_inner_offsets_are_numbered_by_index(log: PartitionLog) -> None:
    (segment,) = log.segments
    batches = [batch for batch in segment.batches_from(0) if batch.is_numbered_by_index]
    assert [[record.offset for record in iter_records(batch)] for batch in batches] == [[2, 3, 4], [7, 8, 9]]
