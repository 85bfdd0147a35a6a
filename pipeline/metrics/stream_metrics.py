"""The lag of streaming queries, by partition: from their progress, and as metrics for Prometheus.

    gregor_stream_offsets_behind_latest{query,topic,partition}   records that the query has not processed yet
    gregor_stream_rows_total{query}, gregor_stream_batches_total{query}, gregor_stream_batch_seconds{query}

Spark 4.2 gives Python sources no way to set `sources[].metrics` of StreamingQueryProgress, where the connector has
minOffsetsBehindLatest, maxOffsetsBehindLatest and avgOffsetsBehindLatest. `offsets_behind_latest` computes the same
from the offsets in the progress, of `kafka_raw` and of the connector alike.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

from pyspark.sql.streaming.listener import StreamingQueryListener

from ...protocol.topic_partition import AnyTopicPartition
from .exposition import Exposition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def offsets_behind_latest(progress: Any) -> dict[AnyTopicPartition, int]:
    """Return the records that a query has not processed, by (topic, partition), after a micro-batch.

    `progress` is a StreamingQueryProgress, or the same as a dict. Sources of other formats are left out.
    """
    told = progress if isinstance(progress, Mapping) else json.loads(progress.json)
    behind: dict[AnyTopicPartition, int] = {}
    for source in told.get("sources", ()):
        latest, reached = _offsets(source.get("latestOffset")), _offsets(source.get("endOffset"))
        for place, end in latest.items():
            behind[place] = behind.get(place, 0) + max(end - reached.get(place, end), 0)
    return behind


def connector_metrics(progress: Any) -> dict[str, str]:
    """Return the metrics that the connector reports in StreamingQueryProgress, by its names and as its texts.

    Source: KafkaMicroBatchStream.metrics.
    """
    behind = list(offsets_behind_latest(progress).values())
    if not behind:
        return {}
    return {
        "minOffsetsBehindLatest": str(min(behind)),
        "maxOffsetsBehindLatest": str(max(behind)),
        "avgOffsetsBehindLatest": str(sum(behind) / len(behind)),
    }


class StreamMetrics(StreamingQueryListener):
    """A listener that keeps the metrics of all streaming queries of a session."""

    def __init__(self, exposition: Exposition) -> None:
        from prometheus_client import Counter, Gauge

        self.exposition = exposition
        registry = exposition.registry
        self._behind = Gauge(
            "gregor_stream_offsets_behind_latest",
            "Records not processed yet",
            ("query", "topic", "partition"),
            registry=registry,
        )
        self._rows = Counter("gregor_stream_rows", "Rows read", ("query",), registry=registry)
        self._batches = Counter("gregor_stream_batches", "Micro-batches", ("query",), registry=registry)
        self._seconds = Gauge("gregor_stream_batch_seconds", "Time of the last one", ("query",), registry=registry)
        self._names: dict[str, str] = {}
        self._places: dict[str, set[AnyTopicPartition]] = {}

    @classmethod
    def serve(cls, session: SparkSession, listener: str) -> Self:
        """Listen to the session's queries and serve their metrics at `http://HOST:PORT`.

        Raises OptionError, PipelineError.
        """
        found = cls(Exposition(listener))
        session.streams.addListener(found)
        return found

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Remember the name of a query."""
        self._names[str(event.id)] = event.name or str(event.id)

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Take the progress of a micro-batch."""
        self.take(json.loads(event.progress.json))

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Do nothing: an idle query is as far behind as it was."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Remove the lag of a query that has ended; its counters stay."""
        name = self._names.pop(str(event.id), str(event.id))
        for topic, partition in self._places.pop(name, set()):
            self._behind.remove(name, topic, str(partition))

    def take(self, progress: Mapping[str, Any]) -> None:
        """Set the metrics from a query's progress."""
        name = progress.get("name") or str(progress["id"])
        behind = offsets_behind_latest(progress)
        for topic, partition in self._places.get(name, set()) - behind.keys():
            self._behind.remove(name, topic, str(partition))
        self._places[name] = set(behind)
        for (topic, partition), count in behind.items():
            self._behind.labels(name, topic, str(partition)).set(count)
        self._rows.labels(name).inc(progress.get("numInputRows") or 0)
        self._batches.labels(name).inc()
        duration_ms = (progress.get("durationMs") or {}).get("triggerExecution")
        if duration_ms is not None:
            self._seconds.labels(name).set(duration_ms / 1000)


def _offsets(told: Any) -> dict[AnyTopicPartition, int]:
    """Return the offsets in the JSON of a source; none for JSON of another kind."""
    try:
        parsed = json.loads(told) if isinstance(told, str) else told
        topics = parsed["offsets"] if "topicIds" in parsed else parsed
        return {
            (topic, int(partition)): int(offset)
            for topic, partitions in topics.items()
            for partition, offset in partitions.items()
        }
    except (ValueError, TypeError, KeyError, AttributeError):
        return {}
