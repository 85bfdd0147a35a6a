"""A copy of a log has the tags of the log, whatever the clock says, and no batch is opened for it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gregor.protocol.records.compression import Codec
from gregor.protocol.records.enriched import KafkaTags
from gregor.protocol.records.tag_runs import TagRuns
from gregor.storage.clock import ManualClock
from gregor.storage.disk.open_files import OpenFiles
from gregor.storage.index.copied_tags import tag_runs_of
from gregor.storage.index.enriched_tags import tags_of
from gregor.storage.log.log_config import LogConfig
from gregor.storage.log.partition_log import PartitionLog
from tests.counted_decompressions import count_decompressions
from tests.storage.forgetful_files import ForgetfulFiles
from tests.storage.payloads import payload

APPENDS = st.tuples(
    st.sampled_from([0, 1, 2]),
    st.sampled_from([Codec.NONE, Codec.GZIP, Codec.LZ4]),
    st.integers(1, 4),
    st.sampled_from([None, b"k"]),
    st.sampled_from([0, 1, 400, 999, 1_000, 70_000, -3_000]),
)
"""Format, codec, number of records, their key, and the milliseconds to the next append."""


def open_log(name: str, now_ms: int, **more: int) -> PartitionLog:
    config = LogConfig(**more)  # type: ignore[arg-type]
    return PartitionLog.open(f"/logs/{name}", config, ManualClock(now_ms), pool=OpenFiles(ForgetfulFiles()))


def all_tags(log: PartitionLog) -> list[tuple[int, KafkaTags]]:
    found = []
    for segment in log.segments:
        segment.load()
        found += [(batch.last_offset, tags_of(segment, batch)) for batch in segment.batches_from(0)]
    return found


def copy(source: PartitionLog, target: PartitionLog, step_bytes: int) -> None:
    """Copy as a follower does, with the tags as they are on the wire."""
    while target.log_end_offset < source.log_end_offset:
        with source.read(target.log_end_offset, step_bytes, at_least_one=True) as stretch:
            tags = TagRuns.decode(tag_runs_of(stretch).encode())
            target.append_as_follower(stretch.read(), tags=tags)


@given(st.lists(APPENDS, min_size=1, max_size=12), st.sampled_from([1, 300, 1 << 20]), st.sampled_from([300, 1 << 20]))
@settings(max_examples=60)
def test_all_tags_are_those_of_the_source(
    appends: list[tuple[int, Codec, int, bytes | None, int]], step_bytes: int, segment_bytes: int
) -> None:
    clock = ManualClock(1_000_000)
    source = PartitionLog.open("/logs/t-0", LogConfig(), clock, pool=OpenFiles(ForgetfulFiles()))
    for magic, codec, count, key, pause_ms in appends:
        source.append(payload([b"v"] * count, magic=magic, codec=codec, key=key), leader_epoch=0)
        clock.advance(pause_ms)
    first, second = open_log("a-0", 9_000_000, segment_bytes=segment_bytes), open_log("b-0", 99_000_000)
    with pytest.MonkeyPatch.context() as patches:
        counted = count_decompressions(patches)
        copy(source, first, step_bytes)
        copy(first, second, 1 << 20)
        assert counted.taken() == 0
        first.append_as_follower(b"")
    assert all_tags(first) == all_tags(source)
    assert all_tags(second) == all_tags(source), "a copy of a copy"


def test_without_tags_the_batches_are_opened_and_the_time_is_now(monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = open_log("t-0", 1_000_000), open_log("a-0", 9_000_000)
    for magic in (0, 1, 2):
        source.append(payload([b"v", b"w"], magic=magic, codec=Codec.GZIP, key=None), leader_epoch=0)
    counted = count_decompressions(monkeypatch)
    with source.read(0, 1 << 20) as stretch:
        target.append_as_follower(stretch.read())
    assert counted.taken() == 2, "those of v0 and v1"
    tags = [tags for _, tags in all_tags(target)]
    assert [found.timestamp_ms for found in tags] == [9_000_000] * 3
    assert [found.message_count for found in tags] == [2] * 3
    assert [found.keyed for found in tags] == [False, False, True], "v2 counts as keyed, which is safe"


def test_tag_runs_at_the_log_end_read_no_index_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Followers of a busy partition fetch its last batches all the time."""
    source = open_log("t-0", 1_000_000)
    clock = source._clock
    assert isinstance(clock, ManualClock)
    for _ in range(20):
        source.append(payload([b"v" * 5_000]), leader_epoch=0)
        clock.advance(2_000)
    for _ in range(2):
        source.append(payload([b"v"]), leader_epoch=0)
    read = []
    index = source.segments[-1].index
    entry = type(index).entry
    monkeypatch.setattr(type(index), "entry", lambda self, number: read.append(number) or entry(self, number))
    with source.read(21, 1 << 20) as stretch:
        runs = list(tag_runs_of(stretch))
    assert [(run.position, run.receipt_ms) for run in runs] == [(0, 1_040_000)]
    assert read == []
