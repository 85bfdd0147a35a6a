"""The properties of new topics and partitions: their number, the placement of replicas, the configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import randrange
from typing import NamedTuple, Protocol

from ...protocol.errors import BrokerError, ErrorCode
from ...protocol.internal_topics import GROUP_METADATA, TRANSACTION_STATE
from ..config import BrokerConfig, ConfigError
from ..config.topic_keys import validate_topic_properties
from . import replica_placement
from .replica_placement import DEFAULT
from .state import ClusterState, PartitionState

MOST_RECORDS_OF_A_REQUEST = 10_000
"""Kafka's limit: `ReplicationControlManager.validateTotalNumberOfPartitions`,
`QuorumController.MAX_RECORDS_PER_USER_OP`."""
TOO_MANY_PARTITIONS = "Excessively large number of partitions per request."
TOO_LARGE_A_BATCH = "Unable to perform excessively large batch operation."


class KnownCluster(Protocol):
    """A view of the cluster (`MetadataStore`) that holds what new topics depend on."""

    config: BrokerConfig
    is_alone: bool
    state: ClusterState

    @property
    def registered_ids(self) -> Sequence[int]: ...
    @property
    def broker_ids(self) -> Sequence[int]: ...
    @property
    def has_other_brokers(self) -> bool: ...
    def is_active(self, node_id: int) -> bool: ...


class NewTopic(NamedTuple):
    """A topic to create on first use; a partition count of -1 leaves it to the controller."""

    name: str
    partitions: int
    replication_factor: int
    configs: Mapping[str, str]


def on_first_use(metadata: KnownCluster, name: str) -> NewTopic:
    """Return the topic to create when a client first uses a name, or a coordinator needs its log."""
    config = metadata.config
    if name == GROUP_METADATA:
        key, replicas = "offsets.topic.replication.factor", config.offsets_topic_replication_factor
        partitions = config.offsets_topic_num_partitions
    elif name == TRANSACTION_STATE:
        key, replicas = "transaction.state.log.replication.factor", config.transaction_state_log_replication_factor
        partitions = config.transaction_state_log_num_partitions
    else:
        key, replicas = "default.replication.factor", config.default_replication_factor
        partitions = DEFAULT
    # Several brokers seldom start at the same time: a configured number of replicas is not reduced meanwhile.
    is_binding = config.is_set(key) and not metadata.is_alone
    reachable = replicas if is_binding else _reachable(metadata, replicas)
    return NewTopic(name, partitions, reachable, internal_configs(metadata, name))


def own_configs(wanted: Mapping[str, str | None]) -> dict[str, str]:
    """Return the requested configuration of a topic. Raises BrokerError INVALID_CONFIG, also for null values."""
    configs = {key: value for key, value in wanted.items() if value is not None}
    if len(configs) < len(wanted):
        nulls = ",".join(key for key in wanted if key not in configs)
        raise BrokerError(ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {nulls}")
    validate_properties(configs)
    return configs


def validate_properties(properties: Mapping[str, str]) -> None:
    """Raise BrokerError INVALID_CONFIG if a topic cannot have these properties."""
    try:
        validate_topic_properties(properties)
    except ConfigError as error:
        raise BrokerError(ErrorCode.INVALID_CONFIG, str(error)) from None


def internal_configs(metadata: KnownCluster, name: str) -> dict[str, str]:
    """Return the configuration of an internal topic; empty for any other topic."""
    config = metadata.config
    if name == GROUP_METADATA:
        return {
            "compression.type": "producer",
            "cleanup.policy": "compact",
            "segment.bytes": str(config.offsets_topic_segment_bytes),
        }
    if name == TRANSACTION_STATE:
        return {
            "compression.type": "uncompressed",
            "cleanup.policy": "compact",
            "min.insync.replicas": str(_reachable(metadata, config.transaction_state_log_min_isr)),
            "segment.bytes": str(config.transaction_state_log_segment_bytes),
            "unclean.leader.election.enable": "false",
        }
    return {}


def _reachable(metadata: KnownCluster, replication_factor: int) -> int:
    """Return a configured replication factor, limited by the number of brokers; at least 1."""
    return max(1, min(replication_factor, len(metadata.registered_ids)))


def placement(
    metadata: KnownCluster,
    partitions: int,
    replication_factor: int,
    assignments: Sequence[tuple[int, Sequence[int]]],
) -> list[list[int]]:
    """Return the replicas of each partition of a new topic, as requested; -1 is the default.

    Raises BrokerError with Kafka's code and message: INVALID_REQUEST, INVALID_REPLICATION_FACTOR, INVALID_PARTITIONS,
    INVALID_REPLICA_ASSIGNMENT, POLICY_VIOLATION.
    """
    if assignments:
        for value, what in ((replication_factor, "replication factor"), (partitions, "numPartitions")):
            if value != DEFAULT:
                raise BrokerError(
                    ErrorCode.INVALID_REQUEST,
                    f"A manual partition assignment was specified, but {what} was not set to -1.",
                )
        return replica_placement.validate_assignments(assignments, metadata.registered_ids)
    if replication_factor < DEFAULT or replication_factor == 0:
        raise BrokerError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if partitions < DEFAULT or partitions == 0:
        raise BrokerError(
            ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value."
        )
    config = metadata.config
    count = config.num_partitions if partitions == DEFAULT else partitions
    validate_new_partitions(count)
    replicas = config.default_replication_factor if replication_factor == DEFAULT else replication_factor
    return spread(metadata, count, replicas)


def spread(metadata: KnownCluster, count: int, replication_factor: int) -> list[list[int]]:
    """Return replicas of ``count`` new partitions. Raises BrokerError INVALID_REPLICATION_FACTOR."""
    if not metadata.has_other_brokers:
        return replica_placement.spread(count, replication_factor, metadata.broker_ids)
    active = {node_id: known.rack for node_id, known in metadata.state.brokers.items() if known.is_active}
    brokers = replica_placement.alternate_racks(active)
    # A random first broker: otherwise all topics of one partition would start with the same broker.
    first, shift = randrange(max(len(brokers), 1)), randrange(max(len(brokers) - 1, 1))
    return replica_placement.spread(count, replication_factor, brokers, start=first, shift=shift)


def partitions_on(metadata: KnownCluster, held: Sequence[Sequence[int]], *, first: int = 0) -> list[PartitionState]:
    """Return new partitions from number ``first`` on with these replicas, of which the active ones are in sync.

    Raises BrokerError INVALID_REPLICA_ASSIGNMENT if none is active.
    """
    made = []
    for index, replicas in enumerate(held, first):
        isr = list(filter(metadata.is_active, replicas))
        if not isr:
            raise BrokerError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                "All brokers specified in the manual partition assignment for "
                f"partition {index} are fenced or in controlled shutdown.",
            )
        directories = [metadata.state.default_directory(node_id) for node_id in replicas]
        made.append(PartitionState(index, isr[0], 0, list(replicas), isr, directories=directories))
    return made


def validate_new_partitions(count: int) -> None:
    """Check the number of partitions created at once. Raises BrokerError POLICY_VIOLATION for too many."""
    if count > MOST_RECORDS_OF_A_REQUEST:
        raise BrokerError(ErrorCode.POLICY_VIOLATION, TOO_MANY_PARTITIONS)
