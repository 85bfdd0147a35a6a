"""All metrics of a broker, as dashboards for Kafka expect them: the JMX exporter's names and kafka_exporter's.

Everything is computed on export; requests and records cost only a few additions.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from ...protocol.errors import BrokerError
from ...protocol.kafka_4_floor import api_name
from ...protocol.messages.list_groups import ListedGroup
from ...storage.disk.paths import TopicPartition
from ..api.services import Services
from ..metadata.state import NO_LEADER, PartitionState
from ..monitoring.metrics import NO_LABELS, Family, Labels
from ..replicas.partition import Partition
from ..server.client_census import ClientUsage
from .log_families import log_families

CONSUMER_GROUP = "consumer"
NS_PER_MS = 1_000_000
NS_PER_S = 1_000_000_000


def broker_families(services: Services) -> Iterator[Family]:
    """Yield every metric, family by family; long families are computed while they are read."""
    yield from services.metrics.families()
    yield from _request_families(services)
    yield from _client_families(services)
    yield from _server_families(services)
    yield from log_families(services)
    yield from _topic_families(services)
    yield from _group_families(services)
    yield from _fault_families(services)
    yield from _process_families()


def _request_families(services: Services) -> Iterator[Family]:
    """Yield ``kafka.network:type=RequestMetrics``, with KIP-896's DeprecatedRequestsPerSec."""
    yield Family(
        "kafka_network_requestmetrics_requests_total",
        [
            ({"request": api_name(key), "version": str(version)}, count)
            for (key, version), count in services.clients.request_counts().items()
        ],
    )
    yield Family(
        "kafka_network_requestmetrics_deprecatedrequests_total",
        [
            (
                {
                    "request": api_name(key),
                    "version": str(version),
                    "clientSoftwareName": name,
                    "clientSoftwareVersion": software_version,
                },
                count,
            )
            for (key, version, name, software_version), count in services.clients.deprecated_request_counts().items()
        ],
    )
    cpu_ns = sum(counters.fetch_conversion.cpu_ns for counters in services.metrics.topics.values())
    yield Family(
        "kafka_network_requestmetrics_messageconversionstimems_total", [({"request": "Fetch"}, cpu_ns / NS_PER_MS)]
    )


def _client_families(services: Services) -> Iterator[Family]:
    """Yield metrics by client, which Kafka has only in its request log: clients with old versions."""
    usages = services.clients.usages()
    old = [usage for usage in usages if usage.deprecated_count]
    yield Family("gregor_client_deprecated_requests_total", [(_client(usage), usage.deprecated_count) for usage in old])
    converting = [usage for usage in usages if usage.down_conversion.record_count]
    yield Family(
        "gregor_client_down_converted_records_total",
        [(_client(usage), usage.down_conversion.record_count) for usage in converting],
    )
    yield Family(
        "gregor_client_down_conversion_cpu_seconds_total",
        [(_client(usage), usage.down_conversion.cpu_ns / NS_PER_S) for usage in converting],
    )
    yield Family("gregor_clients_forgotten_total", [(NO_LABELS, services.clients.forgotten_clients)])


def _client(usage: ClientUsage) -> Labels:
    client_id, host, software_name, software_version = usage.identity
    return {
        "clientId": client_id,
        "clientAddress": host,
        "clientSoftwareName": software_name,
        "clientSoftwareVersion": software_version,
    }


def _server_families(services: Services) -> Iterator[Family]:
    """Yield ``kafka.server:type=ReplicaManager``: partitions held, led and under-replicated."""
    led = list(_led(services))
    behind = [state for _, state in led if len(state.isr) < len(state.replicas)]
    too_few = [state for partition, state in led if len(state.isr) < min(_min_isr(partition), len(state.replicas))]
    for name, value in (
        ("kafka_server_replicamanager_partitioncount", len(services.partitions)),
        ("kafka_server_replicamanager_leadercount", len(led)),
        ("kafka_server_replicamanager_underreplicatedpartitions", len(behind)),
        ("kafka_server_replicamanager_underminisrpartitioncount", len(too_few)),
        ("kafka_server_replicamanager_offlinereplicacount", services.partitions.offline_count),
        ("kafka_brokers", len(services.metadata.broker_ids)),
    ):
        yield Family(name, [(NO_LABELS, value)])
    yield from _controller_families(services)
    if services.serving.listening:
        endpoint = services.serving.listening[0]
        address = f"{endpoint.host or 'localhost'}:{endpoint.port}"
        yield Family("kafka_broker_info", [({"id": str(services.config.node_id), "address": address}, 1)])


def _controller_families(services: Services) -> Iterator[Family]:
    """Yield ``kafka.controller:type=KafkaController``, in full on the controller only."""
    metadata = services.metadata
    yield Family("kafka_controller_kafkacontroller_activecontrollercount", [(NO_LABELS, int(metadata.is_controller))])
    if not metadata.is_controller:
        return
    partitions = [state for topic in metadata.topics.values() for state in topic.partitions]
    registered = 1 if metadata.is_alone else len(metadata.state.brokers)
    active = len(metadata.broker_ids)
    for name, value in (
        ("offlinepartitionscount", sum(state.leader == NO_LEADER for state in partitions)),
        ("preferredreplicaimbalancecount", sum(state.leader != state.replicas[0] for state in partitions)),
        ("globaltopiccount", len(metadata.topics)),
        ("globalpartitioncount", len(partitions)),
        ("activebrokercount", active),
        ("fencedbrokercount", registered - active),
    ):
        yield Family(f"kafka_controller_kafkacontroller_{name}", [(NO_LABELS, value)])


def _led(services: Services) -> Iterator[tuple[Partition, PartitionState]]:
    """Yield the partitions that this broker leads, with their state in the cluster."""
    for partition in services.partitions:
        topic = services.metadata.topics.get(partition.topic)
        if partition.is_leader and topic is not None and partition.index < len(topic.partitions):
            yield partition, topic.partitions[partition.index]


def _min_isr(partition: Partition) -> int:
    return partition.log.config.min_insync_replicas


def _topic_families(services: Services) -> Iterator[Family]:
    """Yield kafka_exporter's metrics of topics and partitions; each partition is reported by its leader."""
    topics = list(services.metadata.topics.values())
    yield Family("kafka_topic_partitions", (({"topic": topic.name}, len(topic.partitions)) for topic in topics))
    readers: Sequence[tuple[str, Callable[[Partition, PartitionState], float]]] = (
        ("current_offset", lambda partition, _: partition.log.high_watermark),
        ("oldest_offset", lambda partition, _: partition.log.log_start_offset),
        ("leader", lambda _, state: state.leader),
        ("replicas", lambda _, state: len(state.replicas)),
        ("in_sync_replica", lambda _, state: len(state.isr)),
        ("leader_is_preferred", lambda _, state: state.leader == state.replicas[0]),
        ("under_replicated_partition", lambda _, state: len(state.isr) < len(state.replicas)),
    )
    for name, read in readers:
        values = ((_place(partition), int(read(partition, state))) for partition, state in _led(services))
        yield Family(f"kafka_topic_partition_{name}", values)


def _place(partition: Partition) -> Labels:
    return {"topic": partition.topic, "partition": str(partition.index)}


def _group_families(services: Services) -> Iterator[Family]:
    """Yield kafka_exporter's metrics of consumer groups."""
    offsets: list[tuple[Labels, float]] = []
    lags: list[tuple[Labels, float]] = []
    offset_sums: dict[tuple[str, str], float] = {}
    lag_sums: dict[tuple[str, str], float] = {}
    _, groups = services.groups.list((), ())
    for group in groups:
        for place, offset in _committed(services, group.group_id).items():
            labels = {"consumergroup": group.group_id, "topic": place.topic, "partition": str(place.partition)}
            partition = services.partitions.find(*place)
            lag = max(0, partition.log.high_watermark - offset) if partition is not None else -1
            offsets.append((labels, offset))
            lags.append((labels, lag))
            of_topic = (group.group_id, place.topic)
            offset_sums[of_topic] = offset_sums.get(of_topic, 0) + offset
            lag_sums[of_topic] = lag_sums.get(of_topic, 0) + max(0, lag)
    yield Family("kafka_consumergroup_current_offset", offsets)
    yield Family("kafka_consumergroup_lag", lags)
    for name, sums in (("current_offset_sum", offset_sums), ("lag_sum", lag_sums)):
        values = [({"consumergroup": group_id, "topic": topic}, value) for (group_id, topic), value in sums.items()]
        yield Family(f"kafka_consumergroup_{name}", values)
    yield Family(
        "kafka_consumergroup_members",
        [({"consumergroup": group.group_id}, _member_count(services, group)) for group in groups],
    )


def _committed(services: Services, group_id: str) -> dict[TopicPartition, int]:
    """Return committed offsets by topic and partition; empty while the group is being loaded."""
    try:
        fetched = services.groups.fetch_offsets(group_id, None, require_stable=False)
    except BrokerError:
        return {}
    return {place: found.offset for place, found in fetched.items()}


def _member_count(services: Services, group: ListedGroup) -> int:
    if group.group_type == CONSUMER_GROUP:
        return len(services.groups.describe_consumer_group(group.group_id).members)
    return len(services.groups.describe(group.group_id).members)


def _fault_families(services: Services) -> Iterator[Family]:
    """Yield the counts of injected faults."""
    if services.faults is not None:
        counts = services.faults.strike_counts().items()
        yield Family("gregor_fault_injections_total", [({"rule": rule}, count) for rule, count in counts])


def _process_families() -> Iterator[Family]:
    """Yield the process metrics of Prometheus' own client libraries."""
    times = os.times()
    yield Family("process_cpu_seconds_total", [(NO_LABELS, times.user + times.system)])
    resident_pages = int(Path("/proc/self/statm").read_text().split()[1])
    yield Family("process_resident_memory_bytes", [(NO_LABELS, resident_pages * os.sysconf("SC_PAGE_SIZE"))])
    yield Family("process_open_fds", [(NO_LABELS, len(os.listdir("/proc/self/fd")))])
