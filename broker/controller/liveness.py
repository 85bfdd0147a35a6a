"""What the coming and going of a broker means for partitions (Kafka `ReplicationControlManager`).

All functions give records; brokers are active as the metadata says unless they are named as gone or come.
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
"""Whether replicas that are not in sync may lead a topic (`unclean.leader.election.enable`)."""


def partitions_of(state: ClusterState) -> Iterator[tuple[TopicState, PartitionState]]:
    """Every partition with its topic."""
    for topic in state.topics.values():
        for partition in topic.partitions:
            yield topic, partition


def leads_any(state: ClusterState, node_id: int) -> bool:
    """Whether a broker leads a partition."""
    return any(partition.leader == node_id for _, partition in partitions_of(state))


def active_but(state: ClusterState, gone: int) -> MayLead:
    """Who may lead, now that one broker is gone."""
    return lambda node_id: node_id != gone and is_active(state, node_id)


def is_active(state: ClusterState, node_id: int) -> bool:
    """Whether a broker may lead and be in sync."""
    broker = state.brokers.get(node_id)
    return broker is not None and broker.is_active


def fencing(state: ClusterState, broker: BrokerState, unclean: AllowsUnclean) -> Iterator[Message]:
    """Fence a broker: it leads nothing and is in sync nowhere, unless it is the last that was."""
    if not broker.is_fenced:
        yield BrokerRegistrationChangeRecord(broker_id=broker.node_id, broker_epoch=broker.epoch, fenced=FENCE)
    yield from _leaving(state, broker.node_id, unclean)


def shutting_down(state: ClusterState, broker: BrokerState, unclean: AllowsUnclean) -> Iterator[Message]:
    """Begin a broker's controlled shutdown: others lead what they can."""
    yield BrokerRegistrationChangeRecord(
        broker_id=broker.node_id, broker_epoch=broker.epoch, in_controlled_shutdown=BEGIN
    )
    yield from _leaving(state, broker.node_id, unclean)


def restarting(state: ClusterState, node_id: int, unclean: AllowsUnclean) -> Iterator[Message]:
    """A broker has ended without a word and is back already: its log may be shorter than it was.

    A partition that has no other replica stays as it is: nobody else could tell the difference.
    """
    may_lead = active_but(state, node_id)
    for topic, partition in partitions_of(state):
        if len(partition.replicas) > 1 and node_id in (partition.leader, *partition.isr):
            yield from _leaving_one(topic, partition, node_id, may_lead, unclean)


def _leaving(state: ClusterState, node_id: int, unclean: AllowsUnclean) -> Iterator[PartitionChangeRecord]:
    may_lead = active_but(state, node_id)
    for topic, partition in partitions_of(state):
        if node_id in (partition.leader, *partition.isr):
            yield from _leaving_one(topic, partition, node_id, may_lead, unclean)


def _leaving_one(
    topic: TopicState, partition: PartitionState, node_id: int, may_lead: MayLead, unclean: AllowsUnclean
) -> Iterator[PartitionChangeRecord]:
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
    """Unfence a broker: it leads what has no leader and can be led by it."""
    yield BrokerRegistrationChangeRecord(broker_id=broker.node_id, broker_epoch=broker.epoch, fenced=UNFENCE)
    yield from elections_of_leaderless(
        state, unclean, lambda node_id: node_id == broker.node_id or is_active(state, node_id)
    )


def elections_of_leaderless(
    state: ClusterState, unclean: AllowsUnclean, may_lead: MayLead
) -> Iterator[PartitionChangeRecord]:
    """Leaders for partitions that have none and can have one."""
    for topic, partition in partitions_of(state):
        if partition.leader == NO_LEADER:
            election = Election.UNCLEAN if unclean(topic) else Election.ONLINE
            record = change_of(topic.topic_id, partition, may_lead, election=election)
            if record is not None:
                yield record


def preferred_elections(state: ClusterState) -> Iterator[PartitionChangeRecord]:
    """Give leadership back to first replicas that are in sync and active."""
    for topic, partition in partitions_of(state):
        if partition.leader not in (NO_LEADER, partition.replicas[0]):
            record = change_of(
                topic.topic_id,
                partition,
                lambda node_id: is_active(state, node_id),
                election=Election.PREFERRED,
            )
            if record is not None:
                yield record
