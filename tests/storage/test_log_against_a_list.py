"""The partition log against its simplest model, a list of records."""

import bisect
from typing import NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from gregor.protocol.errors import BrokerError, ErrorCode
from gregor.protocol.records.batches import iter_batches, iter_records
from gregor.protocol.records.compression import Codec
from gregor.storage.clock import ManualClock
from gregor.storage.compaction.compaction import cleanable_segments, plan
from gregor.storage.disk.open_files import OpenFiles
from gregor.storage.log.log_config import LogConfig
from gregor.storage.log.partition_log import PartitionLog
from tests.storage.forgetful_files import ForgetfulFiles
from tests.storage.payloads import payload, read_all

DIRECTORY = "/logs/topic-0"
START_MS = 1_000_000


class Kept(NamedTuple):
    """A record of the model."""

    offset: int
    timestamp: int
    key: bytes
    value: bytes


class LogMachine(RuleBasedStateMachine):
    """A machine of all operations, crashes and reopening; its model is `kept`, by offset."""

    log: PartitionLog

    @initialize(segment_bytes=st.sampled_from([300, 1500, 1 << 20]), interval=st.sampled_from([0, 100, 4096]))
    def begin(self, segment_bytes: int, interval: int) -> None:
        self.files = ForgetfulFiles()
        self.clock = ManualClock(START_MS)
        self.config = LogConfig(
            segment_bytes=segment_bytes,
            index_interval_bytes=interval,
            file_delete_delay_ms=0,
            cleanup_policy="compact",
        )
        self.kept: list[Kept] = []
        self.start = self.end = self.synced_end = 0
        self.count = 0
        self.open(is_clean=False)

    def open(self, *, is_clean: bool) -> None:
        self.log = PartitionLog.open(
            DIRECTORY,
            self.config,
            self.clock,
            pool=OpenFiles(self.files, max_open=8),
            log_start_offset=self.start,
            recovery_point=self.log.recovery_point if hasattr(self, "log") else 0,
            is_clean=is_clean,
        )

    @rule(
        magic=st.sampled_from([0, 1, 2]),
        codec=st.sampled_from([Codec.NONE, Codec.NONE, Codec.GZIP]),
        count=st.integers(1, 5),
        size=st.integers(0, 120),
        later_ms=st.integers(-20, 50),
        key=st.sampled_from([b"a", b"b", b"c"]),
    )
    def append(self, magic: int, codec: Codec, count: int, size: int, later_ms: int, key: bytes) -> None:
        self.clock.advance(abs(later_ms))
        self.files.now_ms = self.clock.now_ms()
        timestamp = self.clock.now_ms() if magic == 0 else self.clock.now_ms() + later_ms
        values = []
        for _ in range(count):
            self.count += 1
            values.append(b"%d " % self.count + b"x" * size)
        produced = payload(values, magic=magic, codec=codec, timestamp=timestamp, key=key)
        if len(produced.data) > self.config.segment_bytes:
            with pytest.raises(BrokerError, match="RECORD_LIST_TOO_LARGE"):
                self.log.append(produced, leader_epoch=0)
            return
        first = self.log.append(produced, leader_epoch=0).base_offset
        assert first == self.end
        self.kept += [Kept(first + index, timestamp, key, value) for index, value in enumerate(values)]
        self.end += count

    @rule(data=st.data(), max_bytes=st.integers(1, 2000))
    def read(self, data: st.DataObject, max_bytes: int) -> None:
        offset = data.draw(st.integers(self.start, self.end))
        expected = [kept for kept in self.kept if kept.offset >= offset]
        with self.log.read(offset, max_bytes) as slice_:
            batches = list(iter_batches(slice_.read()))
        assert batches or not expected, "at least one batch is whole"
        # The first batch may have no record from `offset` on.
        found = [record for batch in batches for record in iter_records(batch) if record.offset >= offset]
        assert [(record.offset, record.value) for record in found] == [
            (kept.offset, kept.value) for kept in expected[: len(found)]
        ]

    @rule(data=st.data())
    def read_below_a_bound(self, data: st.DataObject) -> None:
        if self.kept:
            boundaries = sorted(
                {self.log.segments[0].base_offset, self.end, *(s.base_offset for s in self.log.segments)}
            )
            bound = data.draw(st.sampled_from(boundaries))
            if any(self.start <= kept.offset < bound for kept in self.kept):
                with self.log.read(self.start, 1 << 20, upper_bound_offset=bound) as found:
                    assert found.size_bytes > 0

    @rule(beyond=st.integers(1, 5))
    def read_out_of_range(self, beyond: int) -> None:
        with pytest.raises(BrokerError) as caught:
            self.log.read(self.end + beyond, 100)
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE

    @rule(offset_ms=st.integers(-100, 400))
    def look_up_time(self, offset_ms: int) -> None:
        wanted = START_MS + offset_ms
        found = self.log.offset_for_timestamp(wanted)
        expected = next((kept for kept in self.kept if kept.timestamp >= wanted and kept.offset >= self.start), None)
        assert (found and (found.offset, found.timestamp)) == (expected and (expected.offset, expected.timestamp))

    @rule()
    def look_up_newest(self) -> None:
        found = self.log.max_timestamp_offset()
        live = [kept for kept in self.kept if kept.offset >= self.start]
        if live:
            newest = max(live, key=lambda kept: (kept.timestamp, -kept.offset))
            assert found is not None
            # The largest time may be one of a record that is below the log's start but in the first segment.
            assert found.timestamp == newest.timestamp or self.start > self.log.segments[0].base_offset

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @rule()
    def flush(self) -> None:
        self.log.flush()
        self.synced_end = self.end

    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(max(self.start, self.end - 8), self.end))
        self.log.truncate_to(offset)
        self.end = self.log.log_end_offset
        assert self.end <= offset
        del self.kept[bisect.bisect_left(self.kept, (self.end,)) :]
        self.start = min(self.start, self.end)
        self.synced_end = min(self.synced_end, self.end)

    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        self.start = data.draw(st.integers(self.start, self.end))
        assert self.log.advance_log_start(self.start) == self.start
        due = self.log.due_removals(self.clock.now_ms())
        if due is not None:
            due()

    @rule(rolls=st.booleans(), decides=st.booleans())
    def compact(self, rolls: bool, decides: bool) -> None:
        """Compact the log, to the end or until a kill right before the cleaned segments replace the old ones."""
        if rolls:
            self.log.roll()
        cleanable = cleanable_segments(self.log, self.clock.now_ms())
        planned = plan(self.log, self.files, self.clock, 0)
        if planned is None:
            return
        cleaned_end = cleanable[-1].next_offset
        planned.run()
        if not decides:
            self.kill()
            return
        assert planned.commit()
        latest = {kept.key: kept.offset for kept in self.kept if kept.offset < cleaned_end}
        self.kept = [kept for kept in self.kept if kept.offset >= cleaned_end or latest[kept.key] == kept.offset]

    @rule()
    def restart(self) -> None:
        self.log.close()
        self.synced_end = self.end
        self.open(is_clean=True)

    @rule()
    def kill(self) -> None:
        self.open(is_clean=False)

    @precondition(lambda self: self.end > self.synced_end)
    @rule(kept_bytes=st.integers(0, 400))
    def cut_power(self, kept_bytes: int) -> None:
        self.files.cut_power(kept_unsynced_bytes=kept_bytes)
        self.open(is_clean=False)
        assert self.synced_end <= self.log.log_end_offset <= self.end
        self.end = self.log.log_end_offset
        self.start = self.log.log_start_offset
        survivors = {record.offset for record in read_all(self.log)}
        # Each file loses its own tail, so a whole segment may be missing before one that was kept in part.
        assert survivors.issuperset(kept.offset for kept in self.kept if self.start <= kept.offset < self.synced_end)
        self.kept = [self.with_time_of_log(kept) for kept in self.kept if kept.offset in survivors]

    def with_time_of_log(self, kept: Kept) -> Kept:
        """Replace receipt times that were only in the lost index by the file's time."""
        segment = next(s for s in reversed(self.log.segments) if s.base_offset <= kept.offset)
        segment.load()
        place = segment.locate(kept.offset)
        assert place is not None
        return kept._replace(timestamp=segment.timestamp_of(next(segment.batches_from(place.position))))

    @invariant()
    def holds_what_was_appended(self) -> None:
        if not hasattr(self, "log"):
            return
        log = self.log
        assert log.log_start_offset == self.start
        assert log.log_end_offset == self.end
        assert log.log_start_offset <= log.last_stable_offset <= log.high_watermark <= log.log_end_offset
        assert [(record.offset, record.value) for record in read_all(log)] == [
            (kept.offset, kept.value) for kept in self.kept if kept.offset >= self.start
        ]


LogMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=25)
TestLogAgainstAList = LogMachine.TestCase


def test_an_empty_payload_appends_nothing() -> None:
    log = PartitionLog.open(DIRECTORY, LogConfig(), ManualClock(), pool=OpenFiles(ForgetfulFiles()))
    produced = payload([b"one"])
    produced.batches = []
    assert log.append(produced, leader_epoch=0).base_offset == -1
    assert log.log_end_offset == 0
