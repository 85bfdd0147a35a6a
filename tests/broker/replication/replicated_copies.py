"""Topics with three copies on the brokers of a cluster, and whether these hold what they should in the end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import cycle
from pathlib import Path

from gregor.protocol.apis import ApiKey
from gregor.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from gregor.storage.clock import SystemClock
from gregor.storage.directory_verification import find_partitions, verify_log_directory
from gregor.storage.log_config import LogConfig
from gregor.storage.log_manager import LogManager
from gregor.storage.read_only_files import ReadOnlyFiles
from tests.broker.torture_producer import RECORDS_PER_BATCH, TortureProducer
from tests.cluster_of_processes import CONTROLLER, ClusterOfProcesses, until
from tests.storage.payloads import read_all


def make_topics(cluster: ClusterOfProcesses, minima: Mapping[str, int]) -> None:
    """Topics of one partition by name, with their `min.insync.replicas`; each broker is to lead some of them."""
    topics = [
        CreatableTopic(
            name=name,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=broker_ids)],
            configs=[CreatableTopicConfig(name="min.insync.replicas", value=str(minimum))],
        )
        for (name, minimum), broker_ids in zip(minima.items(), cycle(([3, 1, 2], [2, 3, 1], [1, 2, 3])), strict=False)
    ]
    with cluster.wire(CONTROLLER) as wire:
        response = wire.ask(ApiKey.CREATE_TOPICS, 4, CreateTopicsRequest(topics=topics, timeout_ms=9_000))
    assert [topic.error_code for topic in response.topics] == [0] * len(topics)


def wait_until_all_are_in_sync(cluster: ClusterOfProcesses, topics: Iterable[str]) -> None:
    """Return once the controller says so."""
    for topic in topics:
        until(lambda topic=topic: len(cluster.metadata(CONTROLLER, topic).topics[0].partitions[0].isr_nodes) == 3)  # type: ignore[misc]


def partition_bytes(directory: Path, node_id: int, topic: str) -> bytes:
    """One copy, as it lies on the disk."""
    segments = sorted((directory / f"broker-{node_id}" / "logs" / f"{topic}-0").glob("*.log"))
    return b"".join(segment.read_bytes() for segment in segments)


def check_copies(directory: Path, topic: str) -> None:
    """The copies must be equal, and the logs in order."""
    first, *others = (partition_bytes(directory, node_id, topic) for node_id in (1, 2, 3))
    assert first
    assert [other == first for other in others] == [True, True], f"the copies of {topic} differ"
    files = ReadOnlyFiles()
    for node_id in (1, 2, 3):
        home = str(directory / f"broker-{node_id}" / "logs")
        assert list(verify_log_directory(files, find_partitions(files, home))) == []


def check_records(directory: Path, producer: TortureProducer) -> None:
    """Hold one copy against what was acknowledged."""
    held = records_of(directory, producer.topic)
    assert sorted(held) == list(range(len(held))), "offsets without a hole"
    for number, base_offset in producer.acknowledged.items():
        assert [held[base_offset + index] for index in range(RECORDS_PER_BATCH)] == producer.values(number)
    if producer.is_idempotent:
        expected = [value for number in range(len(producer.acknowledged)) for value in producer.values(number)]
        assert [held[offset] for offset in sorted(held)] == expected, "each record once, in the order of sending"


def records_of(directory: Path, topic: str) -> dict[int, bytes]:
    """The values in one copy by offset; of brokers that have ended."""
    logs = LogManager([str(directory / "broker-2" / "logs")], LogConfig(retention_ms=-1), SystemClock(), node_id=2)
    logs.open_all()
    try:
        log = logs.get(topic, 0)
        assert log is not None
        return {record.offset: record.value or b"" for record in read_all(log)}
    finally:
        logs.close()
