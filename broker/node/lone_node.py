"""The role of a node that is alone in its cluster, without a controller and without other brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...protocol.errors import BrokerError, ErrorCode
from ..api.dispatch import own_handler
from ..metadata.producer_ids import ProducerIds

# Types only: a lone broker does not load these modules at the start.
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    import trio

    from ...protocol.messages.describe_quorum import ReplicaState
    from ..api.contract import Api
    from ..api.dispatch import Dispatcher
    from ..api.services import Services
    from ..authentication.listener_guards import ListenerGuards
    from ..config.listeners import SocketOptions
    from ..controller.controller import Controller
    from ..coordinators.internal_log.led_partitions import LedTopic
    from ..coordinators.transactions.markers import PartitionMarkers
    from ..coordinators.transactions.transaction import Transaction
    from ..metadata.store import MetadataStore
    from ..quotas.connection_rates import ConnectionRates
    from ..replicas.partition import Partition
    from ..replicas.replication.replicas import Replicas


class LoneNode:
    """A node (`node.Node`) of a broker without `process.roles`."""

    peers = None
    replication = None
    leader_throttle = None
    remote_transactions = None
    in_sync_counts = None
    protected_listener = None
    route = staticmethod(own_handler)

    def __init__(self, metadata: MetadataStore) -> None:
        self._node_id = metadata.node_id
        self.producer_ids = ProducerIds(metadata.allocate_producer_ids)

    # --- what handlers use

    @property
    def controller_here(self) -> Controller:
        """Raise BrokerError NOT_CONTROLLER: a lone broker changes its metadata without a controller."""
        raise BrokerError(ErrorCode.NOT_CONTROLLER)

    def controller_traffic(self) -> None:
        """Return None: a lone broker is its own controller."""

    def replica_lag(self) -> int:
        """Return 0: a lone broker follows no other."""
        return 0

    def least_fetch_rate(self) -> float:
        """Return 0: a lone broker follows no other."""
        return 0.0

    def observers(self, now_ms: int) -> list[ReplicaState]:
        """Return no observers."""
        return []

    def unregister(self, broker_id: int) -> None:
        """Refuse. Raises BrokerError BROKER_ID_NOT_REGISTERED, or INVALID_REQUEST for this node's own id."""
        if broker_id != self._node_id:
            raise BrokerError(ErrorCode.BROKER_ID_NOT_REGISTERED)
        raise BrokerError(ErrorCode.INVALID_REQUEST, "A broker cannot unregister itself while it runs.")

    # --- before the logs are open

    def new_markers(self, here: PartitionMarkers, written: Callable[[Transaction], None]) -> PartitionMarkers:
        """Return ``here``: this broker leads all partitions, and writes all markers at once."""
        return here

    def serve(self, services: Services, new_dispatcher: Callable[[Mapping[int, Api]], Dispatcher]) -> None:
        """Do nothing: a lone broker has no listener of a controller."""

    def report_elections(self, replicas: Replicas, coordinators: Mapping[str, LedTopic]) -> None:
        """Do nothing: the coordinators of a lone broker lead all partitions from the start."""

    def log_moved(self, partition: Partition) -> None:
        """Do nothing: no other node needs to know."""

    def open_listener(self, throttle: ConnectionRates, options: SocketOptions, guards: ListenerGuards) -> None:
        """Do nothing: a lone broker has no listener of a controller."""

    def close_listener(self) -> None:
        """Do nothing, as `open_listener`."""

    def take_certificates(self) -> None:
        """Do nothing: a lone broker connects to no other node."""

    async def find_cluster_id(self) -> None:
        """Return None: the log directories have the cluster id."""

    # --- while the logs are open

    async def start(
        self,
        nursery: trio.Nursery,
        take_roles: Callable[[], None],
        wait_for_directories: Callable[[], Awaitable[None]],
    ) -> None:
        """Return at once: a lone broker leads all its partitions without roles."""

    async def wait_until_unfenced(self) -> None:
        """Return at once: nothing fences a lone broker."""

    async def leave(self) -> None:
        """Return at once: no other broker can lead this broker's partitions."""
