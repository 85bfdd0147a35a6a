"""The mirror: reads batches from one cluster and lets a writer append them to another, from the writer's positions."""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import trio

from ...protocol.errors import BrokerError, ErrorCode
from ...protocol.messages.append_numbered import AppendNumberedRequest, AppendNumberedResponse
from ...protocol.topic_partition import AnyTopicPartition
from ..admin import BROKER_DEFAULT, Admin
from ..consumer.consumer import Consumer
from ..errors import ClientError, ConnectionLostError, DeadlineExceededError, is_retriable
from ..producer.producer import Producer
from ..producer.sender import LOST_SEQUENCE_CODES
from .errors import MirrorError
from .journal_writer import JournalWriter
from .numbered_writer import NumberedWriter
from .topics import check_clusters_differ, matching_topics, prepare_topic
from .writers import MirrorWriter

logger = logging.getLogger(__name__)

IDLE_POLL_MS = 500
MAX_REQUEST_BYTES = 16 << 20
BUFFER_BYTES = 256 << 20
FETCH_BYTES = 32 << 20
PARTITION_FETCH_BYTES = 4 << 20
RETRY_SECONDS = 1.0
TRIES_WITHOUT_PROGRESS = 5
"""The number of failed attempts in a row after which a mirror with `once` gives up."""


@dataclass(frozen=True, slots=True)
class MirrorOptions:
    """The options of a mirror.

    `group_id` names the group of the progress at a target that does not keep offsets; the default is derived from
    the source's cluster id. `appends` lets a copy start behind records that the target has already.
    `max_bytes_per_second` limits the rate; 0 means no limit.
    """

    topics: re.Pattern[str]
    keeps_offsets: bool = False
    once: bool = False
    group_id: str | None = None
    appends: bool = False
    replication_factor: int = BROKER_DEFAULT
    max_bytes_per_second: float = 0.0
    refresh_seconds: float = 30.0
    source_config: Mapping[str, Any] = field(default_factory=dict)
    target_config: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class MirrorProgress:
    """The progress of a mirror since its start; `lags` are the offsets still to copy, by partition."""

    records: int = 0
    size_bytes: int = 0
    recoveries: int = 0
    lags: dict[AnyTopicPartition, int] = field(default_factory=dict)

    @property
    def lag(self) -> int:
        """The sum of the lags of all partitions."""
        return sum(self.lags.values())


class Mirror:
    """A copier of the topics that match from one cluster to another; `run` does the work."""

    def __init__(
        self,
        source: str | Iterable[str],
        target: str | Iterable[str],
        options: MirrorOptions,
        on_progress: Callable[[MirrorProgress], None] | None = None,
    ) -> None:
        self.progress = MirrorProgress()
        self._source_servers = source
        self._target_servers = target
        self._options = options
        self._on_progress = on_progress
        self._distrusted: set[AnyTopicPartition] = set()

    async def run(self) -> None:
        """Copy until cancelled, or with `once` until everything is copied that existed at the start.

        After lost connections and other passing failures the copy continues exactly at its position. Raises
        MirrorError, BrokerError for permanent refusals, ConfigError.
        """
        failures = 0
        async with (
            Admin(self._source_servers, **self._options.source_config) as source,
            Admin(self._target_servers, **self._options.target_config) as target,
        ):
            while True:
                records_before = self.progress.records
                try:
                    await check_clusters_differ(source, target)
                    await self._copy(source, target)
                    return
                except (ClientError, BrokerError) as failure:
                    failures = 1 if self.progress.records > records_before else failures + 1
                    is_hopeless = self._options.once and failures >= TRIES_WITHOUT_PROGRESS
                    if not _may_pass(failure) or is_hopeless:
                        raise
                    logger.warning("continuing from the last confirmed position: %s", failure)
                    self.progress.recoveries += 1
                await trio.sleep(RETRY_SECONDS)

    async def _copy(self, source: Admin, target: Admin) -> None:
        """Run one attempt, from the writer's positions."""
        async with (
            self._writer(source, target) as writer,
            Consumer(
                self._source_servers,
                auto_offset_reset="none",
                isolation_level="read_committed",
                fetch_as_stored=True,
                fetch_max_bytes=self._portion(FETCH_BYTES),
                max_partition_fetch_bytes=self._portion(PARTITION_FETCH_BYTES),
                **self._options.source_config,
            ) as consumer,
        ):
            ends: dict[AnyTopicPartition, int] = {}
            refresh_at = -1.0
            while True:
                if trio.current_time() >= refresh_at:
                    refresh_at = trio.current_time() + self._options.refresh_seconds
                    ends |= await self._take_up_topics(source, target, writer, consumer)
                await self._copy_what_is_there(consumer, writer)
                if self._options.once and all(_is_there(consumer, place, end) for place, end in ends.items()):
                    await writer.settle()
                    return

    def _portion(self, size_bytes: int) -> int:
        """Return the bytes to read at once: the bytes of half a second if the rate is limited."""
        rate = self._options.max_bytes_per_second
        return max(min(size_bytes, int(rate / 2)), 1) if rate else size_bytes

    @asynccontextmanager
    async def _writer(self, source: Admin, target: Admin) -> AsyncIterator[MirrorWriter]:
        if self._options.keeps_offsets:
            await _check_is_gregor(target)
            yield NumberedWriter(target)
            return
        group_id = self._options.group_id
        if group_id is None:
            group_id = f"gregor-mirror-{(await source.describe_cluster()).cluster_id}"
        async with AsyncExitStack() as stack:
            producer = await stack.enter_async_context(
                Producer(
                    self._target_servers,
                    max_request_size=MAX_REQUEST_BYTES,
                    buffer_memory=BUFFER_BYTES,
                    **self._options.target_config,
                )
            )
            yield JournalWriter(producer, target, group_id, self._distrusted, appends=self._options.appends)

    # --- topics and positions ---

    async def _take_up_topics(
        self, source: Admin, target: Admin, writer: MirrorWriter, consumer: Consumer
    ) -> dict[AnyTopicPartition, int]:
        """Start the copy of new topics and partitions; return the end offset of each of them now."""
        known = set(consumer.assignment())
        places = []
        topics = await matching_topics(source, self._options.topics)
        if not topics and self._options.once:
            raise MirrorError(f"the source has no topic whose whole name matches {self._options.topics.pattern}")
        for topic in topics:
            of_topic = [(topic.name, partition.index) for partition in topic.partitions]
            if not known.issuperset(of_topic):
                size = await prepare_topic(source, target, topic, self._options.replication_factor)
                writer.topic_ready(topic.name, size)
                places += [place for place in of_topic if place not in known]
        if not places:
            return {}
        found = await writer.positions(places)
        starts = await consumer.beginning_offsets(places)
        ends = await consumer.end_offsets(places)
        consumer.assign([*known, *places])
        for place in places:
            consumer.seek(*place, _start(place, found[place], starts[place], ends[place]))
        return ends

    # --- copying ---

    async def _copy_what_is_there(self, consumer: Consumer, writer: MirrorWriter) -> None:
        began_at = trio.current_time()
        fetched = await consumer.poll_batches(IDLE_POLL_MS)
        if not fetched:
            await writer.settle()
        self.progress.records += await writer.write(fetched)
        size = sum(batch.size_bytes for item in fetched for batch in item.batches)
        self.progress.size_bytes += size
        for place in consumer.assignment():
            lag = consumer.current_lag(*place)
            if lag is not None:
                self.progress.lags[place] = lag
        if self._on_progress is not None:
            self._on_progress(self.progress)
        if self._options.max_bytes_per_second:
            await trio.sleep_until(began_at + size / self._options.max_bytes_per_second)


def _start(place: AnyTopicPartition, found: int | None, start: int, end: int) -> int:
    """Return the offset to continue at: the writer's position, if that is within the source's log."""
    if found is None:
        return start
    if found < start:
        logger.warning(
            "%s-%d: the source has deleted offsets %d to %d before they were copied", *place, found, start - 1
        )
        return start
    if found > end:
        raise MirrorError(
            f"{place[0]}-{place[1]} of the source ends at offset {end}, but was copied up to {found}: "
            "the topic was recreated, or has lost records"
        )
    return found


def _is_there(consumer: Consumer, place: AnyTopicPartition, end: int) -> bool:
    position = consumer.position(*place)
    return position is not None and position >= end


def _may_pass(failure: Exception) -> bool:
    """Return whether the copy may continue from the last confirmed position after this failure."""
    if isinstance(failure, BrokerError):
        passing = LOST_SEQUENCE_CODES | {ErrorCode.OFFSET_OUT_OF_RANGE}
        return is_retriable(failure) or failure.code in passing
    return isinstance(failure, DeadlineExceededError) or is_retriable(failure)


async def _check_is_gregor(target: Admin) -> None:
    description = await target.describe_cluster()
    for node in description.brokers:
        try:
            await target.ask_once(node, AppendNumberedRequest(), AppendNumberedResponse, version=0)
        except ConnectionLostError as failure:
            raise MirrorError(f"only Gregor brokers can keep the source's offsets ({failure})") from failure
