"""The partitions that a fetch asks for, and the part of them that one broker is asked for."""

from __future__ import annotations

from collections.abc import Mapping

from ...protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ..routing.router import topic_text
from .converted import Place

NO_SESSION, NO_SESSION_EPOCH = 0, -1


def places_of(request: FetchRequest) -> dict[Place, FetchPartition]:
    """Return the partitions of a request by topic, or its id as text, and index."""
    return {
        (topic.topic or topic_text(topic.topic_id), part.partition): part
        for topic in request.topics
        for part in topic.partitions
    }


def part_of(request: FetchRequest, places: Mapping[Place, FetchPartition], *, first: int) -> FetchRequest:
    """Return the request for one broker: these partitions, partition number ``first`` before the others.

    A broker fills partitions in the order of the request. With the order of a client that leaves it as it is, the
    first partitions would take all bytes again and again, where in Kafka each has its own limit.
    """
    flat = [
        (topic, part)
        for topic in request.topics
        for part in topic.partitions
        if (topic.topic or topic_text(topic.topic_id), part.partition) in places
    ]
    first %= max(len(flat), 1)
    topics: list[FetchTopic] = []
    for topic, part in flat[first:] + flat[:first]:
        if not topics or (topics[-1].topic, topics[-1].topic_id) != (topic.topic, topic.topic_id):
            topics.append(FetchTopic(topic=topic.topic, topic_id=topic.topic_id))
        topics[-1].partitions.append(places[topic.topic or topic_text(topic.topic_id), part.partition])
    return FetchRequest(
        replica_id=request.replica_id,
        isolation_level=request.isolation_level,
        session_id=NO_SESSION,
        session_epoch=NO_SESSION_EPOCH,
        topics=topics,
    )


def wanted_bytes(request: FetchRequest) -> int:
    """Return how many bytes of batches a client asks for."""
    limits = sum(max(part.partition_max_bytes, 0) for topic in request.topics for part in topic.partitions)
    return max(min(limits, request.max_bytes), 1)
