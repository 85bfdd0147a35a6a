"""Damage to the small files of transactions and idempotent producers: clients are not affected."""

from collections.abc import Callable

import pytest

from gregor.protocol.errors import BrokerError, ErrorCode
from gregor.storage.clock import ManualClock
from gregor.storage.disk.files import Files
from gregor.storage.disk.open_files import OpenFiles
from gregor.storage.log.log_config import LogConfig
from gregor.storage.log.partition_log import AbortedTransaction, AppendOrigin, PartitionLog
from gregor.storage.recovery.verification import verify_partition
from tests.storage.forgetful_files import ForgetfulFiles
from tests.storage.payloads import marker, payload

DIRECTORY = "/logs/topic-0"
NOW_MS = 10_000
SEQUENCES = 8

both_stops = pytest.mark.parametrize("is_clean", [False, True], ids=["killed", "stopped"])


def open_log(files: Files, *, is_clean: bool) -> PartitionLog:
    config = LogConfig(segment_bytes=300, retention_ms=-1)
    recovery_point = 0 if is_clean else 10_000
    return PartitionLog.open(
        DIRECTORY,
        config,
        ManualClock(NOW_MS),
        pool=OpenFiles(files),
        is_clean=is_clean,
        recovery_point=recovery_point,
    )


def send(log: PartitionLog, producer_id: int, sequence: int, *, is_transactional: bool = True) -> bool:
    """Append one record; whether it was there already."""
    produced = payload(
        [b"value"],
        timestamp=NOW_MS,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=sequence,
        is_transactional=is_transactional,
    )
    return log.append(produced, leader_epoch=0).duplicate


@pytest.fixture
def files() -> ForgetfulFiles:
    """Return a closed log of one producer that aborts all transactions and one that is idempotent."""
    files = ForgetfulFiles()
    log = open_log(files, is_clean=False)
    for sequence in range(SEQUENCES):
        send(log, 1, sequence)
        send(log, 2, sequence, is_transactional=False)
        if sequence % 2:
            log.append(marker(is_abort=True, producer_id=1), leader_epoch=0, origin=AppendOrigin.COORDINATOR)
    log.close()
    assert len(paths_of(files, ".txnindex")) > 2
    return files


def paths_of(files: ForgetfulFiles, suffix: str) -> list[str]:
    return sorted(path for path in files.nodes if path.endswith(suffix))


def aborted(log: PartitionLog) -> list[AbortedTransaction]:
    return log.aborted_transactions(0, 10_000)


def flip(files: ForgetfulFiles, path: str) -> None:
    files.nodes[path].data[12] ^= 1


def swap(files: ForgetfulFiles, path: str) -> None:
    same_kind = paths_of(files, path[path.rindex(".") :])
    other = same_kind[same_kind.index(path) - 1]
    files.nodes[path], files.nodes[other] = files.nodes[other], files.nodes[path]


DAMAGES: dict[str, Callable[[ForgetfulFiles, str], object]] = {
    "missing": lambda files, path: files.remove(path),
    "empty": lambda files, path: files.replace(path, b""),
    "cut": lambda files, path: files.replace(path, files.read(path)[:-5]),
    "garbage": lambda files, path: files.replace(path, b"\xff\0garbage" * 9),
    "a flipped bit": flip,
    "swapped": swap,
}


@both_stops
@pytest.mark.parametrize("number", [0, 1, -1], ids=["first", "second", "last"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_transaction_index_is_rebuilt(
    files: ForgetfulFiles, damage: str, number: int, is_clean: bool
) -> None:
    expected = aborted(open_log(files, is_clean=True))
    assert len(expected) == SEQUENCES // 2
    DAMAGES[damage](files, paths_of(files, ".txnindex")[number])
    assert [finding for finding in verify_partition(files, DIRECTORY) if finding.path.endswith(".txnindex")]
    log = open_log(files, is_clean=is_clean)
    assert aborted(log) == expected, "read_committed readers get no aborted records"
    send(log, 1, SEQUENCES)
    log.append(marker(is_abort=True, producer_id=1), leader_epoch=0, origin=AppendOrigin.COORDINATOR)
    assert aborted(log)[:-1] == expected
    log.close()
    assert list(verify_partition(files, DIRECTORY)) == []


@both_stops
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_truncated_log_with_a_damaged_transaction_index_keeps_earlier_aborts(
    files: ForgetfulFiles, damage: str, is_clean: bool
) -> None:
    expected = aborted(open_log(files, is_clean=True))
    DAMAGES[damage](files, paths_of(files, ".txnindex")[1])
    log = open_log(files, is_clean=is_clean)
    log.truncate_to(expected[2].last_offset)
    assert aborted(log) == expected[:2]


@both_stops
@pytest.mark.parametrize("damage", [damage for damage in DAMAGES if damage != "swapped"])
def test_a_damaged_producer_snapshot_loses_no_producer_state(
    files: ForgetfulFiles, damage: str, is_clean: bool
) -> None:
    # Kafka's format does not name the snapshot's partition, so a swapped snapshot is accepted.
    for path in paths_of(files, ".snapshot")[1:]:
        DAMAGES[damage](files, path)
    log = open_log(files, is_clean=is_clean)
    assert send(log, 2, SEQUENCES - 1, is_transactional=False), "the batch is recognised as a duplicate"
    with pytest.raises(BrokerError) as refused:
        send(log, 2, SEQUENCES + 3, is_transactional=False)
    assert refused.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert not send(log, 2, SEQUENCES, is_transactional=False)
