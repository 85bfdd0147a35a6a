"""The role of a node in its cluster, as far as handlers use it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

# Types only: a lone broker does not load these modules at the start.
if TYPE_CHECKING:
    from ...protocol.messages.describe_quorum import ReplicaState
    from ..controller.controller import Controller
    from ..coordinators.transactions.remote_transactions import RemoteTransactions
    from ..peers.peer_connection import Traffic
    from ..replicas.replication.leadership import InSyncCounts


class NodeRole(Protocol):
    """A role of a node: alone in its cluster (`node.lone_node`) or one of several nodes (`node.membership`)."""

    @property
    def remote_transactions(self) -> RemoteTransactions | None:
        """The access to transactions that other brokers coordinate; None if there are no other brokers."""

    @property
    def controller_here(self) -> Controller:
        """The controller of the cluster, if it runs on this node. Raises BrokerError NOT_CONTROLLER."""

    @property
    def in_sync_counts(self) -> InSyncCounts | None:
        """The changes of in-sync sets that this broker has requested; None if there are no other brokers."""

    def controller_traffic(self) -> Traffic | None:
        """Return what was sent to the controller and received from it; None if the controller runs on this node."""

    def replica_lag(self) -> int:
        """Return the most records by which a partition that this broker follows was behind its leader's high
        watermark at the last fetch; 0 if this broker follows none (Kafka `ReplicaFetcherManager` `MaxLag`)."""

    def least_fetch_rate(self) -> float:
        """Return the lowest rate of the tasks that copy partitions from a leader, in Fetch requests per second; 0 if
        this broker follows none (Kafka `ReplicaFetcherManager` `MinFetchRate`)."""

    def observers(self, now_ms: int) -> list[ReplicaState]:
        """Return the brokers that follow the metadata log, as DescribeQuorum lists them."""

    def unregister(self, broker_id: int) -> None:
        """Remove a broker from the cluster for good. Raises BrokerError, with the reason in its message."""
