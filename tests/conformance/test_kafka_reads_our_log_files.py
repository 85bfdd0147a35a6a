"""Kafka's DumpLogSegments over every file that we write in Kafka's formats, straight from the storage room."""

import shutil
import subprocess
from pathlib import Path

import pytest

from gregor.protocol.records.compression import Codec
from gregor.storage.clock import ManualClock
from gregor.storage.compaction.compaction import plan
from gregor.storage.disk.files import OsFiles
from gregor.storage.log.head_space import due_reclaiming
from gregor.storage.log.log_config import LogConfig
from gregor.storage.log.partition_log import AppendOrigin, PartitionLog
from tests.storage.payloads import append, marker, payload

pytestmark = pytest.mark.peer

NOW_MS = 1_700_000_000_000


@pytest.fixture
def dump(shared: Path) -> "Dump":
    """Return Kafka's tool DumpLogSegments; skip the test without it."""
    kafka = shared / "peer" / "kafka39"
    if not kafka.exists() or shutil.which("java") is None:
        pytest.skip("Kafka's tools need ../shared/peer and a Java 17")
    return Dump(kafka)


class Dump:
    """A runner of the tool on files of one kind."""

    def __init__(self, kafka: Path) -> None:
        self._kafka = kafka

    def __call__(self, *files: Path) -> str:
        """Return the output of the tool; fail if it reports an error."""
        command = [str(self._kafka), "tool", "kafka.tools.DumpLogSegments", "--deep-iteration", "--print-data-log"]
        run = subprocess.run(
            [*command, "--files", ",".join(map(str, files))], capture_output=True, text=True, timeout=600
        )
        assert run.returncode == 0, run.stdout + run.stderr
        for complaint in ("Mismatch", "Non-consecutive", "isvalid: false", "Exception"):
            assert complaint not in run.stdout + run.stderr
        return run.stdout


def open_log(directory: Path, **settings: int) -> PartitionLog:
    return PartitionLog.open(str(directory), LogConfig(**settings), ManualClock(NOW_MS))  # type: ignore[arg-type]


def test_kafka_reads_segments_of_every_format_and_codec(tmp_path: Path, dump: Dump) -> None:
    log = open_log(tmp_path / "topic-0", segment_bytes=1000)
    for codec in Codec:
        # A v0 wrapper is stored as produced, and Kafka's tool then complains of the producer's own offsets inside it.
        for magic in (0, 1, 2) if codec is Codec.NONE else (2,) if codec is Codec.ZSTD else (1, 2):
            append(log, b"one", b"two", b"three", magic=magic, codec=codec, timestamp=NOW_MS)
    end_offset = log.log_end_offset
    log.close()
    segments = sorted((tmp_path / "topic-0").glob("*.log"))
    assert len(segments) > 1
    output = dump(*segments)
    assert f"lastOffset: {end_offset - 1} " in output
    assert output.count("payload: three") == 2 * len(Codec)


def test_kafka_reads_snapshots_and_transaction_indexes(tmp_path: Path, dump: Dump) -> None:
    log = open_log(tmp_path / "topic-0")
    for producer_id in (5, 6):
        produced = payload(
            [b"value"], producer_id=producer_id, producer_epoch=2, base_sequence=0, is_transactional=True
        )
        log.append(produced, leader_epoch=0)
    aborted = marker(is_abort=True, producer_id=6, producer_epoch=2, coordinator_epoch=3)
    log.append(aborted, leader_epoch=0, origin=AppendOrigin.COORDINATOR)
    log.close()
    snapshot = dump(tmp_path / "topic-0" / "00000000000000000003.snapshot")
    assert "producerId: 5 producerEpoch: 2 coordinatorEpoch: -1 currentTxnFirstOffset: OptionalLong[0]" in snapshot
    assert "producerId: 6 producerEpoch: 2 coordinatorEpoch: 3 currentTxnFirstOffset: OptionalLong.empty" in snapshot
    assert "lastSequence: 0" in snapshot
    index = dump(tmp_path / "topic-0" / "00000000000000000000.txnindex")
    assert "producerId: 6 firstOffset: 1 lastOffset: 2 lastStableOffset: 0" in index


def test_kafka_reads_a_compacted_segment_and_a_reclaimed_head(tmp_path: Path, dump: Dump) -> None:
    compacted = PartitionLog.open(
        str(tmp_path / "compacted-0"), LogConfig(cleanup_policy="compact"), ManualClock(NOW_MS)
    )
    for number in range(20):
        append(compacted, b"%d" % number, timestamp=NOW_MS, codec=Codec.GZIP if number % 2 else Codec.NONE)
    compacted.roll()
    planned = plan(compacted, OsFiles(), ManualClock(NOW_MS), 0)
    assert planned is not None
    planned.run()
    assert planned.commit()
    path = Path(compacted.segments[0].path)
    compacted.close()
    assert "payload: 19" in dump(path)

    reclaimed = open_log(tmp_path / "reclaimed-0")
    for number in range(20):
        append(reclaimed, b"%d" % number + b"x" * 100_000, timestamp=NOW_MS)
    reclaimed.advance_log_start(15)
    reclaim = due_reclaiming(reclaimed, OsFiles())
    assert reclaim is not None
    reclaim()
    path = Path(reclaimed.segments[0].path)
    reclaimed.close()
    output = dump(path)
    assert "baseOffset: 0 lastOffset: 14 count: 0" in output
    assert "offset: 15 " in output
