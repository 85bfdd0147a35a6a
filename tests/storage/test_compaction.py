"""Compaction: remaining records and their batches; after a crash the log is as before or as after."""

from collections.abc import Iterator

import pytest

from gregor.protocol.records import v2
from gregor.protocol.records.batches import BatchView, Record, iter_records
from gregor.protocol.records.compression import Codec
from gregor.protocol.records.validation import AppendRules, validate
from gregor.storage.clock import ManualClock
from gregor.storage.compaction import compaction, compaction_filter
from gregor.storage.compaction.compaction import CompactionLimits, cleanable_segments, plan
from gregor.storage.compaction.compaction_map import OffsetMap
from gregor.storage.disk.open_files import OpenFiles
from gregor.storage.log.log_config import LogConfig
from gregor.storage.log.partition_log import AppendOrigin, PartitionLog
from tests.storage.forgetful_files import Crashing, ForgetfulFiles
from tests.storage.payloads import marker, payload, read_all

DIRECTORY = "/logs/topic-0"
DAY_MS = 86_400_000
NOW_MS = 10 * DAY_MS


class Bench:
    """A compacted log with short names for its operations."""

    def __init__(self, files: ForgetfulFiles | None = None, **settings: object) -> None:
        self.files = ForgetfulFiles() if files is None else files
        self.clock = ManualClock(NOW_MS)
        self.config = LogConfig(cleanup_policy="compact", delete_retention_ms=1000, **settings)  # type: ignore[arg-type]
        self.clean_until = 0
        self.open(is_clean=False)

    def open(self, *, is_clean: bool) -> None:
        self.log = PartitionLog.open(DIRECTORY, self.config, self.clock, pool=OpenFiles(self.files), is_clean=is_clean)

    def put(self, *pairs: tuple[str | None, str | None], magic: int = 2, codec: Codec = Codec.NONE) -> None:
        """Append one batch of (key, value)."""
        records = [
            Record(index, NOW_MS, key.encode() if key else None, value.encode() if value is not None else None)
            for index, (key, value) in enumerate(pairs)
        ]
        if magic == 2:
            produced = validate(bytearray(v2.build_batch(records, codec=codec)), AppendRules(), now_ms=NOW_MS)
        else:
            produced = payload([b""], magic=magic)
            build = __import__(f"gregor.protocol.records.v{magic}", fromlist=["x"]).build_message_set
            produced = validate(bytearray(build(records, codec=codec)), AppendRules(), now_ms=NOW_MS)
        self.log.append(produced, leader_epoch=0)

    def put_as(self, producer_id: int, sequence: int, *pairs: tuple[str, str]) -> None:
        """Append one batch of (key, value) of an idempotent producer."""
        records = [Record(index, NOW_MS, key.encode(), value.encode()) for index, (key, value) in enumerate(pairs)]
        data = v2.build_batch(records, producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
        self.log.append(validate(bytearray(data), AppendRules(), now_ms=NOW_MS), leader_epoch=0)

    def compact(self, *, buffer_bytes: int = 1 << 20) -> bool:
        """Roll the log, then clean all segments that may be cleaned."""
        self.log.roll()
        planned = plan(self.log, self.files, self.clock, self.clean_until, CompactionLimits(buffer_bytes))
        if planned is None:
            return False
        planned.run()
        assert planned.commit()
        self.clean_until = planned.end_offset
        return True

    def left(self) -> list[tuple[int, str | None, str | None]]:
        """Return (offset, key, value) of each record that a consumer reads."""
        return [
            (
                record.offset,
                record.key.decode() if record.key else None,
                record.value.decode() if record.value else None,
            )
            for record in read_all(self.log)
        ]

    def batches(self) -> list[BatchView]:
        return [batch for segment in self.log.segments if segment.load() is None for batch in segment.batches_from(0)]


class TestWhatStays:
    def test_the_last_record_of_each_key_is_kept(self) -> None:
        bench = Bench()
        bench.put(("a", "1"), ("b", "1"), ("a", "2"))
        bench.put(("b", "2"), ("c", "1"))
        bench.compact()
        assert bench.left() == [(2, "a", "2"), (3, "b", "2"), (4, "c", "1")]
        assert bench.log.log_end_offset == 5

    def test_records_without_key_go(self) -> None:
        bench = Bench()
        bench.put((None, "1"), ("a", "1"))
        bench.compact()
        assert bench.left() == [(1, "a", "1")]

    def test_the_active_segment_is_left_alone(self) -> None:
        bench = Bench()
        bench.put(("a", "1"))
        bench.log.roll()
        bench.put(("a", "2"))
        planned = plan(bench.log, bench.files, bench.clock, 0)
        assert planned is not None
        planned.run()
        planned.commit()
        assert bench.left() == [(0, "a", "1"), (1, "a", "2")]

    @pytest.mark.parametrize("magic", [0, 1, 2])
    @pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.LZ4])
    def test_batches_of_every_format_and_codec_are_compacted(self, magic: int, codec: Codec) -> None:
        bench = Bench()
        bench.put(("a", "1"), ("b", "1"), ("a", "2"), magic=magic, codec=codec)
        bench.put(("b", "2"), ("c", "1"), magic=magic, codec=codec)
        bench.compact()
        assert bench.left() == [(2, "a", "2"), (3, "b", "2"), (4, "c", "1")]
        assert {batch.magic for batch in bench.batches()} == {magic}
        assert {batch.codec for batch in bench.batches()} == {codec}

    def test_v0_messages_keep_their_receipt_times(self) -> None:
        bench = Bench()
        bench.put(("a", "1"), ("b", "1"), magic=0)
        bench.clock.advance(500)
        bench.put(("a", "2"), magic=0)
        bench.compact()
        times = [bench.log.offset_for_timestamp(NOW_MS + ms) for ms in (0, 1)]
        assert [(found.offset, found.timestamp) for found in times if found] == [(1, NOW_MS), (2, NOW_MS + 500)]

    @pytest.mark.parametrize("magic", [0, 1, 2])
    @pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4])
    def test_wrappers_and_batches_are_merged_across_segments(self, magic: int, codec: Codec) -> None:
        bench = Bench()
        for number in range(12):
            bench.put((f"k{number}", "old"), (f"k{number}", "new"), magic=magic, codec=codec)
            if number % 4 == 3:
                bench.log.roll()
        before = sum(segment.size_bytes for segment in bench.log.segments)
        bench.compact()
        assert bench.left() == [(2 * number + 1, f"k{number}", "new") for number in range(12)]
        (merged,) = bench.batches()
        assert (merged.magic, merged.codec, merged.last_offset) == (magic, codec, 23)
        assert merged.size_bytes * 3 < before

    def test_v0_wrappers_that_were_not_received_together_stay_apart(self) -> None:
        bench = Bench()
        for key in ("a", "b", "c"):
            bench.put((key, "1"), magic=0, codec=Codec.GZIP)
            bench.clock.advance(5 if key == "b" else 0)
        bench.compact()
        assert [batch.last_offset for batch in bench.batches()] == [1, 2]
        times = [bench.log.offset_for_timestamp(NOW_MS + ms) for ms in (0, 1)]
        assert [(found.offset, found.timestamp) for found in times if found] == [(0, NOW_MS), (2, NOW_MS + 5)]

    def test_batches_of_a_producer_are_merged_but_for_its_last_ones(self) -> None:
        bench = Bench()
        for sequence in range(20):
            bench.put_as(7, sequence, (f"k{sequence}", "1"))
        state = bench.log.producers.producers[7].batches
        bench.compact()
        batches = bench.batches()
        assert [(batch.base_sequence, batch.last_sequence) for batch in batches] == [
            (0, 14),
            *((sequence, sequence) for sequence in range(15, 20)),
        ]
        assert bench.left() == [(sequence, f"k{sequence}", "1") for sequence in range(20)]
        bench.log.close()
        bench.files.remove(bench.log.directory + "/00000000000000000020.snapshot")
        bench.open(is_clean=False)
        assert bench.log.producers.producers[7].batches == state, "duplicates are recognised as before"

    def test_batches_of_a_producer_are_not_merged_across_other_batches(self) -> None:
        bench = Bench()
        for sequence in range(10):
            bench.put_as(7, sequence, (f"k{sequence}", "1"))
            if sequence == 1:
                bench.put(("other", "1"))
        bench.compact()
        assert [batch.base_sequence for batch in bench.batches()] == [0, -1, 2, 5, 6, 7, 8, 9]

    @pytest.mark.parametrize("magic", [0, 1, 2])
    def test_receipt_times_are_kept(self, magic: int) -> None:
        bench = Bench()
        for key in ("a", "b", "a", "c"):
            bench.put((key, "1"), magic=magic)
            bench.clock.advance(2_000)
        bench.compact()
        (segment,) = bench.log.segments[:-1]
        segment.load()
        receipts = [segment.receipt_of(batch) - NOW_MS for batch in segment.batches_from(0)]
        assert receipts == ([6_000] if magic == 2 else [2_000, 4_000, 6_000]), "a merged batch has the newest time"

    @pytest.mark.parametrize("magic", [0, 1, 2])
    @pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4])
    def test_batches_without_keys_are_not_decompressed(
        self, magic: int, codec: Codec, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The index has the tag `keyed`; records without keys are older than the topic's compaction."""
        bench = Bench()
        for key in (None, "a", None, "a", None):
            bench.put((key, "1"), (key, "2"), magic=magic, codec=codec)
        opened: list[int] = []

        def counting(batch: BatchView, **limits: int) -> Iterator[Record]:
            opened.append(batch.last_offset)
            return iter_records(batch, **limits)

        for module in (compaction, compaction_filter):
            monkeypatch.setattr(module, "iter_records", counting)
        bench.compact()
        assert bench.left() == [(7, "a", "2")]
        assert set(opened) == {3, 7}

    def test_repeated_compaction_keeps_the_last_record_of_each_key(self) -> None:
        bench = Bench()
        expected: dict[str, tuple[int, str]] = {}
        for number in range(60):
            key = f"k{number * 7 % 11}"
            bench.put((key, str(number)))
            expected[key] = (number, str(number))
            if number % 9 == 0:
                bench.compact()
        bench.compact()
        assert bench.left() == sorted((offset, key, value) for key, (offset, value) in expected.items())

    def test_a_map_too_small_for_all_keys_cleans_in_steps(self) -> None:
        bench = Bench()
        for number in range(300):
            bench.put((f"k{number % 150}", str(number)))
        steps = 0
        while bench.compact(buffer_bytes=0) and bench.clean_until < 300:
            steps += 1
        assert steps > 1
        assert [offset for offset, _, _ in bench.left()] == list(range(150, 300))


class TestTombstones:
    def test_stay_until_their_horizon(self) -> None:
        bench = Bench()
        bench.put(("a", "1"), ("b", "1"))
        bench.put(("a", None))
        bench.compact()
        assert bench.left() == [(1, "b", "1"), (2, "a", None)]
        horizon = [batch.delete_horizon_ms for batch in bench.batches()]
        assert horizon[-1] == NOW_MS + 1000
        bench.clock.advance(999)
        bench.put(("x", "1"))
        bench.compact()
        assert (2, "a", None) in bench.left()
        bench.clock.advance(1)
        bench.put(("x", "2"))
        bench.compact()
        assert bench.left() == [(1, "b", "1"), (4, "x", "2")]

    def test_of_old_formats_age_with_their_segment(self) -> None:
        bench = Bench(segment_bytes=100)
        bench.put(("a", None), magic=1)
        bench.compact()
        assert bench.left() == [(0, "a", None)]
        later = Record(0, NOW_MS + 5000, b"b", b"1")
        data = v2.build_batch([later])
        bench.log.append(validate(bytearray(data), AppendRules(), now_ms=NOW_MS), leader_epoch=0)
        bench.compact()
        bench.put(("c", "1"))
        bench.compact()
        assert [key for _, key, _ in bench.left()] == ["b", "c"]


class TestMerging:
    def test_retained_records_of_a_batch_stay_one_batch_with_offset_gaps(self) -> None:
        bench = Bench()
        for number in range(10):
            bench.put(("a", "x"), (f"k{number}", str(number)))
        bench.compact()
        assert [offset for offset, _, _ in bench.left()] == [1, 3, 5, 7, 9, 11, 13, 15, 17, 18, 19]
        (batch,) = bench.batches()
        assert (batch.base_offset, batch.last_offset, batch.record_count) == (0, 19, 11)

    def test_only_batches_with_equal_properties_are_merged(self) -> None:
        bench = Bench()
        bench.put(("a", "1"))
        bench.put(("b", "1"), codec=Codec.GZIP)
        bench.put(("c", "1"), codec=Codec.GZIP)
        bench.put(("d", None))
        bench.put(("e", "1"))
        bench.compact()
        assert [(batch.codec, batch.record_count) for batch in bench.batches()] == [
            (Codec.NONE, 1),
            (Codec.GZIP, 2),
            (Codec.NONE, 1),
            (Codec.NONE, 1),
        ]

    def test_a_lone_batch_is_copied_byte_for_byte(self) -> None:
        bench = Bench(max_message_bytes=100)
        bench.put(("a", "x" * 90))
        bench.put(("b", "y" * 90))
        before = [bytes(batch.view) for batch in bench.batches()]
        bench.compact()
        assert [bytes(batch.view) for batch in bench.batches()] == before


class TestTransactions:
    def send(self, bench: Bench, producer: int, sequence: int, key: str, *, is_transactional: bool = True) -> None:
        record = Record(0, NOW_MS, key.encode(), b"%d" % sequence)
        data = v2.build_batch(
            [record],
            producer_id=producer,
            producer_epoch=0,
            base_sequence=sequence,
            is_transactional=is_transactional,
        )
        bench.log.append(validate(bytearray(data), AppendRules(), now_ms=NOW_MS), leader_epoch=0)

    def end(self, bench: Bench, producer: int, *, is_abort: bool) -> None:
        bench.log.append(
            marker(is_abort=is_abort, producer_id=producer), leader_epoch=0, origin=AppendOrigin.COORDINATOR
        )

    def test_an_open_transaction_stops_compaction(self) -> None:
        bench = Bench()
        bench.put(("a", "1"))
        bench.log.roll()
        self.send(bench, 1, 0, "a")
        bench.log.roll()
        assert [segment.base_offset for segment in cleanable_segments(bench.log, NOW_MS)] == [0]
        bench.compact()
        assert (0, "a", "1") in bench.left(), "an uncommitted record must not displace a committed one"

    def test_aborted_records_go_and_displace_nothing(self) -> None:
        bench = Bench()
        bench.put(("a", "1"))
        self.send(bench, 1, 0, "a")
        self.end(bench, 1, is_abort=True)
        bench.put(("b", "1"))
        bench.compact()
        assert [(offset, key) for offset, key, _ in bench.left() if key in ("a", "b")] == [(0, "a"), (3, "b")]

    def test_a_transaction_marker_stays_while_its_transaction_has_records(self) -> None:
        bench = Bench()
        self.send(bench, 1, 0, "a")
        self.end(bench, 1, is_abort=False)
        bench.compact()
        assert [batch.is_control for batch in bench.batches()] == [False, True]
        bench.log.producers.clear()
        for value in ("2", "3"):
            bench.put(("a", value))
            bench.compact()
            assert [batch.is_control for batch in bench.batches()] == [True, False]
        assert bench.batches()[0].delete_horizon_ms == NOW_MS + 1000
        bench.clock.advance(2000)
        bench.put(("b", "1"))
        bench.compact()
        assert not [batch for batch in bench.batches() if batch.is_control]

    def test_the_index_of_aborted_transactions_is_compacted_with_the_log(self) -> None:
        bench = Bench()
        self.send(bench, 1, 0, "a")
        self.send(bench, 1, 1, "a")
        self.end(bench, 1, is_abort=True)
        before = bench.log.aborted_transactions(0, 10)
        bench.compact()
        assert bench.log.aborted_transactions(0, 10) == before
        bench.log.producers.clear()
        for value in ("1", "2"):
            bench.put(("b", value))
            bench.compact()
        assert bench.log.aborted_transactions(0, 10) == [], "no transaction is open"

    def test_the_last_batch_of_a_producer_stays_empty(self) -> None:
        bench = Bench()
        self.send(bench, 1, 0, "a", is_transactional=False)
        self.send(bench, 1, 1, "a", is_transactional=False)
        bench.put(("a", "9"))
        bench.compact()
        assert bench.left() == [(2, "a", "9")]
        header = bench.batches()[0]
        assert (header.record_count, header.producer_id, header.last_sequence, header.last_offset) == (0, 1, 1, 1)
        bench.open(is_clean=False)
        self.send(bench, 1, 2, "b", is_transactional=False)


def test_a_crash_at_any_point_leaves_all_or_nothing() -> None:
    def filled() -> Bench:
        files = Crashing()
        bench = Bench(files, segment_bytes=250, index_interval_bytes=50)
        for number in range(20):
            bench.put(("a", str(number)), (f"k{number % 7}", str(number)))
        bench.log.flush()
        return bench

    untouched = filled()
    before = untouched.left()
    untouched.compact()
    after = untouched.left()
    assert before != after
    outcomes = set()
    for point in range(200):
        bench = filled()
        assert isinstance(bench.files, Crashing)
        bench.log.roll()
        bench.log.flush()
        bench.files.steps_to_live = point
        try:
            bench.compact()
        except KeyboardInterrupt:
            bench.files.steps_to_live = None
            bench.open(is_clean=False)
            outcomes.add(bench.left() == after)
            assert bench.left() in (before, after), f"crash point {point}"
            assert not [path for path in bench.files.nodes if ".cleaned" in path or ".swap" in path]
            bench.clean_until = 0
            bench.compact()
            assert bench.left() == after
        else:
            break
    else:
        pytest.fail("the compaction never came to its end")
    assert outcomes == {True, False}


def test_a_compaction_of_a_log_that_changed_meanwhile_is_not_committed() -> None:
    bench = Bench()
    bench.put(("a", "1"))
    bench.log.roll()
    bench.put(("a", "2"))
    bench.log.roll()
    planned = plan(bench.log, bench.files, bench.clock, 0)
    assert planned is not None
    planned.run()
    bench.log.advance_log_start(1)
    assert not planned.commit()
    assert bench.left() == [(1, "a", "2")]
    assert not [path for path in bench.files.nodes if ".cleaned" in path]


def test_a_reader_keeps_its_slice_through_a_swap() -> None:
    bench = Bench()
    bench.put(("a", "1"))
    bench.put(("a", "2"))
    held = bench.log.read(0, 1000)
    expected = held.read()
    bench.compact()
    assert held.read() == expected
    held.release()


class TestOffsetMap:
    def test_the_offset_map_returns_the_last_offset_of_each_key(self) -> None:
        offsets = OffsetMap(1 << 20)
        for number in range(5000):
            assert offsets.put(b"%d" % (number % 1000), number)
        assert len(offsets) == 1000
        assert [offsets.get(b"%d" % number) for number in range(1000)] == list(range(4000, 5000))
        assert offsets.get(b"other") == -1

    def test_the_offset_map_refuses_new_keys_beyond_its_size(self) -> None:
        offsets = OffsetMap(24 * 100)
        taken = sum(offsets.put(b"%d" % number, number) for number in range(200))
        assert taken == 90
        assert offsets.put(b"5", 1000), "a known key needs no room"
        assert not offsets.put(b"new", 1)


def test_records_younger_than_min_compaction_lag_ms_are_not_compacted() -> None:
    bench = Bench(min_compaction_lag_ms=100)
    bench.put(("a", "1"))
    bench.put(("a", "2"))
    assert not bench.compact()
    bench.clock.advance(101)
    assert bench.compact()
