"""ListOffsets across a cluster: the first, the last, or the offset for a time, of many partitions in one call."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from ...protocol.apis import ApiKey
from ...protocol.errors import BrokerError, ErrorCode
from ...protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from ...protocol.topic_partition import AnyTopicPartition
from ..config import ClientConfig
from ..errors import STALE_METADATA_CODES, ConnectionLostError

if TYPE_CHECKING:
    from .cluster import Cluster

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
"""The offset of the record with the largest timestamp (KIP-734)."""

CONSUMER_REPLICA_ID = -1
READ_COMMITTED = 1


class OffsetAndTimestamp(NamedTuple):
    """An offset and its record's timestamp in milliseconds (-1 where only the offset was asked for)."""

    offset: int
    timestamp: int


async def list_offsets(
    cluster: Cluster,
    wanted: Mapping[AnyTopicPartition, int],
    config: ClientConfig,
    *,
    timeout_ms: int,
    read_committed: bool = False,
    on_found: Callable[[AnyTopicPartition, OffsetAndTimestamp | None], None] = lambda _place, _entry: None,
) -> dict[AnyTopicPartition, OffsetAndTimestamp | None]:
    """Return for each partition the offset of LATEST, EARLIEST, MAX_TIMESTAMP, or of the first record not older than a
    time.

    The entry is None if no record is that young. `on_found` is called for each partition as soon as its offset is
    known, however long others take. Raises BrokerError (unknown partitions and other permanent refusals), or
    DeadlineExceededError.
    """
    # Not at the top: Spark's tasks use the requests below from blocking code, and importing trio takes 0.1 s of CPU.
    from .retry import retry

    found: dict[AnyTopicPartition, OffsetAndTimestamp | None] = {}

    async def attempt() -> None:
        missing = {place: timestamp for place, timestamp in wanted.items() if place not in found}
        by_leader: defaultdict[int, dict[AnyTopicPartition, int]] = defaultdict(dict)
        unknown = {topic for topic, partition in missing if cluster.leader(topic, partition) is None}
        if unknown:
            await cluster.refresh(unknown)
        failure: BrokerError | ConnectionLostError | None = None
        for (topic, partition), timestamp in missing.items():
            leader = cluster.leader(topic, partition)
            if leader is None:
                failure = BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic}-{partition} is not known")
            else:
                by_leader[leader][topic, partition] = timestamp
        for leader, places in by_leader.items():
            try:
                failure = await _ask_leader(cluster, leader, places, found, read_committed) or failure
            except ConnectionLostError as lost:
                failure = lost
            for place in places.keys() & found.keys():
                on_found(place, found[place])
        if failure is not None:
            raise failure

    def before_retry(failure: Exception) -> None:
        if isinstance(failure, ConnectionLostError) or (
            isinstance(failure, BrokerError) and failure.code in STALE_METADATA_CODES
        ):
            for topic, _ in wanted:
                cluster.topics.pop(topic, None)

    await retry(attempt, config, timeout_ms=timeout_ms, what="ListOffsets", before_retry=before_retry)
    return found


async def _ask_leader(
    cluster: Cluster,
    leader: int,
    places: Mapping[AnyTopicPartition, int],
    found: dict[AnyTopicPartition, OffsetAndTimestamp | None],
    read_committed: bool,
) -> BrokerError | None:
    """Ask one broker; put its offsets into `found` and return the last refusal."""
    connection = await cluster.connection(leader)
    version = connection.versions.version(ApiKey.LIST_OFFSETS)
    request = list_offsets_request(places, version, read_committed=read_committed)
    return read_offsets(await connection.request(request, ListOffsetsResponse, version=version), version, found)


def list_offsets_request(
    places: Mapping[AnyTopicPartition, int], version: int, *, read_committed: bool
) -> ListOffsetsRequest:
    """Return the request to one broker: a timestamp in ms for each partition, or LATEST and the like."""
    topics: dict[str, ListOffsetsTopic] = {}
    for (topic, partition), timestamp in places.items():
        entry = topics.setdefault(topic, ListOffsetsTopic(name=topic))
        entry.partitions.append(ListOffsetsPartition(partition_index=partition, timestamp=timestamp))
    request = ListOffsetsRequest(replica_id=CONSUMER_REPLICA_ID, topics=list(topics.values()))
    if read_committed and version >= 2:
        request.isolation_level = READ_COMMITTED
    return request


def read_offsets(
    answer: ListOffsetsResponse, version: int, found: dict[AnyTopicPartition, OffsetAndTimestamp | None]
) -> BrokerError | None:
    """Put the offsets of an answer into `found`, None if there is no such record; return the last refusal."""
    failure = None
    for described in answer.topics:
        for part in described.partitions:
            place = (described.name, part.partition_index)
            if part.error_code:
                failure = BrokerError(ErrorCode(part.error_code), f"{described.name}-{part.partition_index}")
            elif version == 0:
                found[place] = OffsetAndTimestamp(part.old_style_offsets[0], -1) if part.old_style_offsets else None
            else:
                found[place] = OffsetAndTimestamp(part.offset, part.timestamp) if part.offset >= 0 else None
    return failure
