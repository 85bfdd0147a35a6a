"""Files that Kafka wrote, read by us, and files that we wrote, read by Kafka's own tools."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from gregor.protocol.apis import ApiKey
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from gregor.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from gregor.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from gregor.protocol.records import v1, v2
from gregor.protocol.records.batches import iter_batches, iter_records
from gregor.protocol.records.compression import Codec
from gregor.protocol.records.record import Record
from tests.broker_process import running_broker
from tests.wire import Wire, produce_once_there_is_a_leader

pytestmark = pytest.mark.peer

TIMESTAMP = 1_700_000_000_000
CODECS = (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD)


def records(first: int, count: int = 20) -> list[Record]:
    return [Record(i, TIMESTAMP + first + i, b"k%d" % (first + i), b"value %d" % (first + i)) for i in range(count)]


def create(wire: Wire, topic: str) -> None:
    request = CreateTopicsRequest(
        topics=[CreatableTopic(name=topic, num_partitions=1, replication_factor=1)], timeout_ms=20_000
    )
    assert wire.ask(ApiKey.CREATE_TOPICS, 4, request).topics[0].error_code == ErrorCode.NONE


def produce(wire: Wire, topic: str, data: bytes, version: int) -> None:
    partition = PartitionProduceData(index=0, records=data)
    request = ProduceRequest(
        acks=-1, timeout_ms=20_000, topic_data=[TopicProduceData(name=topic, partition_data=[partition])]
    )
    assert produce_once_there_is_a_leader(wire, request, version) == ErrorCode.NONE


def values(wire: Wire, topic: str, version: int) -> list[tuple[int, bytes | None]]:
    """Return all records of a topic as a client of one Fetch version sees them: offset and value."""
    seen: list[tuple[int, bytes | None]] = []
    while True:
        offset = seen[-1][0] + 1 if seen else 0
        partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=1 << 24,
            topics=[FetchTopic(topic=topic, partitions=[partition])],
        )
        data = wire.ask(ApiKey.FETCH, version, request).responses[0].partitions[0]
        assert data.error_code == ErrorCode.NONE
        found = [
            (record.offset, record.value)
            for batch in iter_batches(data.records or b"")
            for record in iter_records(batch)
            if record.offset >= offset
        ]
        if not found:
            return seen
        seen += found


def fill(wire: Wire, topic: str, *, with_zstd: bool) -> list[tuple[int, bytes | None]]:
    """Produce batches of every format and codec; return the expected offsets and values."""
    expected: list[tuple[int, bytes | None]] = []
    for codec in CODECS if with_zstd else CODECS[:-1]:
        produced = records(len(expected))
        produce(wire, topic, v2.build_batch(produced, codec=codec), 7)
        expected += [(len(expected) + i, record.value) for i, record in enumerate(produced)]
        if codec is not Codec.ZSTD:
            produced = records(len(expected))
            produce(wire, topic, v1.build_message_set(produced, codec=codec), 2)
            expected += [(len(expected) + i, record.value) for i, record in enumerate(produced)]
    return expected


def test_a_partition_directory_of_kafka_is_served_in_old_and_new_fetch_versions(kafka_391: str, tmp_path: Path) -> None:
    host, _, port = kafka_391.partition(":")
    with Wire((host, int(port))) as wire:
        create(wire, "adopted")
        expected = fill(wire, "adopted", with_zstd=False)
    home = Path(os.environ.get("PEER_HOME", Path.home() / ".cache" / "peer-kafka39"))
    shutil.copytree(home / f"data-{port}" / "log" / "adopted-0", tmp_path / "logs" / "adopted-0")
    with running_broker(tmp_path) as broker, Wire(broker.address) as wire:
        for version in (0, 1, 2, 3, 4, 11):
            assert values(wire, "adopted", version) == expected, f"Fetch v{version}"
        assert "adopted" in broker.output()


def test_kafkas_own_tool_reads_what_we_wrote(shared: Path, tmp_path: Path) -> None:
    with running_broker(tmp_path, "log.segment.bytes=2000") as broker, Wire(broker.address) as wire:
        create(wire, "written")
        expected = fill(wire, "written", with_zstd=True)
    segments = sorted((tmp_path / "logs" / "written-0").glob("*.log"))
    assert len(segments) > 1
    kafka = shared / "peer" / "kafka39"
    if not kafka.exists() or shutil.which("java") is None:
        pytest.skip("Kafka's tools need ../shared/peer and a Java 17")
    command = [str(kafka), "tool", "kafka.tools.DumpLogSegments", "--deep-iteration", "--print-data-log"]
    run = subprocess.run(
        [*command, "--files", ",".join(map(str, segments))], capture_output=True, text=True, timeout=600
    )
    assert run.returncode == 0, run.stdout + run.stderr
    complaints = [line for line in run.stdout.splitlines() if "Mismatch" in line or "Non-consecutive" in line]
    assert not complaints
    assert "isvalid: false" not in run.stdout
    for offset, value in expected:
        assert f"offset: {offset} " in run.stdout
        assert value is not None
        assert f"payload: {value.decode()}" in run.stdout
