"""Moving replicas: new ones are added, and the old ones go once the new ones are in sync (KIP-455)."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from ...protocol.errors import BrokerError, ErrorCode
from ...protocol.messages.cluster_metadata_records import PartitionChangeRecord
from ..metadata.replica_placement import validate_replicas
from ..metadata.state import PartitionState
from .elections import MayLead, Target, change_of, without


def is_under_way(partition: PartitionState) -> bool:
    """Whether replicas of a partition are being moved."""
    return bool(partition.adding or partition.removing)


def reassigning(
    topic_id: UUID, partition: PartitionState, wanted: Sequence[int], *, registered: Sequence[int], may_lead: MayLead
) -> PartitionChangeRecord | None:
    """The record that begins to move a partition to the brokers ``wanted``; None if it is there.

    A reassignment under way is replaced. Raises BrokerError INVALID_REPLICA_ASSIGNMENT.
    """
    validate_replicas(wanted, registered)
    before = without(partition.replicas, partition.adding)
    removing = without(before, wanted)
    replicas = [*wanted, *removing]
    isr = [node_id for node_id in partition.isr if node_id in replicas]
    target = Target(isr=isr, replicas=replicas, adding=without(wanted, before), removing=removing)
    return change_of(topic_id, partition, may_lead, target=target)


def cancelling(topic_id: UUID, partition: PartitionState, may_lead: MayLead) -> PartitionChangeRecord | None:
    """The record that ends a reassignment where it began.

    Raises BrokerError NO_REASSIGNMENT_IN_PROGRESS; INVALID_REPLICA_ASSIGNMENT if none of the old replicas is in sync.
    """
    if not is_under_way(partition):
        raise BrokerError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    replicas = without(partition.replicas, partition.adding)
    isr = [node_id for node_id in partition.isr if node_id in replicas]
    if not isr:
        raise BrokerError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "No replica of before the reassignment is in sync: it cannot be ended"
        )
    return change_of(topic_id, partition, may_lead, target=Target(isr=isr, replicas=replicas, adding=[], removing=[]))
