"""All metrics of a broker, as dashboards for Kafka expect them: the JMX exporter's names and kafka_exporter's.

Everything is computed on export; requests and records cost only a few additions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from ...protocol.errors import BrokerError
from ...protocol.messages.list_groups import ListedGroup
from ...protocol.topic_partition import TopicPartition
from ..api.services import Services
from ..metadata.state import NO_LEADER, PartitionState
from ..monitoring.client_families import client_families, request_families
from ..monitoring.listener_families import listener_families
from ..monitoring.metrics import NO_LABELS, REFUSED_BY_CONFIG, REFUSED_ZSTD, Family, Labels
from ..monitoring.process_families import process_families
from ..monitoring.request_conversions import QUANTILES, quantile
from ..replicas.partition import Partition
from ..replicas.replication.leadership import InSyncCounts
from .coordinator_families import coordinator_families, waiting_families
from .log_families import log_families
from .partition_families import partition_families, place_of
from .quorum_families import quorum_families
from .request_families import request_time_families, response_error_families

CONSUMER_GROUP = "consumer"
REFUSALS = (REFUSED_BY_CONFIG, REFUSED_ZSTD)
STARTING, RUNNING = 1, 3
"""Kafka's numbers of a broker's states (`BrokerState`)."""


def broker_families(services: Services) -> Iterator[Family]:
    """Yield every metric, family by family; long families are computed while they are read."""
    yield from services.metrics.families()
    yield from request_families(services.clients)
    if services.metrics.request_times is not None:
        yield from request_time_families(services.metrics.request_times)
    if services.metrics.response_errors is not None:
        yield from response_error_families(services.metrics.response_errors)
    yield from _conversion_families(services)
    yield from client_families(services.clients)
    yield from listener_families(services.serving.activity)
    yield from _server_families(services)
    yield from log_families(services)
    yield from partition_families(services)
    yield from quorum_families(services)
    yield from coordinator_families(services)
    yield from waiting_families(services)
    yield from _topic_families(services)
    yield from _group_families(services)
    yield from _fault_families(services)
    yield from process_families()


def _conversion_families(services: Services) -> Iterator[Family]:
    """Yield Kafka's histograms of ``kafka.network:type=RequestMetrics`` for Fetch (Produce converts nothing)."""
    conversions = services.metrics.fetch_conversions
    for name, values in conversions.samples().items():
        family = f"kafka_network_requestmetrics_{name.lower()}"
        yield Family(f"{family}_count", [({"request": "Fetch"}, conversions.request_count)])
        yield Family(
            family,
            [({"request": "Fetch", "quantile": share}, quantile(values, float(share))) for share in QUANTILES],
        )
    refused = services.metrics.refused_conversions
    yield Family("gregor_refused_conversions_total", [({"reason": reason}, refused[reason]) for reason in REFUSALS])


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
    yield from _in_sync_families(services)
    yield from _controller_families(services)
    state = RUNNING if services.serving.is_ready else STARTING
    yield Family("kafka_server_kafkaserver_brokerstate", [(NO_LABELS, state)])
    if services.serving.listening:
        endpoint = services.serving.listening[0]
        address = f"{endpoint.host or 'localhost'}:{endpoint.port}"
        yield Family("kafka_broker_info", [({"id": str(services.config.node_id), "address": address}, 1)])


def _in_sync_families(services: Services) -> Iterator[Family]:
    """Yield `IsrShrinksPerSec`, `IsrExpandsPerSec` and `FailedIsrUpdatesPerSec`, and how far this broker lags."""
    counts = services.node.in_sync_counts or InSyncCounts()
    for name, value in (
        ("isrshrinks", counts.shrinks),
        ("isrexpands", counts.expands),
        ("failedisrupdates", counts.failed_updates),
    ):
        yield Family(f"kafka_server_replicamanager_{name}_total", [(NO_LABELS, value)])
    # One rule file keeps the label's name, another one writes it in lower case.
    copier = {"clientId": "Replica", "clientid": "Replica"}
    yield Family("kafka_server_replicafetchermanager_maxlag", [(copier, services.node.replica_lag())])
    yield Family("kafka_server_replicafetchermanager_minfetchrate", [(copier, services.node.least_fetch_rate())])


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
    unclean = 0 if metadata.is_alone else services.node.controller_here.unclean_election_count
    yield Family("kafka_controller_controllerstats_uncleanleaderelections_total", [(NO_LABELS, unclean)])


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
        values = ((place_of(partition), int(read(partition, state))) for partition, state in _led(services))
        yield Family(f"kafka_topic_partition_{name}", values)


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
    """Return the number of members; 0 while the group is being loaded."""
    try:
        if group.group_type == CONSUMER_GROUP:
            return len(services.groups.describe_consumer_group(group.group_id).members)
        return len(services.groups.describe(group.group_id).members)
    except BrokerError:
        return 0


def _fault_families(services: Services) -> Iterator[Family]:
    """Yield the counts of injected faults."""
    if services.faults is not None:
        counts = services.faults.strike_counts().items()
        yield Family("gregor_fault_injections_total", [({"rule": rule}, count) for rule, count in counts])
