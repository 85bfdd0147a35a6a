"""Log directories: identity, lock, checkpoints, adoption, deletion, and many partitions with few open files."""

import json
import os
import uuid
from pathlib import Path

import pytest

from gregor.protocol.topic_partition import TopicPartition
from gregor.storage.clock import ManualClock
from gregor.storage.disk.checkpoints import (
    MalformedCheckpointError,
    decode_uuid,
    encode_uuid,
    format_lines,
    parse_lines,
    read_offsets,
)
from gregor.storage.disk.files import OsFiles
from gregor.storage.index.batch_tags import Tags
from gregor.storage.log.leader_epochs import LeaderEpochs
from gregor.storage.log.log_config import LogConfig
from gregor.storage.log.partition_log import PartitionLog
from gregor.storage.log.segment import Segment
from gregor.storage.log_manager import LogManager, StorageUnavailableError
from gregor.storage.recovery.recovery import ScanResult, ScanRules
from tests.storage.payloads import append, payload, read_all, values_of

NOW_MS = 10_000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW_MS)


def manager(clock: ManualClock, *directories: Path, **options: object) -> LogManager:
    made = LogManager([str(path) for path in directories], LogConfig(retention_ms=-1), clock, **options)  # type: ignore[arg-type]
    made.open_all()
    return made


def maintain(logs: LogManager, clock: ManualClock) -> None:
    for step in logs.maintenance.run(clock.now_ms()):
        step()


def test_logs_topic_ids_and_the_cluster_id_survive_a_restart(tmp_path: Path, clock: ManualClock) -> None:
    logs = manager(clock, tmp_path, cluster_id="abc")
    topic_id = uuid.uuid4()
    append(logs.create("topic", 0, topic_id), b"one", b"two")
    logs.close()
    again = manager(clock, tmp_path)
    assert list(again.partitions()) == [TopicPartition("topic", 0)]
    log = again.get("topic", 0)
    assert log is not None
    assert values_of(read_all(log)) == [b"one", b"two"]
    assert log.topic_id == topic_id
    assert again.cluster_id == "abc"
    again.close()


def test_partitions_spread_over_directories(tmp_path: Path, clock: ManualClock) -> None:
    logs = manager(clock, tmp_path / "a", tmp_path / "b")
    for partition in range(4):
        logs.create("topic", partition)
    homes = [logs.directory_of("topic", partition) for partition in range(4)]
    assert [home.path[-1] for home in homes if home] == ["a", "b", "a", "b"]
    logs.close()


def test_kafkas_files_are_written(tmp_path: Path, clock: ManualClock) -> None:
    logs = manager(clock, tmp_path, node_id=3, cluster_id="AAAAAAAAAAAAAAAAAAAAAw")
    log = logs.create("topic", 0, uuid.UUID(int=5))
    append(log, b"one", b"two", b"three")
    log.advance_log_start(2)
    logs.close()
    meta = (tmp_path / "meta.properties").read_text()
    assert "node.id=3\n" in meta
    assert "version=1\n" in meta
    assert "cluster.id=AAAAAAAAAAAAAAAAAAAAAw\n" in meta
    assert (tmp_path / "recovery-point-offset-checkpoint").read_text() == "0\n1\ntopic 0 3\n"
    assert (tmp_path / "log-start-offset-checkpoint").read_text() == "0\n1\ntopic 0 2\n"
    assert json.loads((tmp_path / ".kafka_cleanshutdown").read_text())["version"] == 0
    metadata = (tmp_path / "topic-0" / "partition.metadata").read_text()
    assert metadata == "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAABQ\n"
    assert (tmp_path / "topic-0" / "leader-epoch-checkpoint").read_text() == "0\n1\n0 2\n"


def test_the_clean_shutdown_marker_is_used_once(tmp_path: Path, clock: ManualClock) -> None:
    manager(clock, tmp_path).close()
    marker = tmp_path / ".kafka_cleanshutdown"
    assert marker.exists()
    logs = manager(clock, tmp_path)
    assert not marker.exists()
    logs.close()


class TestRefusals:
    def refused(self, clock: ManualClock, path: Path, **options: object) -> str:
        with pytest.raises(StorageUnavailableError) as caught:
            manager(clock, path, **options)
        assert "\n" not in str(caught.value)
        return str(caught.value)

    def test_a_log_directory_in_use_is_refused(self, tmp_path: Path, clock: ManualClock) -> None:
        logs = manager(clock, tmp_path)
        assert "in use" in self.refused(clock, tmp_path)
        logs.close()
        manager(clock, tmp_path).close()

    def test_a_log_directory_of_another_cluster_is_refused(self, tmp_path: Path, clock: ManualClock) -> None:
        manager(clock, tmp_path, cluster_id="one").close()
        assert "belongs to cluster one" in self.refused(clock, tmp_path, cluster_id="two")

    def test_a_log_directory_of_another_node_is_refused(self, tmp_path: Path, clock: ManualClock) -> None:
        manager(clock, tmp_path, node_id=1).close()
        assert "node.id=1" in self.refused(clock, tmp_path, node_id=2)

    @pytest.mark.parametrize("version", ["99", "2", "x"])
    def test_an_unknown_version_of_meta_properties_is_refused(
        self, tmp_path: Path, clock: ManualClock, version: str
    ) -> None:
        manager(clock, tmp_path).close()
        meta = tmp_path / "meta.properties"
        text = meta.read_text().replace("version=1", f"version={version}")
        meta.write_text(text)
        assert f"version number {version}" in self.refused(clock, tmp_path)
        assert meta.read_text() == text

    def test_a_file_as_log_directory_is_refused(self, tmp_path: Path, clock: ManualClock) -> None:
        (tmp_path / "file").write_text("")
        assert "cannot be used" in self.refused(clock, tmp_path / "file")

    def test_a_refused_log_directory_unlocks_the_others(self, tmp_path: Path, clock: ManualClock) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(StorageUnavailableError):
            manager(clock, tmp_path / "good", tmp_path / "file")
        manager(clock, tmp_path / "good").close()


def test_garbage_files_in_a_log_directory_are_ignored(tmp_path: Path, clock: ManualClock) -> None:
    logs = manager(clock, tmp_path)
    append(logs.create("topic", 0), b"one")
    logs.close()
    for name in ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "meta.properties"):
        (tmp_path / name).write_bytes(b"\xff\0garbage")
    for name in ("lost+found", "topic", "topic-x", "topic-00", "-1", "..-1", "topic-1.%s-stray" % ("0" * 32)):
        (tmp_path / name).mkdir()
    (tmp_path / "file-0").write_text("not a directory")
    again = manager(clock, tmp_path)
    assert list(again.partitions()) == [TopicPartition("topic", 0)]
    log = again.get("topic", 0)
    assert log is not None
    assert values_of(read_all(log)) == [b"one"]
    again.close()


def test_a_deleted_log_is_renamed_and_removed_after_file_delete_delay_ms(tmp_path: Path, clock: ManualClock) -> None:
    logs = manager(clock, tmp_path)
    log = logs.create("topic", 0)
    append(log, b"one")
    held = log.read(0, 100)
    logs.delete("topic", 0)
    assert logs.get("topic", 0) is None
    (doomed,) = [name for name in os.listdir(tmp_path) if name.endswith("-delete")]
    assert doomed.startswith("topic-0.")
    recreated = logs.create("topic", 0)
    assert recreated.log_end_offset == 0
    maintain(logs, clock)
    assert (tmp_path / doomed).exists()
    clock.advance(LogConfig().file_delete_delay_ms)
    maintain(logs, clock)
    assert not (tmp_path / doomed).exists()
    assert len(held.read()) > 0, "a slice outlives its log"
    held.release()
    logs.close()


def test_left_over_deletions_are_finished_at_start(tmp_path: Path, clock: ManualClock) -> None:
    logs = manager(clock, tmp_path)
    logs.create("t" * 249, 0)
    logs.delete("t" * 249, 0)
    logs.close()
    again = manager(clock, tmp_path)
    assert list(again.partitions()) == []
    maintain(again, clock)
    assert not [name for name in os.listdir(tmp_path) if name.endswith("-delete")]
    again.close()


def test_few_files_are_open_however_many_partitions(tmp_path: Path, clock: ManualClock) -> None:
    logs = manager(clock, tmp_path, max_open_files=20)
    before = len(os.listdir("/proc/self/fd"))
    for partition in range(100):
        append(logs.create("topic", partition), b"%d" % partition)
    for partition in range(100):
        log = logs.get("topic", partition)
        assert log is not None
        append(log, b"again")
        assert values_of(read_all(log)) == [b"%d" % partition, b"again"]
    assert len(os.listdir("/proc/self/fd")) - before <= 24
    logs.close()
    assert len(os.listdir("/proc/self/fd")) <= before


def test_held_slices_survive_eviction(tmp_path: Path, clock: ManualClock) -> None:
    logs = manager(clock, tmp_path, max_open_files=4)
    append(logs.create("topic", 0), b"held")
    log = logs.get("topic", 0)
    assert log is not None
    held = log.read(0, 1000)
    expected = held.read()
    for partition in range(1, 30):
        append(logs.create("topic", partition), b"other")
    assert held.read() == expected
    held.release()
    held.release()
    with pytest.raises(ValueError, match="released"):
        _ = held.descriptor
    logs.close()


def test_maintenance_flushes_logs_after_flush_ms_and_at_a_roll(tmp_path: Path, clock: ManualClock) -> None:
    logs = manager(clock, tmp_path)
    log = logs.create("topic", 0, config=LogConfig(flush_ms=500, retention_ms=-1))
    append(log, b"one")
    maintain(logs, clock)
    assert log.recovery_point == 0
    clock.advance(500)
    maintain(logs, clock)
    assert log.recovery_point == 1
    append(log, b"two")
    log.roll()
    maintain(logs, clock)
    assert log.recovery_point == 2, "a full segment is flushed without a call"
    checkpoint = read_offsets(OsFiles(), str(tmp_path / "recovery-point-offset-checkpoint"))
    assert checkpoint == {TopicPartition("topic", 0): 2}
    logs.close()


def test_a_log_is_flushed_after_flush_messages_records(tmp_path: Path, clock: ManualClock) -> None:
    logs = manager(clock, tmp_path)
    log = logs.create("topic", 0, config=LogConfig(flush_messages=3))
    append(log, b"1", b"2")
    assert log.recovery_point == 0
    append(log, b"3")
    assert log.recovery_point == 3
    logs.close()


@pytest.mark.parametrize(
    "data",
    [b"", b"0\n", b"0\nx\n", b"1\n0\n", b"0\n2\na 0 1\n", b"0\n-1\n", b"\xff\n0\n", b"0\n1\na 0 1\nb 0 1\n"],
)
def test_malformed_checkpoints_are_refused(data: bytes) -> None:
    with pytest.raises(MalformedCheckpointError):
        parse_lines(data)


@pytest.mark.parametrize("entry", ["topic 0 -1", "topic 0 9223372036854775808", "topic -1 2", "topic 2147483648 2"])
def test_an_invalid_log_start_checkpoint_deletes_no_records(tmp_path: Path, clock: ManualClock, entry: str) -> None:
    logs = manager(clock, tmp_path)
    append(logs.create("topic", 0), b"1", b"2")
    logs.close()
    (tmp_path / "log-start-offset-checkpoint").write_text(f"0\n1\n{entry}\n")

    logs = manager(clock, tmp_path)
    log = logs.get("topic", 0)
    assert log is not None
    assert (log.log_start_offset, log.log_end_offset) == (0, 2)
    logs.close()

    with pytest.raises(MalformedCheckpointError):
        read_offsets(OsFiles(), _written(tmp_path / "checkpoint", f"0\n1\n{entry}\n"))


@pytest.mark.parametrize("entry", ["0 9223372036854775808", "2147483648 0", "-1 0", "0 -1", "0"])
def test_an_invalid_leader_epoch_checkpoint_is_malformed(tmp_path: Path, entry: str) -> None:
    path = _written(tmp_path / "leader-epoch-checkpoint", f"0\n1\n{entry}\n")
    with pytest.raises(MalformedCheckpointError):
        LeaderEpochs(OsFiles(), path).load()


def _written(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def test_checkpoint_lines_are_read_as_written() -> None:
    lines = ["a 0 1", "b 1 2"]
    assert parse_lines(format_lines(lines)) == lines


def test_uuids_are_encoded_in_22_characters_and_decoded() -> None:
    value = uuid.uuid4()
    assert decode_uuid(encode_uuid(value)) == value
    assert len(encode_uuid(value)) == 22
    for bad in ("", "???", "AAAA"):
        with pytest.raises(ValueError, match=r".*"):
            decode_uuid(bad)


def test_many_logs_are_closed_at_the_same_time(tmp_path: Path, clock: ManualClock) -> None:
    logs = manager(clock, tmp_path)
    for partition in range(50):
        append(logs.create("topic", partition), b"%d" % partition)
    logs.close()
    assert not list(tmp_path.glob("topic-*/*.snapshot")), "no producer had an id"
    again = manager(clock, tmp_path)
    for partition in range(50):
        log = again.get("topic", partition)
        assert log is not None
        assert values_of(read_all(log)) == [b"%d" % partition]
    again.close()


def test_a_log_that_fails_to_close_leaves_no_clean_shutdown_marker(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = manager(clock, tmp_path)
    for partition in range(50):
        append(logs.create("topic", partition), b"%d" % partition)
    bad = logs.get("topic", 33)
    close = PartitionLog.close

    def failing(log: PartitionLog) -> None:
        if log is bad:
            raise OSError("the disk is gone")
        close(log)

    monkeypatch.setattr(PartitionLog, "close", failing)
    logs.close()
    assert not (tmp_path / ".kafka_cleanshutdown").exists()


def test_producer_state_survives_restarts_until_it_expires(tmp_path: Path, clock: ManualClock) -> None:
    logs = manager(clock, tmp_path)
    log = logs.create("topic", 0)
    log.append(payload([b"a"], producer_id=5, producer_epoch=0, base_sequence=0), leader_epoch=0)
    logs.close()
    for is_known in (True, False, False):
        logs = manager(clock, tmp_path)
        reopened = logs.get("topic", 0)
        assert reopened is not None
        assert (5 in reopened.producers.producers) is is_known
        append(reopened, b"b")
        logs.maintenance.expire_producers(clock.now_ms())
        clock.advance(100_000_000)
        logs.maintenance.expire_producers(clock.now_ms())
        logs.close()
        assert len(list(tmp_path.glob("topic-0/*.snapshot"))) <= 1


def test_after_a_crash_only_logs_with_new_records_are_recovered(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = manager(clock, tmp_path)
    for partition in range(5):
        append(logs.create("topic", partition), b"%d" % partition)
    logs.close()
    crashed = manager(clock, tmp_path)
    written = crashed.get("topic", 3)
    assert written is not None
    append(written, b"more")
    for directory in crashed.directories:
        directory.unlock()
    read_again: list[str] = []
    rebuild = Segment.rebuild

    def noticed(segment: Segment, rules: ScanRules, tags: Tags | None = None) -> ScanResult:
        read_again.append(segment.path)
        return rebuild(segment, rules, tags)

    monkeypatch.setattr(Segment, "rebuild", noticed)
    again = manager(clock, tmp_path)
    assert [Path(path).parent.name for path in read_again] == ["topic-3"]
    for partition in range(5):
        log = again.get("topic", partition)
        assert log is not None
        assert values_of(read_all(log)) == [b"%d" % partition, *([b"more"] if partition == 3 else [])]
    again.close()
