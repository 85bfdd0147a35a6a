"""Reassignment of replicas: new replicas are added, and old ones removed once the new ones are in sync (KIP-455)."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from ...protocol.errors import BrokerError, ErrorCode
from ...protocol.messages.cluster_metadata_records import PartitionChangeRecord
from ..metadata.replica_placement import validate_replicas
from ..metadata.state import PartitionState
from .elections import MayLead, Target, change_of, without


def is_under_way(partition: PartitionState) -> bool:
    """Return whether a reassignment of the partition is in progress."""
    return bool(partition.adding or partition.removing)


def reassigning(
    topic_id: UUID, partition: PartitionState, wanted: Sequence[int], *, registered: Sequence[int], may_lead: MayLead
) -> PartitionChangeRecord | None:
    """Return the record that starts a reassignment to the brokers ``wanted``; None if the partition is there already.

    A reassignment in progress is replaced. Raises BrokerError INVALID_REPLICA_ASSIGNMENT.
    """
    validate_replicas(wanted, registered)
    before = without(partition.replicas, partition.adding)
    removing = without(before, wanted)
    replicas = [*wanted, *removing]
    isr = [node_id for node_id in partition.isr if node_id in replicas]
    target = Target(isr=isr, replicas=replicas, adding=without(wanted, before), removing=removing)
    return change_of(topic_id, partition, may_lead, target=target)


def cancelling(topic_id: UUID, partition: PartitionState, may_lead: MayLead) -> PartitionChangeRecord | None:
    """Return the record that cancels a reassignment and restores the old replicas.

    Raises BrokerError NO_REASSIGNMENT_IN_PROGRESS; INVALID_REPLICA_ASSIGNMENT if none of the old replicas is in sync.
    """
    if not is_under_way(partition):
        raise BrokerError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    replicas = without(partition.replicas, partition.adding)
    isr = [node_id for node_id in partition.isr if node_id in replicas]
    if not isr:
        raise BrokerError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "No replica from before the reassignment is in sync: the reassignment cannot be cancelled",
        )
    return change_of(topic_id, partition, may_lead, target=Target(isr=isr, replicas=replicas, adding=[], removing=[]))
