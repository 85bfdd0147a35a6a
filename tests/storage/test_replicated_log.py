"""A log that is one of several replicas: high watermark, epochs, restarts and truncations."""

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from gregor.protocol.records.batches import iter_batches
from gregor.storage.clock import ManualClock
from gregor.storage.disk.open_files import OpenFiles
from gregor.storage.log.log_config import LogConfig
from gregor.storage.log.partition_log import PartitionLog
from gregor.storage.log_manager import LogManager
from tests.storage.forgetful_files import ForgetfulFiles
from tests.storage.payloads import append, marker, payload, read_records


def open_log(directory: str = "/logs/topic-0") -> PartitionLog:
    return PartitionLog.open(directory, LogConfig(), ManualClock(5_000), pool=OpenFiles(ForgetfulFiles()))


def everything(log: PartitionLog) -> bytes:
    with log.read(0, 1 << 20) as found:
        return bytes(found.read())


def test_the_high_watermark_is_restored_from_its_checkpoint_after_a_restart(tmp_path: Path) -> None:
    clock = ManualClock(1_000)
    logs = LogManager([str(tmp_path)], LogConfig(), clock)
    logs.open_all()
    log = logs.create("topic", 0)
    logs.create("alone", 0)
    logs.restore_high_watermark(log)
    for value in (b"a", b"b", b"c"):
        append(log, value)
    assert log.high_watermark == 0
    log.advance_high_watermark(2)
    for write in logs.maintenance.high_watermark_checkpoints():
        write()
    log.advance_high_watermark(3)
    logs.close()

    logs = LogManager([str(tmp_path)], LogConfig(), clock)
    logs.open_all()
    log = logs.create("topic", 0)
    assert log.high_watermark == 3, "a sole replica until another role is set"
    logs.restore_high_watermark(log)
    assert log.high_watermark == 3
    assert (tmp_path / "replication-offset-checkpoint").read_text() == "0\n1\ntopic 0 3\n"
    logs.close()


def test_a_transaction_that_ended_above_the_high_watermark_is_not_stable_after_a_truncation() -> None:
    log = open_log()
    log.sole_replica = False
    log.append(payload([b"a"], producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True), leader_epoch=0)
    log.append(marker(is_abort=False, producer_id=1), leader_epoch=0)
    append(log, b"later")
    log.advance_high_watermark(1)
    log.truncate_to(2)
    assert log.high_watermark == 1
    assert log.last_stable_offset == 0, "its marker is not replicated"
    log.advance_high_watermark(2)
    assert log.last_stable_offset == 2


def test_old_messages_on_a_follower_get_the_leader_epoch_of_the_leader_log() -> None:
    leader, follower = open_log(), open_log("/logs/copy-0")
    for epoch, magic in ((1, 0), (1, 1), (3, 1), (3, 0)):
        leader.append(payload([b"x"], magic=magic), leader_epoch=epoch)
    batches = [bytes(batch.view) for batch in iter_batches(everything(leader))]
    follower.append_as_follower(b"".join(batches[:2]), unversioned_epoch=1)
    follower.append_as_follower(b"".join(batches[2:]), unversioned_epoch=3)
    for epoch in range(4):
        assert follower.end_offset_for_epoch(epoch) == leader.end_offset_for_epoch(epoch)
    assert read_records(follower, 0) == read_records(leader, 0)


def of_producer(log: PartitionLog, producer_id: int, sequence: int, *, epoch: int = 0) -> int:
    """Append one record of an idempotent producer; its offset."""
    produced = payload([b"x" * 40], producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
    return log.append(produced, leader_epoch=0).base_offset


def producers_of(log: PartitionLog) -> dict[int, tuple[int, list[tuple[int, ...]]]]:
    return {
        producer_id: (producer.epoch, [tuple(written) for written in producer.batches])
        for producer_id, producer in log.producers.producers.items()
    }


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 9)), min_size=1, max_size=30), st.data())
@settings(max_examples=60)
def test_a_truncated_log_has_the_same_state_as_after_reopening(
    writes: list[tuple[int, int]], data: st.DataObject
) -> None:
    files = ForgetfulFiles()
    log = PartitionLog.open("/logs/t-0", LogConfig(index_interval_bytes=200), ManualClock(5_000), pool=OpenFiles(files))
    epochs = dict.fromkeys(range(4), 0)
    sequences = dict.fromkeys(range(4), 0)
    for producer_id, chance in writes:
        if chance == 0:
            epochs[producer_id] += 1
            sequences[producer_id] = 0
        of_producer(log, producer_id, sequences[producer_id], epoch=epochs[producer_id])
        sequences[producer_id] += 1
        if chance == 9:
            append(log, b"plain", timestamp=1_000 + len(writes))
    log.truncate_to(data.draw(st.integers(1, log.log_end_offset)))
    again = PartitionLog.open("/logs/t-0", LogConfig(), ManualClock(5_000), pool=OpenFiles(files))
    found, expected = producers_of(log), producers_of(again)
    assert found.keys() == expected.keys()
    for producer_id, (epoch, batches) in expected.items():
        # The oldest of a producer's last batches may be missing: it cannot be in flight beside one that was truncated.
        assert found[producer_id][0] == epoch
        assert found[producer_id][1] in [batches[start:] for start in range(len(batches))]
    segment, other = log.segments[-1], again.segments[-1]
    assert (segment.size_bytes, segment.next_offset, segment.max_timestamp, segment.first_timestamp) == (
        other.size_bytes,
        other.next_offset,
        other.max_timestamp,
        other.first_timestamp,
    )
    assert append(log, b"on it goes") == again.log_end_offset
