"""The role of a node that is alone in its cluster, without a controller and without other brokers."""

from __future__ import annotations

from ...protocol.errors import BrokerError, ErrorCode
from ...protocol.messages.describe_quorum import ReplicaState
from ..controller.controller import Controller


class LoneNode:
    """A role (`api.node_role.NodeRole`) of a broker without `process.roles`."""

    remote_transactions = None

    def __init__(self, node_id: int) -> None:
        self._node_id = node_id

    @property
    def controller_here(self) -> Controller:
        """Raise BrokerError NOT_CONTROLLER: a lone broker changes its metadata without a controller."""
        raise BrokerError(ErrorCode.NOT_CONTROLLER)

    def observers(self, now_ms: int) -> list[ReplicaState]:
        """Return no observers."""
        return []

    def unregister(self, broker_id: int) -> None:
        """Refuse. Raises BrokerError BROKER_ID_NOT_REGISTERED, or INVALID_REQUEST for this node's own id."""
        if broker_id != self._node_id:
            raise BrokerError(ErrorCode.BROKER_ID_NOT_REGISTERED)
        raise BrokerError(ErrorCode.INVALID_REQUEST, "A broker cannot unregister itself while it runs.")
