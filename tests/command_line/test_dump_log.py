"""`gregor dump-log` on files of every kind, without a broker."""

from collections.abc import Callable
from pathlib import Path

import pytest

from gregor.command_line import main
from gregor.protocol.records.compression import Codec
from gregor.storage.clock import ManualClock
from gregor.storage.disk.files import OsFiles
from gregor.storage.disk.open_files import OpenFiles
from gregor.storage.index.copied_tags import tag_runs_of
from gregor.storage.index.index_format import NON_KEYED, IndexEntry
from gregor.storage.index.offset_index import OffsetIndex
from gregor.storage.log.log_config import LogConfig
from gregor.storage.log.partition_log import AppendOrigin, PartitionLog
from tests.storage.payloads import append, marker, payload

NOW_MS = 7_000
FIRST = "0" * 20
OLD_CODECS = (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4)


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    """Return a closed log with v0, v1 and v2 batches and an aborted transaction, in one segment."""
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
    """Return the lines that `gregor dump-log WORDS` prints."""
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


def test_without_an_index_batches_are_printed_without_tags(capsys: pytest.CaptureFixture[str], partition: Path) -> None:
    (partition / f"{FIRST}.gindex").unlink()
    assert "tags" not in "".join(dump(capsys, partition / f"{FIRST}.log"))


def test_the_entries_of_an_index_are_printed(capsys: pytest.CaptureFixture[str], partition: Path) -> None:
    _, summary, *entries = dump(capsys, partition / f"{FIRST}.gindex")
    assert summary.startswith(f"baseOffset: 0 logSizeBytes: {(partition / f'{FIRST}.log').stat().st_size} ")
    assert "nextOffset: 10 " in summary
    assert "magics: [0, 1, 2] hasGaps: false" in summary
    assert entries[0] == "offset: 0 position: 0 timestamp: 7000 tags: receipt=7000"
    assert entries[1].endswith("tags: receipt=7000,num_messages=2")


def test_a_damaged_index_is_refused_but_its_segment_is_printed(
    capsys: pytest.CaptureFixture[str], partition: Path
) -> None:
    path = partition / f"{FIRST}.gindex"
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    assert "has a wrong checksum" in fails(capsys, path)
    assert len(dump(capsys, partition / f"{FIRST}.log")) == 9, "the segment can be read nevertheless"


def test_transaction_index_producer_snapshot_and_leader_epochs_are_printed(
    capsys: pytest.CaptureFixture[str], partition: Path
) -> None:
    transactions = dump(capsys, partition / f"{FIRST}.txnindex")
    assert transactions[1:] == ["version: 0 producerId: 5 firstOffset: 8 lastOffset: 9 lastStableOffset: 10"]
    (snapshot,) = partition.glob("*.snapshot")
    (producer,) = dump(capsys, snapshot)[1:]
    assert producer.startswith("producerId: 5 producerEpoch: 2 coordinatorEpoch: 3 currentTxnFirstOffset: OptionalLong")
    assert "firstSequence: 0 lastSequence: 0 " in producer
    assert dump(capsys, partition / "leader-epoch-checkpoint")[1:] == ["leaderEpoch: 0 startOffset: 0"]
    snapshot.write_bytes(b"\0\1garbage")
    assert "not a snapshot" in fails(capsys, snapshot)


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


# --- dump-log --enriched --verify ---


ALL_KINDS = [
    (magic, codec, key)
    for magic, codecs in ((0, OLD_CODECS), (1, OLD_CODECS), (2, tuple(Codec)))
    for codec in codecs
    for key in (b"k", None)
]


@pytest.fixture
def all_kinds(tmp_path: Path) -> Path:
    """Return a log with sets of each format and codec, with and without keys, and a copy of it as a follower has it."""
    log = PartitionLog.open(str(tmp_path / "kinds-0"), LogConfig(), ManualClock(NOW_MS))
    for magic, codec, key in ALL_KINDS:
        values = [b"value %d" % number for number in range(5)]
        log.append(payload(values, magic=magic, codec=codec, key=key, timestamp=NOW_MS), leader_epoch=0)
    copy = PartitionLog.open(str(tmp_path / "copy-0"), LogConfig(), ManualClock(2 * NOW_MS))
    with log.read(0, 1 << 20) as stretch:
        copy.append_as_follower(stretch.read(), tags=tag_runs_of(stretch))
    for each in (log, copy):
        each.close()
    return tmp_path


def rewrite_index(path: Path, change: Callable[[IndexEntry], IndexEntry]) -> None:
    """Change the entries of an index, with right checksums, so that only a comparison with the batches can tell."""
    index = OffsetIndex(OpenFiles(OsFiles()), str(path), 0, 0)
    for number, entry in enumerate(list(index.entries())):
        table = index._table
        assert table is not None
        index._write_entry(table, number, change(entry))
    index.release_file()


@pytest.mark.parametrize("name", ["kinds-0", "copy-0"])
def test_verify_finds_no_difference_for_any_format_and_codec(
    capsys: pytest.CaptureFixture[str], all_kinds: Path, name: str
) -> None:
    segment = all_kinds / name / f"{FIRST}.log"
    *differences, summary = dump(capsys, "--enriched", "--verify", segment)[1:]
    assert differences == []
    # Each uncompressed message of v0 and v1 is a batch.
    plain, compressed = 2 * 2 * 5 + 2, 2 * 2 * (len(OLD_CODECS) - 1) + 2 * (len(Codec) - 1)
    assert summary == (
        f"Checked batches: {plain + compressed}, records: {len(ALL_KINDS) * 5}, "
        "differences between index and batches: 0"
    )


def test_verify_finds_no_difference_in_a_partition_with_a_transaction(
    capsys: pytest.CaptureFixture[str], partition: Path
) -> None:
    (summary,) = dump(capsys, "--enriched", "--verify", partition / f"{FIRST}.log")[1:]
    assert summary == "Checked batches: 7, records: 10, differences between index and batches: 0"


@pytest.mark.parametrize(
    ("change", "said", "count"),
    [
        (lambda entry: entry._replace(flags=NON_KEYED), "keyed is false, the batch has keys", 10),
        (lambda entry: entry._replace(receipt=-1), "there is no receipt time", 40),
        (
            lambda entry: entry._replace(num_messages=entry.num_messages + 1),
            "num_messages is 6, the batch has 5 messages",
            12,
        ),
        (
            lambda entry: entry._replace(offset=entry.offset + (entry.num_messages > 0)),
            "the first offset is",
            12,
        ),
    ],
    ids=["keyed", "receipt", "num_messages", "first offset"],
)
def test_verify_finds_each_difference_between_index_and_batches(
    capsys: pytest.CaptureFixture[str],
    all_kinds: Path,
    change: Callable[[IndexEntry], IndexEntry],
    said: str,
    count: int,
) -> None:
    rewrite_index(all_kinds / "kinds-0" / f"{FIRST}.gindex", change)
    assert main(["dump-log", "--enriched", "--verify", str(all_kinds / "kinds-0" / f"{FIRST}.log")]) == 1
    *_, summary = lines = capsys.readouterr().out.splitlines()
    assert sum(said in line for line in lines) >= count
    assert "differences between index and batches: 0" not in summary


def test_a_batch_without_keys_that_counts_as_keyed_is_no_difference(
    capsys: pytest.CaptureFixture[str], all_kinds: Path
) -> None:
    rewrite_index(all_kinds / "copy-0" / f"{FIRST}.gindex", lambda entry: entry._replace(flags=0))
    (summary,) = dump(capsys, "--enriched", "--verify", all_kinds / "copy-0" / f"{FIRST}.log")[1:]
    assert summary.endswith("batches: 0, batches without keys that count as keyed: 10")


def test_verify_needs_enriched_and_a_readable_index(capsys: pytest.CaptureFixture[str], all_kinds: Path) -> None:
    segment, index = all_kinds / "kinds-0" / f"{FIRST}.log", all_kinds / "kinds-0" / f"{FIRST}.gindex"
    assert "--verify is for --enriched" in fails(capsys, "--verify", segment)
    assert "--verify is for --enriched" in fails(capsys, "--enriched", "--verify", "--output", all_kinds / "o", segment)
    damaged = bytearray(index.read_bytes())
    damaged[200] ^= 1
    index.write_bytes(damaged)
    assert "there is no readable index beside it" in fails(capsys, "--enriched", "--verify", segment)
    index.unlink()
    assert "there is no readable index beside it" in fails(capsys, "--enriched", "--verify", segment)
