"""`readStream` of the format `kafka_raw`: the offsets of checkpoints, limits of a micro-batch,
`Trigger.AvailableNow`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from ...protocol.topic_partition import AnyTopicPartition
from ..errors import DataLossError, OptionError, PipelineError
from .cluster_view import ClusterView, TopicView
from .fetch_plan import limit_bytes, limit_rows
from .offset_options import EARLIEST, ENDING, LATEST, starting_bounds
from .read_plan import ReadPlan
from .topic_choice import check_named, partitions_of, resolve_start


@dataclass(frozen=True, slots=True)
class StreamOffsets:
    """The position of a stream: the next offset of each partition, and the ids of the topics."""

    offsets: Mapping[AnyTopicPartition, int]
    topic_ids: Mapping[str, str]

    def as_json(self) -> dict[str, Any]:
        """Return the offsets as the JSON of a checkpoint."""
        topics: dict[str, dict[str, int]] = {}
        for (topic, partition), offset in sorted(self.offsets.items()):
            topics.setdefault(topic, {})[str(partition)] = offset
        return {"offsets": topics, "topicIds": dict(sorted(self.topic_ids.items()))}

    @classmethod
    def from_json(cls, parsed: Mapping[str, Any]) -> StreamOffsets:
        """Parse the JSON of `as_json`, or that of the connector, which has the offsets alone.

        So a query continues at a checkpoint of the connector. Raises PipelineError for any other JSON.
        """
        is_ours = parsed.keys() == {"offsets", "topicIds"}
        try:
            offsets = {
                (topic, int(partition)): int(offset)
                for topic, partitions in (parsed["offsets"] if is_ours else parsed).items()
                for partition, offset in partitions.items()
            }
            return cls(offsets, dict(parsed["topicIds"]) if is_ours else {})
        except (KeyError, ValueError, AttributeError, TypeError) as fault:
            raise PipelineError(f"a checkpoint that is neither of kafka_raw nor of kafka: {parsed!r}") from fault


class KafkaRawStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream reader whose micro-batches each start at the end of the previous one."""

    def __init__(self, plan: ReadPlan) -> None:
        self._plan = plan
        self._starting = starting_bounds(plan.options, default=LATEST)
        self._max_rows = plan.max_offsets
        self._max_bytes = plan.max_bytes
        self._delay = None if plan.min_offsets is None else BatchDelay(plan.min_offsets, plan.most_delay_ms)
        self._target: StreamOffsets | None = None

    # --- offsets, on the driver ---

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the first offsets of a new query. Raises PipelineError."""
        plan = self._plan
        with ClusterView(plan.settings) as cluster:
            topics = self._topics(cluster)
            places = partitions_of(topics)
            check_named(self._starting.option, places, self._starting)
            start = resolve_start(
                cluster,
                places,
                self._starting,
                plan.strategy,
                fails_on_data_loss=plan.fails_on_data_loss,
            )
        return StreamOffsets(start, _ids(topics)).as_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return the limit in the options: that of bytes if both are given, as `latestOffset` applies both."""
        if self._max_bytes is not None:
            return ReadMaxBytes(self._max_bytes)
        return ReadAllAvailable() if self._max_rows is None else ReadMaxRows(self._max_rows)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the end of the next micro-batch. Raises DataLossError or PipelineError if a topic was recreated."""
        with ClusterView(self._plan.settings) as cluster:
            latest = self._target or self._latest(cluster)
            begin = self._begin(cluster, StreamOffsets.from_json(start), latest)
            end = {place: max(offset, begin[place]) for place, offset in latest.offsets.items()}
            waiting = sum(end[place] - begin[place] for place in end)
            if self._target is None and self._delay is not None and not self._delay.is_over(waiting):
                return start
            if isinstance(limit, ReadMaxBytes):
                by_bytes = limit_bytes(cluster, begin, end, limit.max_bytes)
                end = by_bytes if self._max_rows is None else limit_rows(begin, by_bytes, self._max_rows)
            elif isinstance(limit, ReadMaxRows):
                end = limit_rows(begin, end, limit.max_rows)
        return StreamOffsets(end, latest.topic_ids).as_json()

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the latest offsets for Spark's progress reports. Raises PipelineError."""
        with ClusterView(self._plan.settings) as cluster:
            return self._latest(cluster).as_json()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Fix the end of this run: later records are left to the next run. Raises PipelineError."""
        with ClusterView(self._plan.settings) as cluster:
            self._target = self._latest(cluster)

    def _topics(self, cluster: ClusterView) -> dict[str, TopicView]:
        # PySpark hides what the reader's creation raises behind an error of its own.
        if any(name in self._plan.options for name in ENDING):
            raise OptionError("a stream has no end: endingOffsets and its like are for spark.read")
        return self._plan.choice.find(cluster)

    def _latest(self, cluster: ClusterView) -> StreamOffsets:
        topics = self._topics(cluster)
        places = partitions_of(topics)
        ends = cluster.list_offsets(dict.fromkeys(places, LATEST), read_committed=self._plan.read_committed)
        return StreamOffsets({place: ends[place] or 0 for place in places}, _ids(topics))

    def _begin(self, cluster: ClusterView, start: StreamOffsets, end: StreamOffsets) -> dict[AnyTopicPartition, int]:
        """Return the first offset to read of each partition of `end`; a new partition starts at its earliest offset.

        Raises DataLossError where offsets went back, or PipelineError where a topic was deleted and created again.
        """
        recreated = {
            topic
            for topic, topic_id in end.topic_ids.items()
            if topic in start.topic_ids and start.topic_ids[topic] != topic_id
        }
        went_back = [place for place, offset in end.offsets.items() if start.offsets.get(place, 0) > offset]
        if self._plan.fails_on_data_loss:
            for topic in sorted(recreated):
                raise PipelineError(
                    f"topic {topic} was deleted and recreated: it has the id {end.topic_ids[topic]}, not "
                    f"{start.topic_ids[topic]}; begin with a new checkpoint, or set failOnDataLoss=false"
                )
            for place in went_back:
                raise DataLossError(*place, start.offsets[place], 0, end.offsets[place])
        fresh = [
            place for place in end.offsets if place not in start.offsets or place[0] in recreated or place in went_back
        ]
        earliest = cluster.list_offsets(dict.fromkeys(fresh, EARLIEST))
        return {place: (earliest[place] or 0) if place in earliest else start.offsets[place] for place in end.offsets}

    # --- tasks ---

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return a task for each range of a micro-batch. Raises the errors of `latestOffset`."""
        if start == end:
            return []
        until = StreamOffsets.from_json(end)
        with ClusterView(self._plan.settings) as cluster:
            begin = self._begin(cluster, StreamOffsets.from_json(start), until)
        return self._plan.tasks(begin, dict(until.offsets))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task. Raises PipelineError."""
        return self._plan.rows(partition)


@dataclass(slots=True)
class BatchDelay:
    """A delay of micro-batches until enough rows are available, as in Spark's KafkaMicroBatchStream.delayBatch.

    A micro-batch starts with `least_rows`, or `most_delay_ms` after the last one; the first one starts at once.
    Trigger.AvailableNow ignores the delay.
    """

    least_rows: int
    most_delay_ms: int
    last_at_ms: float = -math.inf

    def is_over(self, waiting_rows: int) -> bool:
        """Return whether a micro-batch starts now, with `waiting_rows` available rows."""
        now_ms = time.monotonic() * 1000
        if waiting_rows < self.least_rows and now_ms - self.last_at_ms < self.most_delay_ms:
            return False
        self.last_at_ms = now_ms
        return True


def _ids(topics: Mapping[str, TopicView]) -> dict[str, str]:
    return {name: str(topic.topic_id) for name, topic in topics.items()}
