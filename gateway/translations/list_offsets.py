"""ListOffsets v0, which returned offsets of segments: several offsets before a time, the newest first.

A gateway does not know the segments. It returns the offsets that v0 returned for the same question where a log has a
single segment, at record precision for times: the offset for the time, then the start of the log.
"""

from __future__ import annotations

from ...protocol.errors import ErrorCode
from ...protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)
from .contract import Ask

LATEST, EARLIEST = -1, -2
Place = tuple[str, int]
Found = dict[Place, ListOffsetsPartitionResponse]


async def translate_list_offsets(request: ListOffsetsRequest, _version: int, ask: Ask) -> ListOffsetsResponse:
    """Answer with up to ``max_num_offsets`` offsets for each partition, newest first."""
    wanted = {(topic.name, part.partition_index): part for topic in request.topics for part in topic.partitions}
    refusals = {place: code for place, part in wanted.items() if (code := _refusal(part))}
    valid = {place: part.timestamp for place, part in wanted.items() if place not in refusals}
    found = await _ask(valid, request.replica_id, ask)
    earliest = await _ask(
        {place: EARLIEST for place in valid if wanted[place].timestamp != EARLIEST and not found[place].error_code},
        request.replica_id,
        ask,
    )
    latest = await _ask(
        {place: LATEST for place in earliest if wanted[place].timestamp >= 0 and found[place].offset < 0},
        request.replica_id,
        ask,
    )
    topics = []
    for topic in request.topics:
        answers = []
        for part in topic.partitions:
            place = (topic.name, part.partition_index)
            answer = ListOffsetsPartitionResponse(partition_index=part.partition_index)
            answer.error_code = refusals.get(place) or _error(place, found, earliest, latest)
            if not answer.error_code:
                answer.old_style_offsets = _offsets(part, place, found, earliest, latest)
            answers.append(answer)
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=answers))
    return ListOffsetsResponse(topics=topics)


def _refusal(part: ListOffsetsPartition) -> ErrorCode | None:
    """Return Kafka's error for a question that v0 does not have."""
    if part.timestamp < 0 and part.timestamp not in (LATEST, EARLIEST):
        return ErrorCode.UNSUPPORTED_VERSION
    return ErrorCode.UNKNOWN_SERVER_ERROR if part.max_num_offsets < 0 else None


async def _ask(timestamps: dict[Place, int], replica_id: int, ask: Ask) -> Found:
    if not timestamps:
        return {}
    topics: dict[str, ListOffsetsTopic] = {}
    for (name, index), timestamp in timestamps.items():
        topic = topics.setdefault(name, ListOffsetsTopic(name=name))
        topic.partitions.append(ListOffsetsPartition(partition_index=index, timestamp=timestamp))
    response = await ask(ListOffsetsRequest(replica_id=replica_id, topics=list(topics.values())))
    found = {(topic.name, part.partition_index): part for topic in response.topics for part in topic.partitions}
    missing = ListOffsetsPartitionResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
    return {place: found.get(place, missing) for place in timestamps}


def _error(place: Place, *answers: Found) -> int:
    return next((found[place].error_code for found in answers if place in found and found[place].error_code), 0)


def _offsets(part: ListOffsetsPartition, place: Place, found: Found, earliest: Found, latest: Found) -> list[int]:
    newest = latest[place].offset if place in latest else found[place].offset
    offsets = [newest]
    if place in earliest:
        start = earliest[place].offset
        if newest > start:
            offsets.append(start)
        elif part.timestamp >= 0:
            # All records are younger than the time.
            offsets = []
    return offsets[: part.max_num_offsets]
