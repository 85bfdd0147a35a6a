"""The metrics of each partition that this broker holds: `kafka.cluster:type=Partition` and `kafka.log:type=Log`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from ..api.services import Services
from ..metadata.state import PartitionState
from ..monitoring.metrics import Family, Labels
from ..replicas.partition import Partition

Reader = Callable[[Partition, PartitionState], float]


def _isr_limit(partition: Partition, state: PartitionState) -> int:
    """Return min.insync.replicas, but at most the number of replicas (Kafka `Partition.effectiveMinIsr`)."""
    return min(partition.log.config.min_insync_replicas, len(state.replicas))


OF_LEADERS: Sequence[tuple[str, Reader]] = (
    ("replicascount", lambda _, state: len(state.replicas)),
    ("insyncreplicascount", lambda _, state: len(state.isr)),
    ("underreplicated", lambda _, state: len(state.isr) < len(state.replicas)),
    ("underminisr", lambda partition, state: len(state.isr) < _isr_limit(partition, state)),
    ("atminisr", lambda partition, state: len(state.isr) == _isr_limit(partition, state)),
    ("laststableoffsetlag", lambda partition, _: partition.log.high_watermark - partition.log.last_stable_offset),
)
"""Metrics that are 0 at brokers that do not lead the partition, as in Kafka."""
OF_LOGS: Sequence[tuple[str, Callable[[Partition], int]]] = (
    ("size", lambda partition: partition.log.size_bytes),
    ("numlogsegments", lambda partition: len(partition.log.segments)),
    ("logstartoffset", lambda partition: partition.log.log_start_offset),
    ("logendoffset", lambda partition: partition.log.log_end_offset),
)


def partition_families(services: Services) -> Iterator[Family]:
    """Yield the metrics of partitions and their logs, family by family."""
    for name, read in OF_LEADERS:
        yield Family(f"kafka_cluster_partition_{name}", _of_leaders(services, read))
    for name, read_log in OF_LOGS:
        yield Family(f"kafka_log_log_{name}", _of_logs(services, read_log))


def _of_leaders(services: Services, read: Reader) -> Iterator[tuple[Labels, float]]:
    for partition in services.partitions:
        topic = services.metadata.topics.get(partition.topic)
        if topic is not None and partition.index < len(topic.partitions):
            value = read(partition, topic.partitions[partition.index]) if partition.is_leader else 0
            yield place_of(partition), int(value)


def _of_logs(services: Services, read: Callable[[Partition], int]) -> Iterator[tuple[Labels, float]]:
    for partition in services.partitions:
        try:
            value = read(partition)
        except OSError:
            # A file of a failed disk: the partition has no such value now.
            continue
        yield place_of(partition), value


def place_of(partition: Partition) -> Labels:
    """Return the labels of a partition."""
    return {"topic": partition.topic, "partition": str(partition.index)}
