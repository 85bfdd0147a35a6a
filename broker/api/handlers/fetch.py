"""Fetch: reads records, perhaps waits for them, and returns them as parts that need not be in memory."""

from __future__ import annotations

from collections.abc import Coroutine, Iterator, Sequence
from contextlib import nullcontext
from time import monotonic
from typing import Any

import trio

from ....protocol.errors import BrokerError, ErrorCode
from ....protocol.messages.fetch import FetchRequest, FetchResponse
from ....protocol.records import v2
from ....protocol.records.compression import Codec
from ....protocol.schema import NO_UUID
from ....storage.log.partition_log import LogSlice
from ...conversion.readable_formats import FIRST_VERSION_WITH_ZSTD, newest_readable_magic
from ...monitoring.metrics import REFUSED_BY_CONFIG, REFUSED_ZSTD
from ...monitoring.request_conversions import RequestConversionCost
from ...replicas.fetching.conversion import (
    LEGACY_MAGICS,
    LazyConvertRecords,
    converted_small,
    keep_readable,
    must_convert,
)
from ...replicas.fetching.follower_lane_cy import FETCH_VERSION as FOLLOWER_FETCH_VERSION
from ...replicas.fetching.lane_opening import new_lane
from ...replicas.fetching.partitions_at_rest import PartitionsAtRest
from ...replicas.fetching.reading import (
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
)
from ...replicas.partition import Partition
from ...server.client_connection import ConversionCost
from ...server.outcome import Outcome
from ...server.parts import FileSlice
from ..contract import RequestContext
from ..services import Services
from ..turns import LONGEST_TURN_S
from .fetch_limits import READ_COMMITTED, READ_UNCOMMITTED, limits_of
from .fetch_responses import by_topic, refused
from .fetch_rights import Found, readable
from .leader_hints import hint_in_fetch

LAST_VERSION_WITH_OLD_STORAGE_ERROR = 5
"""Up to this version clients do not know KAFKA_STORAGE_ERROR and get NOT_LEADER_OR_FOLLOWER instead."""
MOST_BYTES_AT_ONCE = 32 * 1024
"""Most stored bytes of all partitions of an answer that are converted in memory; more are converted while sending."""


def handle_fetch(request: FetchRequest, context: RequestContext) -> Outcome[FetchResponse]:
    """Answer with the available records, once ``min_bytes`` are available or ``max_wait_ms`` have passed."""
    services = context.services
    version = context.api_version
    if request.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED):
        return refused(request, version, ErrorCode.UNKNOWN_SERVER_ERROR)
    fetch = services.fetch_sessions.context(request, version, trio.current_time() * 1000)
    if fetch.error:
        return FetchResponse(error_code=fetch.error)
    return FetchOperation(request, fetch, context).begin()


class FetchOperation:
    """A Fetch request that reads its partitions, perhaps several times (`purgatory.FetchAttempts`)."""

    def __init__(self, request: FetchRequest, fetch: FetchContext, context: RequestContext) -> None:
        self._context = context
        self._fetch = fetch
        self._limits = limits_of(request, context)
        self._request = request if self._limits.is_follower else None
        self._as_stored = request.gregor_as_stored or self._limits.is_follower
        self._deadline = trio.current_time() + request.max_wait_ms / 1000
        self._min_bytes = min(request.min_bytes, self._limits.max_bytes)
        self._located: Sequence[Found] | None = None
        self._answers: Answers = []
        self._conversion: RequestConversionCost | None = None
        self._left_at_once_bytes = MOST_BYTES_AT_ONCE
        """The stored bytes that may still be converted while the answer is made."""
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
        """Add the partitions to the answer; if a conversion must be planned or the turn ends, a task adds the rest."""
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
        conversions = self._context.services.metrics.fetch_conversions
        conversions.request_count += 1
        if self._conversion is not None and not self._conversion.parts and self._conversion.temporary_bytes:
            # All conversions have ended already.
            conversions.record(self._conversion)
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
            costs = self._conversion_costs(read, to_magic)
            if not self._convert_at_once(read, records, to_magic, zstd_codec, costs):
                return self._plan_conversion(read, records, to_magic, zstd_codec, costs)
            return None
        records.cut(read.size_bytes)
        read.answer.records = FileSlice(records)
        return None

    def _conversion_costs(self, read: PartitionRead, to_magic: int) -> tuple[ConversionCost, ...]:
        """Return what a conversion of a partition's records counts for."""
        services, client = self._context.services, self._context.client
        if to_magic == v2.MAGIC:
            return (client.up_conversion,)
        if self._conversion is None:
            self._conversion = RequestConversionCost(conversions=services.metrics.fetch_conversions)
        return client.down_conversion, services.metrics.topics[read.fetched.topic].fetch_conversion, self._conversion

    def _convert_at_once(
        self,
        read: PartitionRead,
        records: LogSlice,
        to_magic: int,
        zstd_codec: Codec | None,
        costs: tuple[ConversionCost, ...],
    ) -> bool:
        """Convert a partition's few records, so that no task need be woken; return False if they must be planned."""
        stored_bytes = records.size_bytes
        if stored_bytes > self._left_at_once_bytes:
            return False
        conversions = self._context.services.conversions
        read.answer.records = converted_small(
            records, to_magic, conversions, costs, most_bytes=read.most_bytes, zstd_codec=zstd_codec
        )
        if read.answer.records is None:
            return False
        self._left_at_once_bytes -= stored_bytes
        return True

    async def _plan_conversion(
        self,
        read: PartitionRead,
        records: LogSlice,
        to_magic: int,
        zstd_codec: Codec | None,
        costs: tuple[ConversionCost, ...],
    ) -> None:
        read.answer.records = await LazyConvertRecords.plan(
            records,
            to_magic,
            self._context.services.conversions,
            costs,
            most_bytes=read.most_bytes,
            zstd_codec=zstd_codec,
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
