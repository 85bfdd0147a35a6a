"""The interface of a node, alone or one of several, to the code that assembles and runs the broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ..api.node_role import NodeRole

# Types only: a lone broker does not load these modules at the start.
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    import trio

    from ...protocol.schema import Message
    from ..api.contract import Api, Handler
    from ..api.dispatch import Dispatcher
    from ..api.services import Services
    from ..authentication.listener_guards import ListenerGuards
    from ..config.listeners import SocketOptions
    from ..coordinators.internal_log.led_partitions import LedTopic
    from ..coordinators.transactions.coordinator import Markers
    from ..coordinators.transactions.markers import PartitionMarkers
    from ..coordinators.transactions.producer_id_blocks import ProducerIdBlocks
    from ..coordinators.transactions.transaction import Transaction
    from ..metadata.producer_ids import ProducerIds
    from ..peers.peers import Peers
    from ..quotas.connection_rates import ConnectionRates
    from ..replicas.partition import Partition
    from ..replicas.replication.replicas import Replicas
    from ..replicas.replication.replication import Replication
    from ..replicas.replication.throttle import ReplicationThrottle


class Node(NodeRole, Protocol):
    """A node with its life cycle: a `lone_node.LoneNode` or a `membership.Membership`."""

    @property
    def peers(self) -> Peers | None:
        """The connections to other brokers; None if there are no other brokers."""

    @property
    def replication(self) -> Replication | None:
        """The replication to and from other brokers; None if there are no other brokers."""

    @property
    def leader_throttle(self) -> ReplicationThrottle | None:
        """The throttle of fetches by followers that are not in sync; None if there are no other brokers."""

    @property
    def producer_ids(self) -> ProducerIds | ProducerIdBlocks:
        """The source of new producer ids."""

    @property
    def protected_listener(self) -> str | None:
        """The listener that other brokers use; None if there are no other brokers."""

    def new_markers(self, here: PartitionMarkers, written: Callable[[Transaction], None]) -> Markers:
        """Return the writer of markers for the whole cluster.

        The writer uses ``here`` for the partitions that this broker leads. It calls ``written`` for each transaction
        whose markers it could not write at once and that has all of them now.
        """

    def serve(self, services: Services, new_dispatcher: Callable[[Mapping[int, Api]], Dispatcher]) -> None:
        """Set the parts that are created after this one: handlers' services, and the maker of further dispatchers."""

    def report_elections(self, replicas: Replicas, coordinators: Mapping[str, LedTopic]) -> None:
        """Notify the coordinators, given by internal topic, of partitions that this broker starts or stops leading."""

    def route(self, api: Api, request: Message) -> Handler:
        """Return the handler of a request on this node (an `api.contract.Route`)."""

    def log_moved(self, partition: Partition) -> None:
        """Report that the log of a partition has moved to another log directory."""

    def open_listener(self, throttle: ConnectionRates, options: SocketOptions, guards: ListenerGuards) -> None:
        """Open the controller's listener, if this node has one. Raises ListenerError."""

    def close_listener(self) -> None:
        """Close the controller's listener, if it is open."""

    def take_certificates(self) -> None:
        """Connect to other nodes with the present stores from now on."""

    async def find_cluster_id(self) -> str | None:
        """Return the cluster id that another node has given; None if this node's own log directories decide."""

    async def start(
        self,
        nursery: trio.Nursery,
        take_roles: Callable[[], None],
        wait_for_directories: Callable[[], Awaitable[None]],
    ) -> None:
        """Start the node's tasks in ``nursery``; return once the partitions have their roles.

        `take_roles` makes partitions leaders or followers. `wait_for_directories` returns after the health of a log
        directory has changed. Raises BrokerError if the cluster refuses this node.
        """

    async def wait_until_unfenced(self) -> None:
        """Wait until clients may see this broker."""

    async def leave(self) -> None:
        """Hand over what other nodes can take, before this node stops serving."""
