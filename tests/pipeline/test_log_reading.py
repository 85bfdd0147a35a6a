"""Log directories as tables, without Spark: planned ranges, rows, and damage."""

import json
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the pipeline needs gregor-broker[spark]")

from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, GreaterThanOrEqual, In, LessThan, Not

from gregor.pipeline.columns.filters import pruning_of
from gregor.pipeline.errors import DamagedLogError, DataLossError, OptionError
from gregor.pipeline.logs.kafka_log import KNOWN_OPTIONS, KafkaLogReaderWithPushdown
from gregor.pipeline.logs.log_plan import LogRange
from gregor.pipeline.options import SourceOptions
from gregor.protocol.records import v0, v1, v2
from gregor.protocol.records.compression import Codec
from gregor.protocol.records.record import Record
from gregor.storage.clock import ManualClock
from gregor.storage.log.log_config import LogConfig
from gregor.storage.log.partition_log import AppendOrigin
from gregor.storage.log_manager import LogManager
from tests.storage.payloads import append, marker, payload

START_MS = 1_700_000_000_000
RECORDS_A_BATCH = 10
BATCHES = 60


def reader(directory: Path, **options: str) -> KafkaLogReaderWithPushdown:
    return KafkaLogReaderWithPushdown(SourceOptions({"path": str(directory), **options}, KNOWN_OPTIONS))


def rows(source: KafkaLogReaderWithPushdown) -> list[dict[str, Any]]:
    return [row for task in source.partitions() for batch in source.read(task) for row in batch.to_pylist()]


def offsets(directory: Path, **options: str) -> list[int]:
    return [row["offset"] for row in rows(reader(directory, values="false", **options))]


def tasks(source: KafkaLogReaderWithPushdown) -> list[LogRange]:
    return [task for task in source.partitions() if isinstance(task, LogRange)]


def batch_at(first: int, magic: int, codec: Codec) -> bytes:
    records = [
        Record(first + n, START_MS + first + n, b"k%d" % n, b"value %d" % (first + n)) for n in range(RECORDS_A_BATCH)
    ]
    if magic == 2:
        return v2.build_batch(records, base_offset=first, codec=codec)
    if magic == 1:
        return v1.build_message_set(records, codec=codec)
    return v0.build_message_set(records, codec=codec)


@pytest.fixture(params=[(0, Codec.NONE), (0, Codec.GZIP), (1, Codec.SNAPPY), (2, Codec.NONE), (2, Codec.ZSTD)])
def plain(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Return a copied partition without index or checkpoint, in three segments, of each format."""
    magic, codec = request.param
    directory = tmp_path / "plain" / "events-0"
    directory.mkdir(parents=True)
    for segment in range(3):
        first = segment * BATCHES // 3 * RECORDS_A_BATCH
        stored = [
            batch_at(first + number * RECORDS_A_BATCH, magic, codec if number % 2 else Codec.NONE)
            for number in range(BATCHES // 3)
        ]
        (directory / f"{first:020d}.log").write_bytes(b"".join(stored))
    return directory.parent


@pytest.fixture
def indexed(tmp_path: Path) -> Path:
    """Return two topics as our own storage leaves them, closed cleanly, with small segments and dense indexes."""
    directory = tmp_path / "indexed"
    config = LogConfig(retention_ms=-1, segment_bytes=4096, index_interval_bytes=200)
    logs = LogManager([str(directory)], config, ManualClock(START_MS), cluster_id="c")
    logs.open_all()
    for topic, count in (("events", BATCHES), ("other", 3)):
        for partition in range(2):
            log = logs.create(topic, partition)
            for number in range(count):
                append(log, *(b"%d" % (number * 10 + n) for n in range(10)), timestamp=START_MS + number)
    logs.close()
    return directory


ALL = list(range(BATCHES * RECORDS_A_BATCH))


@pytest.mark.parametrize("split", ["1", "300", "1000000"])
def test_every_record_once_however_it_is_split(plain: Path, split: str) -> None:
    source = reader(plain, splitBytes=split)
    assert [row["offset"] for row in rows(source)] == ALL
    assert {row["value"] for row in rows(source)} == {b"value %d" % offset for offset in ALL}
    ranges = tasks(source)
    assert len(ranges) >= (BATCHES if split == "1" else 3)
    for before, after in pairwise(ranges):
        assert before.end_offset <= after.first_offset


@pytest.mark.parametrize(("first", "end"), [(0, 600), (5, 595), (199, 201), (200, 400), (333, 334), (599, 600)])
def test_rows_are_limited_by_starting_and_ending_offsets(plain: Path, first: int, end: int) -> None:
    wanted = {
        "startingOffsets": json.dumps({"events": {"0": first}}),
        "endingOffsets": json.dumps({"events": {"0": end}}),
    }
    assert offsets(plain, **wanted, splitBytes="500") == list(range(first, end))


def test_rows_are_limited_by_timestamps_if_the_format_has_timestamps(plain: Path) -> None:
    has_times = any(row["timestampType"] == 0 for row in rows(reader(plain)))
    wanted = {"startingTimestamp": str(START_MS + 123), "endingTimestamp": str(START_MS + 456)}
    if has_times:
        assert offsets(plain, **wanted) == list(range(123, 456))
    else:
        with pytest.raises(OptionError, match="events-0: no record has a timestamp of at least"):
            offsets(plain, **wanted)
        assert offsets(plain, **wanted, startingOffsetsByTimestampStrategy="latest") == []


def test_modes_see_the_same_batches(plain: Path) -> None:
    sizes = {path.name: path.stat().st_size for path in (plain / "events-0").glob("*.log")}
    headers = rows(reader(plain, mode="batches", splitBytes="700"))
    assert sum(row["sizeInBytes"] for row in headers) == sum(sizes.values())
    assert {row["segment"] for row in headers} == set(sizes)
    raw = rows(reader(plain, mode="raw", splitBytes="700"))
    stored = b"".join(path.read_bytes() for path in sorted((plain / "events-0").glob("*.log")))
    assert b"".join(row["raw"] for row in raw) == stored
    ranges = rows(reader(plain, mode="ranges", splitBytes="700"))
    assert sum(row["sizeInBytes"] for row in ranges) == sum(sizes.values())
    assert ranges[0]["fromOffset"] == 0
    assert ranges[-1]["untilOffset"] == len(ALL)


def test_a_torn_tail_ends_the_log(plain: Path) -> None:
    last = max((plain / "events-0").glob("*.log"))
    last.write_bytes(last.read_bytes()[:-3])
    found = offsets(plain)
    assert found == ALL[: len(found)]
    assert len(ALL) - RECORDS_A_BATCH <= len(found) < len(ALL)


def test_zeros_behind_the_last_batch_are_a_torn_tail(plain: Path) -> None:
    with max((plain / "events-0").glob("*.log")).open("ab") as file:
        file.write(bytes(100))
    assert offsets(plain) == ALL


def test_a_flipped_bit_is_an_error_that_names_the_offset(plain: Path) -> None:
    middle = sorted((plain / "events-0").glob("*.log"))[1]
    damaged = bytearray(middle.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    middle.write_bytes(damaged)
    with pytest.raises(DamagedLogError, match=r"^events-0 offset [23]\d\d: "):
        rows(reader(plain))


def test_garbage_in_a_segment_before_the_last_is_an_error(plain: Path) -> None:
    middle = sorted((plain / "events-0").glob("*.log"))[1]
    middle.write_bytes(middle.read_bytes() + b"garbage that is no batch at all")
    for mode in ("records", "batches", "raw"):
        with pytest.raises(DamagedLogError, match=r"^events-0 "):
            rows(reader(plain, mode=mode))


def test_the_directory_of_a_single_partition_can_be_read(plain: Path) -> None:
    assert offsets(plain / "events-0") == ALL


def test_topics_are_selected_by_glob_in_several_log_directories(indexed: Path, plain: Path) -> None:
    assert {row["topic"] for row in rows(reader(indexed, topic="ev*"))} == {"events"}
    both = rows(reader(Path(f"{indexed}, {plain}"), mode="ranges"))
    assert {(row["topic"], row["partition"]) for row in both} == {
        ("events", 0),
        ("events", 1),
        ("other", 0),
        ("other", 1),
    }
    with pytest.raises(OptionError, match=r"no topic nothing in /.*"):
        rows(reader(indexed, topic="ev*,nothing"))


def test_assign_selects_the_named_partitions(indexed: Path) -> None:
    found = rows(reader(indexed, assign='{"events": [1], "other": [0]}', mode="ranges"))
    assert {(row["topic"], row["partition"]) for row in found} == {("events", 1), ("other", 0)}
    with pytest.raises(OptionError, match=r"assign: no partition other-7 in /.*"):
        rows(reader(indexed, assign='{"events": [1], "other": [0, 7]}', mode="ranges"))


def test_a_path_that_does_not_exist_is_refused() -> None:
    with pytest.raises(OptionError, match="path /nowhere: No such file"):
        reader(Path("/nowhere")).partitions()


@pytest.mark.parametrize("damage", ["", "missing", "flipped", "zeros"])
def test_a_damaged_or_missing_index_does_not_change_the_rows(indexed: Path, damage: str) -> None:
    for index in indexed.rglob("*.gindex"):
        if damage == "missing":
            index.unlink()
        elif damage:
            data = bytearray(index.read_bytes())
            data[100:] = bytes(len(data) - 100) if damage == "zeros" else bytes(byte ^ 255 for byte in data[100:])
            index.write_bytes(data)
    wanted = {"topic": "events", "startingOffsets": json.dumps({"events": {"0": 77}}), "splitBytes": "400"}
    assert offsets(indexed, **wanted) == [*ALL[77:], *ALL]


def pruned(directory: Path, *filters: Filter) -> list[LogRange]:
    source = reader(directory, splitBytes="500")
    assert list(source.pushFilters(list(filters))) == list(filters)
    return tasks(source)


def test_pushed_filters_prune_ranges_by_topic_partition_offset_and_timestamp(indexed: Path) -> None:
    everything = pruned(indexed)
    assert {item.partition for item in pruned(indexed, EqualTo(("partition",), 1))} == {1}
    assert {item.topic for item in pruned(indexed, In(("topic",), ("other", "x")))} == {"other"}
    few = pruned(indexed, GreaterThan(("offset",), 549), LessThan(("offset",), 560), EqualTo(("topic",), "events"))
    assert [(item.first_offset, item.end_offset) for item in few] == [(550, 560)] * 2
    moment = datetime.fromtimestamp((START_MS + 50) / 1000, UTC)
    late = pruned(indexed, GreaterThanOrEqual(("timestamp",), moment), EqualTo(("topic",), "events"))
    assert 0 < len(late) < len(everything) // 2
    source = reader(indexed)
    source.pushFilters([GreaterThanOrEqual(("timestamp",), moment)])
    kept = [row["offset"] for row in rows(source) if row["timestamp"] >= moment]
    assert kept == [offset for offset in ALL if offset >= 500] * 2


def test_unsupported_filters_prune_nothing() -> None:
    assert pruning_of([Not(EqualTo(("offset",), 1)), EqualTo(("value",), b"x")]) == pruning_of([])


def test_deleted_offsets_are_data_loss_unless_fail_on_data_loss_is_false(indexed: Path) -> None:
    for path in (indexed / "events-0").iterdir():
        if path.name < "00000000000000000100":
            path.unlink()
    wanted = {"topic": "events", "startingOffsets": json.dumps({"events": {"0": 5}})}
    with pytest.raises(DataLossError, match=r"^events-0: offset 5 is missing, the log has \d+ up to 600"):
        offsets(indexed, **wanted)
    assert offsets(indexed, **wanted, failOnDataLoss="false")[0] > 5


def test_segments_replaced_between_plan_and_read_give_the_same_rows(indexed: Path) -> None:
    """Compaction replaces the planned files by others; the offsets stay."""
    source = reader(indexed, topic="events", splitBytes="700", values="false")
    planned = source.partitions()
    for log in (indexed / "events-1").glob("*.log"):
        shutil.copy(log, log.with_suffix(".new"))
        log.with_suffix(".new").replace(log)
    found = [row["offset"] for task in planned for batch in source.read(task) for row in batch.to_pylist()]
    assert found == ALL * 2


def test_segments_that_went_away_are_data_loss(indexed: Path) -> None:
    source = reader(indexed, topic="events")
    planned = source.partitions()
    min((indexed / "events-0").glob("*.log")).unlink()
    with pytest.raises(DataLossError, match=r"^events-0: offset 0 is missing"):
        list(source.read(planned[0]))


def test_batches_that_recovery_would_truncate_are_not_read(indexed: Path) -> None:
    """Batches that the broker would truncate at its next start are not read: here those from a wrong CRC on."""
    (indexed / ".kafka_cleanshutdown").unlink()
    (indexed / "recovery-point-offset-checkpoint").unlink()
    segments = sorted((indexed / "events-0").glob("*.log"))
    damaged = bytearray(segments[1].read_bytes())
    damaged[-1] ^= 1
    segments[1].write_bytes(damaged)
    end = int(segments[2].stem) - RECORDS_A_BATCH
    only_first = {"endingOffsets": json.dumps({"events": {"1": 0}})}
    assert offsets(indexed, topic="events", **only_first) == ALL[:end]


HOLDER = """
import fcntl, sys
lock = open(sys.argv[1], "w")
fcntl.lockf(lock, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


def test_only_records_below_the_high_watermark_are_read_while_a_broker_runs(indexed: Path) -> None:
    (indexed / "replication-offset-checkpoint").write_text("0\n1\nevents 0 42\n")
    command = [sys.executable, "-c", HOLDER, str(indexed / ".lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        found = offsets(indexed, topic="events")
        holder.communicate(b"")
    assert found == [*range(42), *ALL]
    assert offsets(indexed, topic="events") == ALL * 2


def test_read_committed_returns_no_records_of_aborted_or_open_transactions(tmp_path: Path) -> None:
    """One transaction is aborted, one committed, one still open; plain records lie between them and behind."""
    logs = LogManager([str(tmp_path)], LogConfig(retention_ms=-1, segment_bytes=300), ManualClock(START_MS))
    logs.open_all()
    log = logs.create("money", 0)

    def transact(producer_id: int, value: bytes, sequence: int = 0) -> None:
        produced = payload(
            [value], producer_id=producer_id, producer_epoch=0, base_sequence=sequence, is_transactional=True
        )
        log.append(produced, leader_epoch=0)

    def end(producer_id: int, *, is_abort: bool) -> None:
        log.append(marker(is_abort=is_abort, producer_id=producer_id), leader_epoch=0, origin=AppendOrigin.COORDINATOR)

    transact(1, b"aborted")
    append(log, b"plain 1")
    transact(2, b"committed")
    end(1, is_abort=True)
    transact(1, b"committed later", sequence=1)
    end(2, is_abort=False)
    end(1, is_abort=False)
    append(log, b"plain 2")
    transact(3, b"open")
    append(log, b"behind the open one")
    logs.close()
    for index in tmp_path.rglob("*.txnindex"):
        index.unlink()

    def values(**options: str) -> list[bytes]:
        return [row["value"] for row in rows(reader(tmp_path, topic="money", **options))]

    everything = values()
    assert len(everything) == 7
    decided = [value for value in everything if value not in (b"aborted", b"open", b"behind the open one")]
    assert values(**{"kafka.isolation.level": "read_committed"}) == decided
    assert values(**{"kafka.isolation.level": "read_committed", "splitBytes": "1"}) == decided


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"splitByte": "1"}, "unknown option splitbyte; did you mean splitBytes?"),
        ({"mode": "rows"}, "mode must be one of records, batches, raw, ranges"),
        ({"splitBytes": "0"}, "splitBytes must be at least 1"),
        ({"checkCrc": "yes"}, "checkCrc must be true or false"),
        ({"startingOffsets": "{"}, "startingOffsets must be like"),
        ({"startingOffsets": '{"events": {"0": -3}}'}, "cannot have offset -3"),
        ({"endingOffsets": "earliest"}, "ending offset can't be earliest"),
        ({"startingTimestamp": "noon"}, "startingTimestamp must be a whole number"),
        ({"startingOffsetsByTimestampStrategy": "x"}, "must be error or latest"),
    ],
)
def test_invalid_options_are_refused(indexed: Path, options: dict[str, str], complaint: str) -> None:
    with pytest.raises(OptionError, match=complaint.replace("?", r"\?")):
        reader(indexed, **options).partitions()
