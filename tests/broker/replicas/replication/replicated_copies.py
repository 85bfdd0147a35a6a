"""Topics with three replicas on the brokers of a cluster, and checks of these replicas."""

from __future__ import annotations

from collections.abc import Mapping
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
from gregor.storage.disk.read_only_files import ReadOnlyFiles
from gregor.storage.log.log_config import LogConfig
from gregor.storage.log_manager import LogManager
from gregor.storage.recovery.directory_verification import find_partitions, verify_log_directory
from tests.broker.torture_producer import RECORDS_PER_BATCH, TortureProducer
from tests.cluster_of_processes import CONTROLLER, ClusterOfProcesses, until
from tests.storage.payloads import read_all

METADATA = "__cluster_metadata-0"


def make_topics(cluster: ClusterOfProcesses, minima: Mapping[str, int], *, partitions: int = 1) -> None:
    """Create topics, given with their `min.insync.replicas`; each broker leads some of their partitions."""
    homes = cycle(([3, 1, 2], [2, 3, 1], [1, 2, 3]))
    topics = [
        CreatableTopic(
            name=name,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[
                CreatableReplicaAssignment(partition_index=index, broker_ids=next(homes)) for index in range(partitions)
            ],
            configs=[CreatableTopicConfig(name="min.insync.replicas", value=str(minimum))],
        )
        for name, minimum in minima.items()
    ]
    with cluster.wire(CONTROLLER) as wire:
        response = wire.ask(ApiKey.CREATE_TOPICS, 4, CreateTopicsRequest(topics=topics, timeout_ms=9_000))
    assert [topic.error_code for topic in response.topics] == [0] * len(topics)


def wait_until_all_are_in_sync(cluster: ClusterOfProcesses) -> None:
    """Return once all three replicas of every partition of every topic are."""

    def are_in_sync() -> bool:
        lagging = [
            f"{topic.name}-{partition.partition_index} led by {partition.leader_id}: {partition.isr_nodes}"
            for topic in cluster.metadata(CONTROLLER).topics
            for partition in topic.partitions
            if len(partition.isr_nodes) < 3
        ]
        assert not lagging, lagging
        return True

    until(are_in_sync)


def wait_until_copies_are_alike(directory: Path) -> None:
    """Return once the followers have the last records; their high watermarks may still be behind."""

    def are_alike() -> bool:
        homes = homes_of(directory)
        names = [path.name for path in homes[0].iterdir() if path.is_dir() and path.name != METADATA]
        return all(len({partition_bytes(home / name) for home in homes}) == 1 for name in names)

    until(are_alike)


def homes_of(directory: Path) -> list[Path]:
    """Return the log directories of the three brokers."""
    return [directory / f"broker-{node_id}" / "logs" for node_id in (1, 2, 3)]


def check_copies(directory: Path) -> None:
    """Check that the three replicas of each partition are equal byte for byte, and that all logs are valid."""
    homes = homes_of(directory)
    names = sorted(path.name for path in homes[0].iterdir() if path.is_dir())
    for name in names:
        first, *others = (partition_bytes(home / name) for home in homes)
        if name == METADATA:
            # No response to a client waits until the followers have the last high watermark.
            assert all(first.startswith(other) for other in others), "a copy of the metadata differs"
        else:
            assert [other == first for other in others] == [True, True], f"the copies of {name} differ"
    files = ReadOnlyFiles()
    for home in homes:
        assert sorted(path.name for path in home.iterdir() if path.is_dir()) == names
        faults = list(verify_log_directory(files, find_partitions(files, str(home))))
        assert not faults, faults


def partition_bytes(directory: Path) -> bytes:
    """Return the bytes of one copy on disk."""
    return b"".join(segment.read_bytes() for segment in sorted(directory.glob("*.log")))


def check_records(directory: Path, producer: TortureProducer) -> None:
    """Compare one copy with the acknowledged records."""
    held = records_of(directory, producer.topic)
    assert sorted(held) == list(range(len(held))), "offsets without a hole"
    for number, base_offset in producer.acknowledged.items():
        assert [held[base_offset + index] for index in range(RECORDS_PER_BATCH)] == producer.values(number)
    if producer.is_idempotent:
        expected = [value for number in range(len(producer.acknowledged)) for value in producer.values(number)]
        assert [held[offset] for offset in sorted(held)] == expected, "each record once, in the order of sending"


def records_of(directory: Path, topic: str) -> dict[int, bytes]:
    """Return the values in one copy by offset; its broker must have ended."""
    logs = LogManager([str(directory / "broker-2" / "logs")], LogConfig(retention_ms=-1), SystemClock(), node_id=2)
    logs.open_all()
    try:
        log = logs.get(topic, 0)
        assert log is not None
        return {record.offset: record.value or b"" for record in read_all(log)}
    finally:
        logs.close()
