"""The parts of a broker that handlers use. Handlers know these parts, never the broker that assembles them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

# Types only: a start does not load modules that a broker alone in its cluster never uses.
if TYPE_CHECKING:
    import trio

    from ...storage.clock import Clock
    from ...storage.log_manager import LogManager
    from ..config import BrokerConfig
    from ..coordinators.groups.coordinator import GroupCoordinator
    from ..coordinators.transactions.coordinator import TransactionCoordinator
    from ..coordinators.transactions.markers import PartitionMarkers
    from ..coordinators.transactions.producer_id_blocks import ProducerIdBlocks
    from ..faults.injection import FaultInjection
    from ..metadata.producer_ids import ProducerIds
    from ..metadata.store import MetadataStore
    from ..monitoring.metrics import Metrics
    from ..quotas.enforcement import ClientQuotas
    from ..replicas.fetching.conversion_pool import ConversionPool
    from ..replicas.fetching.purgatory import Purgatory
    from ..replicas.fetching.sessions import FetchSessionCache
    from ..replicas.log_moves import LogMoves
    from ..replicas.partition_registry import PartitionRegistry
    from ..replicas.replication.replicas import Replicas
    from ..replicas.replication.throttle import ReplicationThrottle
    from ..server.client_census import ClientCensus
    from ..server.serving_state import ServingState
    from .node_role import NodeRole


@dataclass(frozen=True, slots=True)
class Services:
    """The parts of one broker, each by the name that handlers call it."""

    config: BrokerConfig
    clock: Clock
    faults: FaultInjection | None
    """The fault rules in force; None unless `gregor.fault.injection.enable` is set."""
    metrics: Metrics
    clients: ClientCensus
    quotas: ClientQuotas
    metadata: MetadataStore
    node: NodeRole
    logs: LogManager
    log_moves: LogMoves
    partitions: PartitionRegistry
    replicas: Replicas
    purgatory: Purgatory
    fetch_sessions: FetchSessionCache
    conversions: ConversionPool
    validations: trio.CapacityLimiter
    """Bounds how many large compressed batches are checked at a time, each in a thread."""
    producer_ids: ProducerIds | ProducerIdBlocks
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    transaction_markers: PartitionMarkers
    leader_throttle: ReplicationThrottle | None
    """Limits what followers that are not in sync may copy (KIP-73); None without other brokers."""
    serving: ServingState
