"""Leader elections, and the changes of replicas that follow: one decision, one record (Kafka `PartitionChangeBuilder`).

A leader is chosen from the in-sync replicas, in the order of the assignment; the present leader stays if possible. If
none of them is active the partition has no leader, and its in-sync set stays as it is, so that only a replica with all
records can become leader later. An unclean election gives up this guarantee.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from uuid import UUID

from ...protocol.errors import BrokerError, ErrorCode
from ...protocol.messages.cluster_metadata_records import PartitionChangeRecord
from ...protocol.schema import Message
from ..metadata.state import NO_CHANGE, NO_LEADER, ClusterState, PartitionState

MayLead = Callable[[int], bool]
"""Tells whether a broker is active (registered, not fenced, not in shutdown) and still has its replica."""


class Election(Enum):
    """A type of election, which limits the candidates."""

    ONLINE = auto()
    """The present leader if it can stay, else another in-sync replica."""
    PREFERRED = auto()
    """The first replica if it can lead, else as ONLINE."""
    UNCLEAN = auto()
    """As ONLINE, or any active replica if none is in sync, which loses records."""


@dataclass(frozen=True, slots=True)
class Target:
    """A target state of a partition, apart from its leader; None keeps the present value."""

    isr: Sequence[int] | None = None
    replicas: Sequence[int] | None = None
    adding: Sequence[int] | None = None
    removing: Sequence[int] | None = None


def change_of(
    topic_id: UUID,
    partition: PartitionState,
    may_lead: MayLead,
    *,
    target: Target = Target(),
    election: Election = Election.ONLINE,
) -> PartitionChangeRecord | None:
    """Return the record that moves a partition to its target, with a leader if possible; None for no change.

    A reassignment whose new replicas are all in sync is completed by the same record.
    """
    isr = list(partition.isr if target.isr is None else target.isr) or partition.isr
    replicas = list(partition.replicas if target.replicas is None else target.replicas)
    adding = list(partition.adding if target.adding is None else target.adding)
    removing = list(partition.removing if target.removing is None else target.removing)
    if adding or removing:
        kept_isr = without(isr, removing)
        if kept_isr and set(adding) <= set(kept_isr):
            isr, replicas, adding, removing = kept_isr, without(replicas, removing), [], []
    leader = _leader(partition.leader, replicas, isr, may_lead, election)
    if leader != NO_LEADER and leader not in isr:
        isr = [leader]
    record = PartitionChangeRecord(partition_id=partition.index, topic_id=topic_id)
    if isr != partition.isr:
        record.isr = isr
    if replicas != partition.replicas:
        record.replicas = replicas
    if adding != partition.adding:
        record.adding_replicas = adding
    if removing != partition.removing:
        record.removing_replicas = removing
    # A removed replica may not know of its removal: a new leader epoch keeps it from fetching.
    if leader != partition.leader or not set(partition.replicas) <= set(replicas):
        record.leader = leader
    return record if changes_anything(record) else None


def electing(topic_id: UUID, partition: PartitionState, may_lead: MayLead, election: Election) -> PartitionChangeRecord:
    """Return the record of a requested election (KIP-460).

    Raises BrokerError ELECTION_NOT_NEEDED, PREFERRED_LEADER_NOT_AVAILABLE, ELIGIBLE_LEADERS_NOT_AVAILABLE.
    """
    is_preferred = election is Election.PREFERRED
    if partition.leader == partition.replicas[0] if is_preferred else partition.leader != NO_LEADER:
        raise BrokerError(ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition.")
    record = change_of(topic_id, partition, may_lead, election=election)
    if record is None or (is_preferred and record.leader != partition.replicas[0]):
        if is_preferred:
            reason = "The preferred leader was not available."
            raise BrokerError(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, reason)
        raise BrokerError(
            ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
            "Eligible topic partition leaders are not available.",
        )
    return record


def unclean_elections(state: ClusterState, records: Iterable[Message]) -> int:
    """Return how many of the records give a partition a leader that was not in sync (Kafka `electionWasClean`)."""
    count = 0
    for record in records:
        if isinstance(record, PartitionChangeRecord) and record.leader >= 0:
            topic = state.topics_by_id.get(record.topic_id)
            known = topic.partitions[record.partition_id] if topic is not None else None
            count += known is not None and record.leader not in known.isr
    return count


def changes_anything(record: PartitionChangeRecord) -> bool:
    """Return whether a record changes any field of its partition."""
    lists = (record.isr, record.replicas, record.adding_replicas, record.removing_replicas, record.directories)
    return record.leader != NO_CHANGE or any(value is not None for value in lists)


def without(replicas: Iterable[int], removed: Iterable[int]) -> list[int]:
    """Return the replicas in their order, without those of ``removed``."""
    left_out = set(removed)
    return [replica for replica in replicas if replica not in left_out]


def _leader(present: int, replicas: Sequence[int], isr: Sequence[int], may_lead: MayLead, election: Election) -> int:
    in_sync = [replica for replica in replicas if replica in isr and may_lead(replica)]
    if election is Election.PREFERRED and replicas[0] in in_sync:
        return replicas[0]
    if present in in_sync:
        return present
    if in_sync:
        return in_sync[0]
    if election is Election.UNCLEAN:
        return next(filter(may_lead, replicas), NO_LEADER)
    return NO_LEADER
