"""Fetch: reads records, perhaps waits for them, and returns them as parts that need not be in memory."""

from __future__ import annotations

import itertools
import logging
from time import monotonic

import trio

from ....protocol.errors import BrokerError, ErrorCode
from ....protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, ReplicaState
from ....protocol.records import v0, v1, v2
from ....protocol.schema import NO_UUID
from ...config.replication import RACK_AWARE_SELECTOR
from ...replicas.fetching.conversion import LazyConvertRecords, keep_readable, must_convert
from ...replicas.fetching.near_replicas import RackAwareSelector
from ...replicas.fetching.purgatory import Wake
from ...replicas.fetching.reading import (
    FIRST_VERSION_FROM_FOLLOWERS,
    FetchLimits,
    PartitionRead,
    count_copied,
    failed_partition,
    read_partitions,
)
from ...replicas.fetching.sessions import (
    FIRST_VERSION_WITH_TOPIC_IDS,
    Answers,
    FetchContext,
    FetchedPartition,
    requested_partitions,
)
from ...replicas.partition import Partition
from ...server.client_connection import ConversionCost
from ...server.parts import FileSlice
from ..contract import RequestContext
from ..services import Services
from ..turns import LONGEST_TURN_S
from .leader_hints import hint_in_fetch

logger = logging.getLogger(__name__)

READ_UNCOMMITTED, READ_COMMITTED = 0, 1
LAST_VERSION_OF_V0 = 1
LAST_VERSION_OF_V1 = 3
"""The last Fetch versions whose clients read record formats v0 and v1 at most."""
FIRST_VERSION_WITH_ZSTD = 10
LAST_VERSION_WITH_OLD_STORAGE_ERROR = 5
"""Up to this version clients do not know KAFKA_STORAGE_ERROR and get NOT_LEADER_OR_FOLLOWER instead."""
FIRST_VERSION_WITH_SESSIONS = 7
FIRST_VERSION_WITH_REPLICA_STATE = 15


async def handle_fetch(request: FetchRequest, context: RequestContext) -> FetchResponse:
    """Answer with the available records, once ``min_bytes`` are available or ``max_wait_ms`` have passed."""
    services = context.services
    version = context.api_version
    if request.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED):
        return _refused(request, version, ErrorCode.UNKNOWN_SERVER_ERROR)
    fetch = services.fetch_sessions.context(request, version, trio.current_time() * 1000)
    if fetch.error:
        return FetchResponse(error_code=fetch.error)
    quotas = services.quotas
    max_bytes = min(request.max_bytes, services.config.fetch_max_bytes)
    replica = request.replica_state
    if version < FIRST_VERSION_WITH_REPLICA_STATE:
        replica = ReplicaState(replica_id=request.replica_id)
    # Client quotas must not slow followers down.
    has_quota = quotas.is_active and replica.replica_id < 0
    if has_quota:
        max_bytes = min(max_bytes, quotas.most_fetch_bytes(context))
    limits = FetchLimits(
        version=version,
        max_bytes=max_bytes,
        read_committed=request.isolation_level == READ_COMMITTED,
        replica_id=replica.replica_id,
        replica_epoch=replica.replica_epoch,
        wants_tags=request.gregor_with_tags,
        near_replicas=_near_replicas(request, context),
        throttle=services.leader_throttle if replica.replica_id >= 0 else None,
    )
    reads = await _read_or_wait(request, fetch, limits, context)
    count_copied(reads, limits)
    if has_quota and quotas.fetch_exceeds(context, sum(read.size_bytes for read in reads)):
        for read in reads:
            read.release()
        return FetchResponse(session_id=fetch.session_id)
    as_stored = request.gregor_as_stored or limits.is_follower
    answers: Answers = []
    # Partitions that could not be resolved come last, as in Kafka.
    turn_end = monotonic() + LONGEST_TURN_S
    for read in sorted(reads, key=lambda read: read.partition is None):
        await _add_records(read, context, as_stored=as_stored)
        if monotonic() >= turn_end:
            # Planning hundreds of partitions takes a while: serve other requests in between.
            await trio.lowlevel.checkpoint()
            turn_end = monotonic() + LONGEST_TURN_S
        if read.size_bytes and not limits.is_follower:
            services.metrics.count_fetched(read.fetched.topic, read.size_bytes)
        answers.append((read.fetched, read.answer))
    session_id, selected = fetch.select(answers)
    response = FetchResponse(session_id=session_id, responses=by_topic(selected))
    if any(answer.error_code for _, answer in selected):
        hint_in_fetch(response, context)
    return response


def _near_replicas(request: FetchRequest, context: RequestContext) -> RackAwareSelector | None:
    """Return the selector of replicas in a consumer's rack; None for consumers without a rack, and for followers."""
    services = context.services
    is_selecting = services.config.replica_selector_class == RACK_AWARE_SELECTOR
    if not (request.rack_id and is_selecting and context.api_version >= FIRST_VERSION_FROM_FOLLOWERS):
        return None
    return RackAwareSelector(request.rack_id, context.listener_name, services.metadata.state.brokers)


async def _read_or_wait(
    request: FetchRequest, fetch: FetchContext, limits: FetchLimits, context: RequestContext
) -> list[PartitionRead]:
    deadline = trio.current_time() + request.max_wait_ms / 1000
    min_bytes = min(request.min_bytes, limits.max_bytes)
    has_waited = False
    while True:
        found = [(fetched, find(fetched, context.services, context.api_version)) for fetched in fetch.partitions]
        reads = read_partitions(found, limits, has_waited=has_waited)
        for read in reads:
            if read.partition is not None:
                context.services.metrics.count_fetch_request(read.fetched.topic, read.answer.error_code)
        missing_bytes = min_bytes - sum(read.size_bytes for read in reads)
        if missing_bytes <= 0 or trio.current_time() >= deadline or not found:
            return reads
        if any(read.answers_at_once for read in reads):
            return reads
        for read in reads:
            read.release()
        wake = await context.services.purgatory.park(
            [partition for _, partition in found if isinstance(partition, Partition)],
            missing_bytes=missing_bytes,
            deadline=deadline,
            hangup=context.hangup,
            is_follower=limits.is_follower,
        )
        has_waited = True
        if wake in (Wake.DEADLINE, Wake.STOPPING):
            deadline = 0


def find(fetched: FetchedPartition, services: Services, version: int) -> Partition | ErrorCode:
    """Return the requested partition, by topic id from version 13 on, or the error code if there is none."""
    partitions = services.partitions
    if version >= FIRST_VERSION_WITH_TOPIC_IDS:
        if fetched.topic:
            known = partitions.find(fetched.topic, fetched.wanted.partition)
            if known is not None and known.log.topic_id == fetched.topic_id:
                return known
        topic = services.metadata.topic_by_id(fetched.topic_id) if fetched.topic_id != NO_UUID else None
        if topic is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        fetched.topic = topic.name
    partition = partitions.find(fetched.topic, fetched.wanted.partition)
    return partitions.why_missing(fetched.topic, fetched.wanted.partition) if partition is None else partition


async def _add_records(read: PartitionRead, context: RequestContext, *, as_stored: bool) -> None:
    """Add the records to the answer, in a format that the client reads; an error replaces the partition's answer.

    If down-conversion is disabled, the client gets the records up to the first batch that would need it. (Kafka 3.9
    refuses all such clients by their Fetch version, whatever is stored: `KafkaApis.maybeConvertFetchedData`.)
    """
    partition = read.partition
    if partition is None:
        return
    version = context.api_version
    if version <= LAST_VERSION_WITH_OLD_STORAGE_ERROR and read.answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR:
        read.answer.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    config = partition.log.config
    to_magic = newest_readable_magic(version)
    try:
        if config.compression_type == "zstd" and version < FIRST_VERSION_WITH_ZSTD:
            raise BrokerError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        if read.records is not None:
            may_convert = to_magic == v2.MAGIC or config.message_downconversion_enable
            if not may_convert and not keep_readable(read.records, to_magic, context.services.conversions.shared):
                context.services.clients.down_conversion_refused(context.client, version, partition.topic)
                raise BrokerError(ErrorCode.UNSUPPORTED_VERSION)
            await _choose_part(read, to_magic, context, as_stored=as_stored)
    except BrokerError as error:
        read.release()
        read.answer = failed_partition(partition.index, error.code)


async def _choose_part(read: PartitionRead, to_magic: int, context: RequestContext, *, as_stored: bool) -> None:
    records = read.records
    assert records is not None
    services = context.services
    may_convert = to_magic < v2.MAGIC or (services.config.gregor_message_upconversion_enable and not as_stored)
    if may_convert and must_convert(records, to_magic, services.conversions.shared):
        costs: tuple[ConversionCost, ...] = (context.client.up_conversion,)
        if to_magic < v2.MAGIC:
            costs = (context.client.down_conversion, services.metrics.topics[read.fetched.topic].fetch_conversion)
        read.answer.records = await LazyConvertRecords.plan(
            records, to_magic, services.conversions, costs, most_bytes=read.most_bytes
        )
    else:
        records.cut(read.size_bytes)
        read.answer.records = FileSlice(records)


def newest_readable_magic(version: int) -> int:
    """Return the newest record format (magic) that clients of this Fetch version read."""
    if version <= LAST_VERSION_OF_V0:
        return v0.MAGIC
    return v1.MAGIC if version <= LAST_VERSION_OF_V1 else v2.MAGIC


def by_topic(answers: Answers) -> list[FetchableTopicResponse]:
    """Group adjacent answers of the same topic."""
    return [
        FetchableTopicResponse(topic=topic, topic_id=topic_id, partitions=[answer for _, answer in group])
        for (topic, topic_id), group in itertools.groupby(
            answers, key=lambda entry: (entry[0].topic, entry[0].topic_id)
        )
    ]


def _refused(request: FetchRequest, version: int, code: ErrorCode) -> FetchResponse:
    """Return an answer with an error at the top level and, for versions without topic ids, in each partition."""
    if version >= FIRST_VERSION_WITH_TOPIC_IDS:
        return FetchResponse(error_code=code)
    partitions = requested_partitions(request, uses_topic_ids=False)
    answers = [(wanted, failed_partition(wanted.wanted.partition, code)) for wanted in partitions]
    return FetchResponse(error_code=code, responses=by_topic(answers))
