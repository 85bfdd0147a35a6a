"""`gregor log verify`, on good and damaged directories and beside a broker that writes."""

from pathlib import Path
from uuid import uuid4

import pytest

from gregor.command_line import main
from gregor.protocol.apis import ApiKey
from gregor.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from gregor.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from gregor.protocol.records import v2
from gregor.protocol.records.batches import Record
from gregor.storage.clock import ManualClock, SystemClock
from gregor.storage.log.log_config import LogConfig
from gregor.storage.log.partition_log import PartitionLog
from tests.broker_process import BrokerProcess
from tests.storage.payloads import append
from tests.wire import Wire, produce_once_there_is_a_leader


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    """Return a closed log of several segments."""
    log = PartitionLog.open(str(tmp_path / "topic-0"), LogConfig(segment_bytes=500), ManualClock())
    for number in range(20):
        append(log, b"%d" % number)
    log.close()
    return tmp_path / "topic-0"


def test_log_verify_finds_no_problem_in_an_undamaged_partition(
    capsys: pytest.CaptureFixture[str], partition: Path
) -> None:
    assert main(["log", "verify", str(partition)]) == 0
    size_bytes = sum(path.stat().st_size for path in partition.glob("*.log"))
    assert capsys.readouterr().out == f"{partition}: 1 partition, {size_bytes:,} bytes checked: no problem found\n"


def test_log_verify_prints_the_damage_and_what_recovery_would_do(
    capsys: pytest.CaptureFixture[str], partition: Path
) -> None:
    damaged = sorted(partition.glob("*.log"))[1]
    data = bytearray(damaged.read_bytes())
    data[v2.RECORDS_AT] ^= 1
    damaged.write_bytes(data)
    assert main(["log", "verify", str(partition.parent)]) == 1
    first, *_, last = capsys.readouterr().out.splitlines()
    assert first.startswith(f"{damaged} at position 0: its CRC does not match its bytes; at the next start: ")
    assert f"the log ends here, at offset {int(damaged.stem)}" in first
    assert last.startswith(f"{partition.parent}: 1 partition, ")
    assert damaged.read_bytes() == data


@pytest.mark.parametrize(
    ("directory", "complaint"),
    [("nowhere", "No such file or directory"), (".", "neither the directory of a partition nor one with partitions")],
)
def test_a_directory_without_partitions_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, directory: str, complaint: str
) -> None:
    assert main(["log", "verify", str(tmp_path / directory)]) == 1
    assert complaint in capsys.readouterr().err


def test_logs_are_verified_while_a_broker_writes_to_them(
    capsys: pytest.CaptureFixture[str], broker_process: BrokerProcess
) -> None:
    topic = f"verified-{uuid4().hex[:8]}"
    batch = v2.build_batch([Record(0, SystemClock().now_ms(), None, b"x" * 40_000)])
    request = ProduceRequest(
        acks=1,
        timeout_ms=1000,
        topic_data=[TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=batch)])],
    )
    with Wire(broker_process.address) as wire:
        wire.ask(ApiKey.METADATA, 4, MetadataRequest(topics=[MetadataRequestTopic(name=topic)]))
        assert produce_once_there_is_a_leader(wire, request) == 0
        for _ in range(20):
            for _ in range(10):
                wire.send(ApiKey.PRODUCE, 7, request)
            assert main(["log", "verify", str(broker_process.directory / "logs")]) == 0, capsys.readouterr().out
            for _ in range(10):
                wire.receive_frame()
    assert "is in use by a broker" in capsys.readouterr().out
