"""The metrics of a running job, by topic and partition: records, bytes, dead letters, position, lag.

gregor_pipeline_records_total, gregor_pipeline_bytes_total     written by this run; bytes of keys and values
gregor_pipeline_dead_letters_total                             values that could not be decoded
gregor_pipeline_position, gregor_pipeline_end_offset           next offset to read, and the end of the log
gregor_pipeline_lag                                            the difference of these two
"""

from __future__ import annotations

from .exposition import Exposition

LABELS = ("job", "topic", "partition")


class JobMetrics:
    """The metrics of one job (`jobs.desk.Metrics`)."""

    def __init__(self, job: str, exposition: Exposition) -> None:
        from prometheus_client import Counter, Gauge

        self._job = job
        registry = exposition.registry
        self._records = Counter("gregor_pipeline_records", "Records written by this run", LABELS, registry=registry)
        self._bytes = Counter("gregor_pipeline_bytes", "Bytes of their keys and values", LABELS, registry=registry)
        self._letters = Counter(
            "gregor_pipeline_dead_letters", "Values that could not be decoded", LABELS, registry=registry
        )
        self._position = Gauge("gregor_pipeline_position", "The next offset to read", LABELS, registry=registry)
        self._end = Gauge("gregor_pipeline_end_offset", "The end of the source's log", LABELS, registry=registry)
        self._lag = Gauge("gregor_pipeline_lag", "Offsets between position and end", LABELS, registry=registry)

    def done(self, topic: str, partition: int, *, records: int, size_bytes: int, dead_letters: int = 0) -> None:
        """Count records that were written, see Metrics."""
        labels = (self._job, topic, str(partition))
        self._records.labels(*labels).inc(records)
        self._bytes.labels(*labels).inc(size_bytes)
        self._letters.labels(*labels).inc(dead_letters)

    def position(self, topic: str, partition: int, next_offset: int, end_offset: int) -> None:
        """Set the position in a partition, see Metrics."""
        labels = (self._job, topic, str(partition))
        self._position.labels(*labels).set(next_offset)
        self._end.labels(*labels).set(end_offset)
        self._lag.labels(*labels).set(max(end_offset - next_offset, 0))
