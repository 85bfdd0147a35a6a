"""`gregor dump-log` on files of every kind, without a broker."""

from pathlib import Path

import pytest

from gregor.command_line import main
from gregor.protocol.records.compression import Codec
from gregor.storage.clock import ManualClock
from gregor.storage.log.log_config import LogConfig
from gregor.storage.log.partition_log import AppendOrigin, PartitionLog
from tests.storage.payloads import append, marker, payload

NOW_MS = 7_000
FIRST = "0" * 20


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    """A closed log with v0, v1 and v2 batches and an aborted transaction, in one segment."""
    log = PartitionLog.open(str(tmp_path / "topic-0"), LogConfig(), ManualClock(NOW_MS))
    append(log, b"old", magic=0)
    append(log, b"a", b"b", magic=0, codec=Codec.GZIP)
    append(log, b"c", b"d", magic=1, codec=Codec.SNAPPY, timestamp=NOW_MS)
    append(log, b"e", timestamp=NOW_MS)
    append(log, b"f", b"g", codec=Codec.ZSTD, timestamp=NOW_MS)
    begun = payload([b"h"], producer_id=5, producer_epoch=2, base_sequence=0, is_transactional=True)
    log.append(begun, leader_epoch=0)
    aborted = marker(is_abort=True, producer_id=5, producer_epoch=2, coordinator_epoch=3)
    log.append(aborted, leader_epoch=0, origin=AppendOrigin.COORDINATOR)
    log.close()
    return tmp_path / "topic-0"


def dump(capsys: pytest.CaptureFixture[str], *words: object) -> list[str]:
    """The lines that `gregor dump-log WORDS` prints."""
    assert main(["dump-log", *map(str, words)]) == 0
    return capsys.readouterr().out.splitlines()


def fails(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    assert main(["dump-log", *map(str, words)]) == 1
    return capsys.readouterr().err


def test_batches_show_the_tags_that_only_the_index_knows(capsys: pytest.CaptureFixture[str], partition: Path) -> None:
    _, start, *batches = dump(capsys, partition / f"{FIRST}.log")
    assert start == "Log starting offset: 0"
    tags = [line.partition(" tags: ")[2] for line in batches]
    assert tags == [
        "timestamp=7000,num_messages=1,relative_offsets_honoured=true",
        "timestamp=7000,num_messages=2,relative_offsets_honoured=false,keyed=true",
        "timestamp=7000,num_messages=2,relative_offsets_honoured=true,keyed=true",
        "",
        "timestamp=7000,num_messages=2,relative_offsets_honoured=true,keyed=true",
        "",
        "",
    ]


def test_without_an_index_there_are_kafkas_words_only(capsys: pytest.CaptureFixture[str], partition: Path) -> None:
    (partition / f"{FIRST}.gindex").unlink()
    assert "tags" not in "".join(dump(capsys, partition / f"{FIRST}.log"))


def test_an_index(capsys: pytest.CaptureFixture[str], partition: Path) -> None:
    _, summary, *entries = dump(capsys, partition / f"{FIRST}.gindex")
    assert summary.startswith(f"baseOffset: 0 logSizeBytes: {(partition / f'{FIRST}.log').stat().st_size} ")
    assert "nextOffset: 10 " in summary
    assert "magics: [0, 1, 2] hasGaps: false" in summary
    assert entries[0] == "offset: 0 position: 0 timestamp: 7000 tags: receipt=7000"
    assert entries[1].endswith("tags: receipt=7000,num_messages=2")


def test_a_damaged_index(capsys: pytest.CaptureFixture[str], partition: Path) -> None:
    path = partition / f"{FIRST}.gindex"
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    assert "has a wrong checksum" in fails(capsys, path)
    assert len(dump(capsys, partition / f"{FIRST}.log")) == 9, "the segment can be read all the same"


def test_files_of_transactions_producers_and_epochs(capsys: pytest.CaptureFixture[str], partition: Path) -> None:
    transactions = dump(capsys, partition / f"{FIRST}.txnindex")
    assert transactions[1:] == ["version: 0 producerId: 5 firstOffset: 8 lastOffset: 9 lastStableOffset: 10"]
    (snapshot,) = partition.glob("*.snapshot")
    (producer,) = dump(capsys, snapshot)[1:]
    assert producer.startswith("producerId: 5 producerEpoch: 2 coordinatorEpoch: 3 currentTxnFirstOffset: OptionalLong")
    assert "firstSequence: 0 lastSequence: 0 " in producer
    assert dump(capsys, partition / "leader-epoch-checkpoint")[1:] == ["leaderEpoch: 0 startOffset: 0"]
    snapshot.write_bytes(b"\0\1garbage")
    assert "no snapshot" in fails(capsys, snapshot)


def test_the_enriched_layout_is_shown(capsys: pytest.CaptureFixture[str], partition: Path) -> None:
    _, _, *lines = dump(capsys, "--enriched", "--print-data-log", partition / f"{FIRST}.log")
    messages = [line for line in lines if not line.startswith("|")]
    assert messages[0] == "offset: 0 magic: 1 type: none timestamp: 7 tags: timestamp=7000 keySize: 1 valueSize: 3"
    assert messages[1].startswith(
        "offset: 1 magic: 1 type: gzip timestamp: 7 tags: timestamp=7000,num_messages=2,"
        "relative_offsets_honoured=false,keyed=true keySize: -1 valueSize: "
    )
    assert messages[-1].startswith("offset: 9 magic: 1 type: abort_transaction ")
    records = [line for line in lines if line.startswith("|")]
    assert [line.rpartition(" ")[2] for line in records] == ["old", *"abcdefgh"]
    assert [int(line.split()[2]) for line in records] == list(range(9))


def test_the_enriched_layout_is_written_and_read(
    capsys: pytest.CaptureFixture[str], partition: Path, tmp_path: Path
) -> None:
    segment, copy = partition / f"{FIRST}.log", tmp_path / "copy.enriched"
    shown = dump(capsys, "--enriched", "--deep-iteration", segment)[2:]
    assert dump(capsys, "--enriched", "--output", copy, segment)[2:] == []
    assert dump(capsys, "--deep-iteration", copy)[1:] == shown
    assert "File exists" in fails(capsys, "--enriched", "--output", copy, segment)
    assert "--output is for --enriched" in fails(capsys, "--output", tmp_path / "other", segment)
    copy.write_bytes(copy.read_bytes()[:30] + b"x" + copy.read_bytes()[31:])
    assert "CORRUPT_MESSAGE" in fails(capsys, copy)


def test_dumping_changes_nothing(capsys: pytest.CaptureFixture[str], partition: Path) -> None:
    def contents() -> dict[str, tuple[bytes, int]]:
        return {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in partition.iterdir()}

    before = contents()
    dump(capsys, "--deep-iteration", *sorted(partition.iterdir()))
    assert contents() == before


def test_an_unfinished_tail_is_counted(capsys: pytest.CaptureFixture[str], partition: Path) -> None:
    segment = partition / f"{FIRST}.log"
    segment.write_bytes(segment.read_bytes() + b"\0" * 9)
    assert dump(capsys, segment)[-1] == f"Found 9 invalid bytes at the end of {segment.name}"
