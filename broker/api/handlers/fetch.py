"""Fetch: reads records, perhaps waits for them, and returns them as parts that need not be in memory."""

from __future__ import annotations

import itertools
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import nullcontext
from time import monotonic
from typing import Any

import trio

from ....protocol.errors import BrokerError, ErrorCode
from ....protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, ReplicaState
from ....protocol.records import v2
from ....protocol.records.compression import Codec
from ....protocol.schema import NO_UUID
from ....storage.log.partition_log import LogSlice
from ...config.replication import RACK_AWARE_SELECTOR
from ...conversion.readable_formats import FIRST_VERSION_WITH_ZSTD, newest_readable_magic
from ...monitoring.metrics import REFUSED_BY_CONFIG, REFUSED_ZSTD
from ...monitoring.request_conversions import RequestConversionCost
from ...replicas.fetching.conversion import LEGACY_MAGICS, LazyConvertRecords, keep_readable, must_convert
from ...replicas.fetching.follower_lane_cy import FETCH_VERSION as FOLLOWER_FETCH_VERSION
from ...replicas.fetching.lane_opening import new_lane
from ...replicas.fetching.near_replicas import RackAwareSelector
from ...replicas.fetching.partitions_at_rest import PartitionsAtRest
from ...replicas.fetching.reading import (
    FIRST_VERSION_FROM_FOLLOWERS,
    FetchLimits,
    PartitionRead,
    all_rest,
    count_copied,
    failed_partition,
    note_all_is_copied,
    read_partitions,
)
from ...replicas.fetching.sessions import (
    FIRST_VERSION_WITH_TOPIC_IDS,
    Answers,
    FetchContext,
    FetchedPartition,
    FetchSession,
    requested_partitions,
)
from ...replicas.partition import Partition
from ...server.client_connection import ConversionCost
from ...server.outcome import Outcome
from ...server.parts import FileSlice
from ..contract import RequestContext
from ..services import Services
from ..turns import LONGEST_TURN_S
from .fetch_rights import Found, readable
from .leader_hints import hint_in_fetch

READ_UNCOMMITTED, READ_COMMITTED = 0, 1
LAST_VERSION_WITH_OLD_STORAGE_ERROR = 5
"""Up to this version clients do not know KAFKA_STORAGE_ERROR and get NOT_LEADER_OR_FOLLOWER instead."""
FIRST_VERSION_WITH_SESSIONS = 7
FIRST_VERSION_WITH_REPLICA_STATE = 15


def handle_fetch(request: FetchRequest, context: RequestContext) -> Outcome[FetchResponse]:
    """Answer with the available records, once ``min_bytes`` are available or ``max_wait_ms`` have passed."""
    services = context.services
    version = context.api_version
    if request.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED):
        return _refused(request, version, ErrorCode.UNKNOWN_SERVER_ERROR)
    fetch = services.fetch_sessions.context(request, version, trio.current_time() * 1000)
    if fetch.error:
        return FetchResponse(error_code=fetch.error)
    return FetchOperation(request, fetch, context).begin()


def _limits_of(request: FetchRequest, context: RequestContext) -> FetchLimits:
    services, version = context.services, context.api_version
    replica = request.replica_state
    if version < FIRST_VERSION_WITH_REPLICA_STATE:
        replica = ReplicaState(replica_id=request.replica_id)
    context.client.is_follower = replica.replica_id >= 0
    max_bytes = min(request.max_bytes, services.config.fetch_max_bytes)
    # Client quotas must not slow followers down.
    if services.quotas.is_active and replica.replica_id < 0:
        max_bytes = min(max_bytes, services.quotas.most_fetch_bytes(context))
    return FetchLimits(
        version=version,
        max_bytes=max_bytes,
        read_committed=request.isolation_level == READ_COMMITTED,
        replica_id=replica.replica_id,
        replica_epoch=replica.replica_epoch,
        wants_tags=request.gregor_with_tags,
        wants_tag_runs=request.gregor_with_tag_runs and (request.gregor_as_stored or replica.replica_id >= 0),
        near_replicas=_near_replicas(request, context),
        throttle=services.leader_throttle if replica.replica_id >= 0 else None,
    )


def _near_replicas(request: FetchRequest, context: RequestContext) -> RackAwareSelector | None:
    """Return the selector of replicas in a consumer's rack; None for consumers without a rack, and for followers."""
    services = context.services
    is_selecting = services.config.replica_selector_class == RACK_AWARE_SELECTOR
    if not (request.rack_id and is_selecting and context.api_version >= FIRST_VERSION_FROM_FOLLOWERS):
        return None
    return RackAwareSelector(request.rack_id, context.listener_name, services.metadata.state.brokers)


class FetchOperation:
    """A Fetch request that reads its partitions, perhaps several times (`purgatory.FetchAttempts`)."""

    def __init__(self, request: FetchRequest, fetch: FetchContext, context: RequestContext) -> None:
        self._context = context
        self._fetch = fetch
        self._limits = _limits_of(request, context)
        self._request = request if self._limits.is_follower else None
        self._as_stored = request.gregor_as_stored or self._limits.is_follower
        self._deadline = trio.current_time() + request.max_wait_ms / 1000
        self._min_bytes = min(request.min_bytes, self._limits.max_bytes)
        self._located: Sequence[Found] | None = None
        self._answers: Answers = []
        self._conversion: RequestConversionCost | None = None
        self.missing_bytes = self._min_bytes

    def begin(self) -> Outcome[FetchResponse]:
        """Return the outcome of the first attempt, or delay the request."""
        purgatory = self._context.services.purgatory
        is_last = purgatory.is_stopping or trio.current_time() >= self._deadline
        if not is_last and self._is_at_rest():
            return purgatory.delay(self, self._deadline)
        is_last = is_last or not self._found
        if is_last or not self._is_follower_at_the_ends():
            outcome = self._try(is_last=is_last, has_waited=False)
            if outcome is not None:
                return outcome
        return purgatory.delay(self, self._deadline)

    def _is_at_rest(self) -> bool:
        """Return whether no partition of a follower's session has changed since its last fetch, which is recorded."""
        at_rest, limits = self._fetch.at_rest, self._limits
        if at_rest is None:
            return False
        if at_rest.fetched(replica_id=limits.replica_id, replica_epoch=limits.replica_epoch):
            return True
        at_rest.end()
        return False

    def _is_follower_at_the_ends(self) -> bool:
        """Return whether a follower has all records, as nearly always: then its fetch is recorded, and nothing read."""
        found, limits = self._found, self._limits
        if not (limits.is_follower and self._min_bytes > 0 and note_all_is_copied(found, limits)):
            return False
        if self._fetch.is_idle and self._context.services.authorizer is None and all_rest(found, limits):
            replica_id, replica_epoch = limits.replica_id, limits.replica_epoch
            self._fetch.rest(PartitionsAtRest(self.partitions, replica_id=replica_id, replica_epoch=replica_epoch))
        return True

    # --- for the purgatory

    @property
    def at_rest(self) -> PartitionsAtRest | None:
        """The partitions of the request, if it is an idle follower's."""
        return self._fetch.at_rest

    @property
    def partitions(self) -> list[Partition]:
        """The partitions of the request that exist here."""
        return [partition for _, partition in self._found if isinstance(partition, Partition)]

    @property
    def is_of_follower(self) -> bool:
        """Whether a follower has sent the request."""
        return self._limits.is_follower

    def try_again(self, *, has_changed: bool, is_last: bool) -> Outcome[FetchResponse] | None:
        """Return the outcome, None if there are not enough records and ``is_last`` is not set."""
        with nullcontext() if self._context.work is None else self._context.work:
            at_rest = self._fetch.at_rest
            if at_rest is not None and not at_rest.has_ended:
                if is_last and at_rest.is_unchanged():
                    return self._answer([], 0)
                at_rest.end()
            if has_changed or self._context.services.authorizer is not None:
                self._located = None
            return self._try(is_last=is_last or trio.current_time() >= self._deadline, has_waited=True)

    # --- reading

    @property
    def _found(self) -> Sequence[Found]:
        """The partitions of the request, looked up at their first use and after changes."""
        if self._located is None:
            context = self._context
            services, version = context.services, context.api_version
            located = [(fetched, find(fetched, services, version)) for fetched in self._fetch.partitions]
            self._located = readable(located, context, is_follower=self._limits.is_follower)
        return self._located

    def _try(self, *, is_last: bool, has_waited: bool) -> Outcome[FetchResponse] | None:
        metrics = self._context.services.metrics
        reads = read_partitions(self._found, self._limits, has_waited=has_waited)
        size_bytes = 0
        for read in reads:
            size_bytes += read.size_bytes
            if read.partition is not None:
                metrics.count_fetch_request(read.fetched.topic, read.answer.error_code)
        self.missing_bytes = self._min_bytes - size_bytes
        if is_last or self.missing_bytes <= 0 or any(read.answers_at_once for read in reads):
            return self._answer(reads, size_bytes)
        for read in reads:
            read.release()
        return None

    # --- answering

    def _answer(self, reads: list[PartitionRead], size_bytes: int) -> Outcome[FetchResponse]:
        quotas, limits = self._context.services.quotas, self._limits
        count_copied(reads, limits)
        if quotas.is_active and not limits.is_follower and quotas.fetch_exceeds(self._context, size_bytes):
            for read in reads:
                read.release()
            return FetchResponse(session_id=self._fetch.session_id)
        if len(reads) > 1:
            # Partitions that could not be resolved come last, as in Kafka.
            reads.sort(key=lambda read: read.partition is None)
        return self._add_all(iter(reads))

    def _add_all(self, reads: Iterator[PartitionRead]) -> Outcome[FetchResponse]:
        """Add the partitions to the answer; leave the rest to a task if a conversion must be planned or it takes
        long."""
        turn_end = monotonic() + LONGEST_TURN_S
        for read in reads:
            planning = self._add_records(read)
            if planning is not None or monotonic() >= turn_end:
                return self._add_rest(read, planning, reads, turn_end)
            self._add(read)
        return self._response()

    async def _add_rest(
        self,
        read: PartitionRead | None,
        planning: Coroutine[Any, Any, None] | None,
        reads: Iterator[PartitionRead],
        turn_end: float,
    ) -> FetchResponse:
        while read is not None:
            if planning is not None:
                try:
                    await planning
                except BrokerError as error:
                    self._refuse(read, error)
            self._add(read)
            if monotonic() >= turn_end:
                # Hundreds of partitions take a while: serve other requests in between.
                await trio.lowlevel.checkpoint()
                turn_end = monotonic() + LONGEST_TURN_S
            read = next(reads, None)
            planning = None if read is None else self._add_records(read)
        return self._response()

    def _add(self, read: PartitionRead) -> None:
        if read.size_bytes and not self._limits.is_follower:
            self._context.services.metrics.count_fetched(read.fetched.topic, read.size_bytes)
        self._answers.append((read.fetched, read.answer))

    def _response(self) -> FetchResponse:
        self._context.services.metrics.fetch_conversions.request_count += 1
        session_id, selected = self._fetch.select(self._answers)
        response = FetchResponse(session_id=session_id, responses=by_topic(selected))
        if any(answer.error_code for _, answer in selected):
            hint_in_fetch(response, self._context)
        elif selected and self._request is not None and self._fetch.session is not None:
            self._open_lane(self._request, self._fetch.session)
        return response

    def _open_lane(self, request: FetchRequest, session: FetchSession) -> None:
        """Let a lane answer the next requests of a busy follower, where no other part of the broker reads them."""
        context, services = self._context, self._context.services
        is_usual = context.api_version == FOLLOWER_FETCH_VERSION
        if session.lane is None and is_usual and context.dispatch.plain_lane is not None:
            session.lane = context.client.lane = new_lane(
                session,
                self._found,
                request,
                self._limits,
                context.client,
                purgatory=services.purgatory,
                quotas=services.quotas,
                metrics=services.metrics,
            )

    def _add_records(self, read: PartitionRead) -> Coroutine[Any, Any, None] | None:
        """Add the records to a partition's answer, in a format that the client reads; an error replaces the answer.

        Return a coroutine if a conversion must be planned first. If down-conversion is disabled, the client gets the
        records up to the first batch that would need it. (Kafka 3.9 refuses all such clients by their Fetch version,
        whatever is stored: `KafkaApis.maybeConvertFetchedData`.)
        """
        partition, context = read.partition, self._context
        if partition is None:
            return None
        version = context.api_version
        if version <= LAST_VERSION_WITH_OLD_STORAGE_ERROR and read.answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR:
            read.answer.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        config = partition.log.config
        to_magic = newest_readable_magic(version)
        try:
            is_refused = version < FIRST_VERSION_WITH_ZSTD and context.services.conversions.zstd_codec is None
            if config.compression_type == "zstd" and is_refused:
                raise BrokerError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
            if read.records is not None:
                may_convert = to_magic == v2.MAGIC or config.message_downconversion_enable
                if not may_convert and not keep_readable(read.records, to_magic, context.services.conversions.shared):
                    context.services.clients.down_conversion_refused(context.client, version, partition.topic)
                    raise BrokerError(ErrorCode.UNSUPPORTED_VERSION)
                return self._choose_part(read, to_magic)
        except BrokerError as error:
            self._refuse(read, error)
        return None

    def _refuse(self, read: PartitionRead, error: BrokerError) -> None:
        """Replace a partition's answer by an error, and count refusals of conversions."""
        if error.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE:
            self._context.services.clients.zstd_refused(self._context.client)
            self._context.services.metrics.refused_conversions[REFUSED_ZSTD] += 1
        elif error.code is ErrorCode.UNSUPPORTED_VERSION:
            self._context.services.metrics.refused_conversions[REFUSED_BY_CONFIG] += 1
        _fail(read, error)

    def _choose_part(self, read: PartitionRead, to_magic: int) -> Coroutine[Any, Any, None] | None:
        records = read.records
        assert records is not None
        services = self._context.services
        may_upconvert = services.config.gregor_message_upconversion_enable and not self._as_stored
        zstd_codec = services.conversions.zstd_codec if self._limits.version < FIRST_VERSION_WITH_ZSTD else None
        is_new = not records.magics & LEGACY_MAGICS
        may_convert = to_magic < v2.MAGIC or may_upconvert or (zstd_codec is not None and is_new)
        reads_zstd = zstd_codec is None
        if may_convert and must_convert(records, to_magic, services.conversions.shared, reads_zstd=reads_zstd):
            return self._plan_conversion(read, records, to_magic, zstd_codec)
        records.cut(read.size_bytes)
        read.answer.records = FileSlice(records)
        return None

    async def _plan_conversion(
        self, read: PartitionRead, records: LogSlice, to_magic: int, zstd_codec: Codec | None
    ) -> None:
        services, client = self._context.services, self._context.client
        costs: tuple[ConversionCost, ...] = (client.up_conversion,)
        if to_magic < v2.MAGIC:
            if self._conversion is None:
                self._conversion = RequestConversionCost(conversions=services.metrics.fetch_conversions)
            of_topic = services.metrics.topics[read.fetched.topic].fetch_conversion
            costs = (client.down_conversion, of_topic, self._conversion)
        read.answer.records = await LazyConvertRecords.plan(
            records, to_magic, services.conversions, costs, most_bytes=read.most_bytes, zstd_codec=zstd_codec
        )
        if self._conversion is not None:
            self._conversion.parts += 1


def _fail(read: PartitionRead, error: BrokerError) -> None:
    """Replace a partition's answer by an error."""
    assert read.partition is not None
    read.release()
    read.answer = failed_partition(read.partition.index, error.code)


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
