"""Moving replicas: new ones are added, and the old ones go once the new ones are in sync (KIP-455)."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from ...protocol.errors import BrokerError, ErrorCode
from ...protocol.messages.cluster_metadata_records import PartitionChangeRecord
from ..metadata.replica_placement import validate_replicas
from ..metadata.state import ClusterState, PartitionState
from .elections import Target, change_of, without
from .liveness import is_active


def is_under_way(partition: PartitionState) -> bool:
    """Whether replicas of a partition are being moved."""
    return bool(partition.adding or partition.removing)


def reassigning(
    state: ClusterState, topic_id: UUID, partition: PartitionState, wanted: Sequence[int]
) -> PartitionChangeRecord | None:
    """The record that begins to move a partition to ``wanted``; None if it is there.

    A reassignment under way is replaced. Raises BrokerError INVALID_REPLICA_ASSIGNMENT.
    """
    validate_replicas(wanted, list(state.brokers))
    before = without(partition.replicas, partition.adding)
    adding = without(wanted, before)
    removing = without(before, wanted)
    return change_of(
        topic_id,
        partition,
        lambda node_id: is_active(state, node_id),
        target=Target(
            isr=_still_there(partition.isr, [*wanted, *removing]),
            replicas=[*wanted, *removing],
            adding=adding,
            removing=removing,
        ),
    )


def cancelling(state: ClusterState, topic_id: UUID, partition: PartitionState) -> PartitionChangeRecord | None:
    """The record that ends a reassignment where it began.

    Raises BrokerError NO_REASSIGNMENT_IN_PROGRESS; INVALID_REPLICA_ASSIGNMENT if none of the old replicas is in sync.
    """
    if not is_under_way(partition):
        raise BrokerError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    replicas = without(partition.replicas, partition.adding)
    isr = _still_there(partition.isr, replicas)
    if not isr:
        raise BrokerError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "No replica of before the reassignment is in sync: it cannot be ended"
        )
    return change_of(
        topic_id,
        partition,
        lambda node_id: is_active(state, node_id),
        target=Target(isr=isr, replicas=replicas, adding=[], removing=[]),
    )


def _still_there(isr: Sequence[int], replicas: Sequence[int]) -> list[int]:
    return [node_id for node_id in isr if node_id in replicas]
