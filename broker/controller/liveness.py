"""Consequences of a broker's start or stop for partitions (Kafka `ReplicationControlManager`).

All functions yield records; the activity of a broker is taken from the metadata, except for brokers named as ``gone``
or ``come``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ...protocol.messages.cluster_metadata_records import BrokerRegistrationChangeRecord, PartitionChangeRecord
from ...protocol.schema import Message
from ..metadata.state import NO_LEADER, BrokerState, ClusterState, PartitionState, TopicState
from .elections import Election, MayLead, Target, change_of, without

FENCE, UNFENCE = 1, -1
BEGIN = 1
"""Values of BrokerRegistrationChangeRecord (Kafka `BrokerRegistrationFencingChange`)."""

AllowsUnclean = Callable[[TopicState], bool]
"""Tells whether replicas that are not in sync may lead a topic (`unclean.leader.election.enable`)."""


def partitions_of(state: ClusterState) -> Iterator[tuple[TopicState, PartitionState]]:
    """Yield every partition with its topic."""
    for topic in state.topics.values():
        for partition in topic.partitions:
            yield topic, partition


def leads_any(state: ClusterState, node_id: int) -> bool:
    """Return whether a broker leads a partition."""
    return any(partition.leader == node_id for _, partition in partitions_of(state))


def may_lead_in(
    state: ClusterState, partition: PartitionState, *, gone: int | None = None, come: int | None = None
) -> MayLead:
    """Return the test which brokers may lead a partition, with one broker taken as stopped or as started."""
    return lambda node_id: (
        node_id != gone and (node_id == come or is_active(state, node_id)) and state.holds(partition, node_id)
    )


def is_active(state: ClusterState, node_id: int) -> bool:
    """Return whether a broker may lead and be in sync."""
    broker = state.brokers.get(node_id)
    return broker is not None and broker.is_active


def fencing(state: ClusterState, broker: BrokerState, unclean: AllowsUnclean) -> Iterator[Message]:
    """Fence a broker: remove it as leader, and from in-sync sets in which it is not the last member."""
    if not broker.is_fenced:
        yield BrokerRegistrationChangeRecord(broker_id=broker.node_id, broker_epoch=broker.epoch, fenced=FENCE)
    yield from _leaving(state, broker.node_id, unclean)


def shutting_down(state: ClusterState, broker: BrokerState, unclean: AllowsUnclean) -> Iterator[Message]:
    """Start a broker's controlled shutdown: move leadership to other brokers where possible."""
    yield BrokerRegistrationChangeRecord(
        broker_id=broker.node_id, broker_epoch=broker.epoch, in_controlled_shutdown=BEGIN
    )
    yield from _leaving(state, broker.node_id, unclean)


def restarting(state: ClusterState, node_id: int, unclean: AllowsUnclean) -> Iterator[Message]:
    """Handle a broker that has restarted without a shutdown: its logs may be shorter than before.

    A partition without other replicas keeps its state: no other replica could have more records.
    """
    for topic, partition in partitions_of(state):
        if len(partition.replicas) > 1 and node_id in (partition.leader, *partition.isr):
            yield from leaving_one(topic, partition, node_id, may_lead_in(state, partition, gone=node_id), unclean)


def _leaving(state: ClusterState, node_id: int, unclean: AllowsUnclean) -> Iterator[PartitionChangeRecord]:
    for topic, partition in partitions_of(state):
        if node_id in (partition.leader, *partition.isr):
            yield from leaving_one(topic, partition, node_id, may_lead_in(state, partition, gone=node_id), unclean)


def leaving_one(
    topic: TopicState, partition: PartitionState, node_id: int, may_lead: MayLead, unclean: AllowsUnclean
) -> Iterator[PartitionChangeRecord]:
    """Yield the record that removes a broker as leader, and from the in-sync set unless it is the last member."""
    record = change_of(
        topic.topic_id,
        partition,
        may_lead,
        target=Target(isr=without(partition.isr, [node_id])),
        election=Election.UNCLEAN if unclean(topic) else Election.ONLINE,
    )
    if record is not None:
        yield record


def unfencing(state: ClusterState, broker: BrokerState, unclean: AllowsUnclean) -> Iterator[Message]:
    """Unfence a broker, and elect it for partitions without a leader where it may lead."""
    yield BrokerRegistrationChangeRecord(broker_id=broker.node_id, broker_epoch=broker.epoch, fenced=UNFENCE)
    yield from elections_of_leaderless(state, unclean, come=broker.node_id)


def elections_of_leaderless(
    state: ClusterState, unclean: AllowsUnclean, *, come: int | None = None
) -> Iterator[PartitionChangeRecord]:
    """Elect leaders for partitions without one where possible, with one broker taken as started."""
    for topic, partition in partitions_of(state):
        if partition.leader == NO_LEADER:
            election = Election.UNCLEAN if unclean(topic) else Election.ONLINE
            may_lead = may_lead_in(state, partition, come=come)
            record = change_of(topic.topic_id, partition, may_lead, election=election)
            if record is not None:
                yield record


def preferred_elections(state: ClusterState) -> Iterator[PartitionChangeRecord]:
    """Move leadership back to preferred replicas that are in sync and active."""
    for topic, partition in partitions_of(state):
        if partition.leader not in (NO_LEADER, partition.replicas[0]):
            record = change_of(
                topic.topic_id,
                partition,
                may_lead_in(state, partition),
                election=Election.PREFERRED,
            )
            if record is not None:
                yield record
