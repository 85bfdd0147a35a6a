"""The parts of a broker that handlers use. Handlers depend on these parts, never on the broker that assembles them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

# Types only: a lone broker does not load these modules at the start.
if TYPE_CHECKING:
    import trio

    from ...storage.clock import Clock
    from ...storage.log_manager import LogManager
    from ..authentication.delegation_tokens import DelegationTokens
    from ..authentication.listener_guards import ListenerGuards
    from ..authorization.standard_authorizer import StandardAuthorizer
    from ..config import BrokerConfig
    from ..conversion.conversion_pool import ConversionPool
    from ..coordinators.groups.coordinator import GroupCoordinator
    from ..coordinators.groups.deferred_coordinator import DeferredGroupCoordinator
    from ..coordinators.transactions.coordinator import TransactionCoordinator
    from ..coordinators.transactions.markers import PartitionMarkers
    from ..coordinators.transactions.producer_id_blocks import ProducerIdBlocks
    from ..faults.injection import FaultInjection
    from ..metadata.producer_ids import ProducerIds
    from ..metadata.store import MetadataStore
    from ..monitoring.metrics import Metrics
    from ..quotas.enforcement import ClientQuotas
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
    """A record of the parts of one broker that handlers use."""

    config: BrokerConfig
    clock: Clock
    faults: FaultInjection | None
    """The active fault rules; None unless `gregor.fault.injection.enable` is set."""
    authorizer: StandardAuthorizer | None
    """Decides what clients may do; None unless `authorizer.class.name` is set."""
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
    """Limits the number of large compressed batches that are validated at a time, each in a thread."""
    producer_ids: ProducerIds | ProducerIdBlocks
    delegation_tokens: DelegationTokens
    guards: ListenerGuards
    """The security of the listeners."""
    deferred_groups: DeferredGroupCoordinator
    transactions: TransactionCoordinator
    transaction_markers: PartitionMarkers
    leader_throttle: ReplicationThrottle | None
    """Limits the fetch rate of followers that are not in sync (KIP-73); None if there are no other brokers."""
    serving: ServingState

    @property
    def groups(self) -> GroupCoordinator:
        """The group coordinator, created by the first use."""
        return self.deferred_groups.coordinator
