"""Counters and gauges by Kafka's own names, cheap enough to be always on.

A counter is a number in an object; an exporter reads `families`. Names are those of Kafka's MBeans as the JMX exporter
spells them: ``kafka.server:type=BrokerTopicMetrics,name=MessagesInPerSec`` is
``kafka_server_brokertopicmetrics_messagesin_total``.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from ...protocol.errors import ErrorCode
from ...protocol.records.produced_cy import Produced, ProducedBatch
from ..server.client_connection import ConversionCost
from ..server.request_times import RequestTimes
from .request_conversions import RequestConversions
from .response_errors import ResponseErrors

logger = logging.getLogger(__name__)

Labels = Mapping[str, str]
NO_LABELS: Labels = {}
REFUSED_BY_CONFIG, REFUSED_ZSTD = "message.downconversion.enable", "zstd"
"""The reasons of refused conversions."""


class Family(NamedTuple):
    """A metric with all its values, each with its labels. Names of counters end in ``_total``."""

    name: str
    samples: Iterable[tuple[Labels, float]]


class TopicCounters:
    """A record of one topic's traffic since the start."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "failed_fetch_requests",
        "failed_produce_requests",
        "fetch_conversion",
        "fetch_requests",
        "messages_in",
        "produce_requests",
    )

    def __init__(self) -> None:
        self.produce_requests = 0
        """As in Kafka, each partition of a request counts as one."""
        self.failed_produce_requests = 0
        self.fetch_requests = 0
        """Reads of a partition, including the last one of a delayed fetch."""
        self.failed_fetch_requests = 0
        self.messages_in = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.fetch_conversion = ConversionCost()


TOPIC_METRICS: Mapping[str, Callable[[TopicCounters], int]] = {
    "messagesin": lambda counters: counters.messages_in,
    "bytesin": lambda counters: counters.bytes_in,
    "bytesout": lambda counters: counters.bytes_out,
    "totalproducerequests": lambda counters: counters.produce_requests,
    "failedproducerequests": lambda counters: counters.failed_produce_requests,
    "totalfetchrequests": lambda counters: counters.fetch_requests,
    "failedfetchrequests": lambda counters: counters.failed_fetch_requests,
    "fetchmessageconversions": lambda counters: counters.fetch_conversion.record_count,
    # Batches are stored as they were produced.
    "producemessageconversions": lambda counters: 0,
}


EXPECTED_PRODUCE_ERRORS = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
"""Errors of an append that do not count as failures of the broker (Kafka: ReplicaManager.appendToLocalLog)."""

EXPECTED_FETCH_ERRORS = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)
"""Errors of a read that do not count as failures of the broker (Kafka: ReplicaManager.readFromLog)."""


class Metrics:
    """A set of the counters that are updated where the events occur; `metric_families` adds computed metrics."""

    def __init__(self, request_times: RequestTimes | None = None) -> None:
        self.request_times = request_times
        """The times of requests; None unless the metrics are served."""
        self.response_errors = ResponseErrors() if request_times is not None else None
        """The errors in answers; None unless the metrics are served."""
        self.topics: defaultdict[str, TopicCounters] = defaultdict(TopicCounters)
        self.fetch_conversions = RequestConversions()
        self.refused_conversions: Counter[str] = Counter()
        """Reads of a partition whose records the client cannot get in a format or codec that it reads, by reason."""
        self.recompressions_on_append = 0
        """Compressed batches that were not stored with their original bytes: there must be none (KAFKA-527)."""
        self._deleted_topics: defaultdict[str, int] = defaultdict(int)
        self._gauges: dict[str, Callable[[], float]] = {}

    def gauge(self, name: str, read: Callable[[], float]) -> None:
        """Register a value that is read on each export."""
        self._gauges[name] = read

    def count_produced(self, topic: str, produced: Produced) -> None:
        """Count records that were appended to ``topic``."""
        counters = self.topics[topic]
        counters.messages_in += produced.record_count
        counters.bytes_in += produced.size_bytes

    def count_plain_produce(self, topic: str, batch: ProducedBatch) -> None:
        """Count a request whose only batch was appended: as `count_produced` and `count_produce_request`."""
        counters = self.topics[topic]
        counters.produce_requests += 1
        counters.messages_in += batch.record_count
        counters.bytes_in += batch.size_bytes

    def count_produce_request(self, topic: str, error: int) -> None:
        """Count an append to a partition of ``topic``, which exists, and its failure."""
        counters = self.topics[topic]
        counters.produce_requests += 1
        if error not in EXPECTED_PRODUCE_ERRORS:
            counters.failed_produce_requests += 1

    def count_fetch_request(self, topic: str, error: int) -> None:
        """Count a read of a partition of ``topic``, and its failure."""
        counters = self.topics[topic]
        counters.fetch_requests += 1
        if error not in EXPECTED_FETCH_ERRORS:
            counters.failed_fetch_requests += 1

    def count_recompression(self, topic: str) -> None:
        """Count a batch for ``topic`` that was recompressed before the append."""
        if not self.recompressions_on_append:
            logger.error("RecompressionsOnAppend is no longer 0: a batch for %s was recompressed", topic)
        self.recompressions_on_append += 1

    def count_fetched(self, topic: str, size_bytes: int) -> None:
        """Count bytes of records, as stored, that were sent to a client."""
        self.topics[topic].bytes_out += size_bytes

    def forget_topic(self, topic: str) -> None:
        """Remove the counters of a deleted topic; its values stay in the sums over all topics."""
        counters = self.topics.pop(topic, None)
        if counters is not None:
            for name, read in TOPIC_METRICS.items():
                self._deleted_topics[name] += read(counters)

    def families(self) -> Iterator[Family]:
        """Yield all present values. As in Kafka, a topic metric also has a value without a topic, the sum."""
        topics = list(self.topics.items())
        for name, read in TOPIC_METRICS.items():
            values = [({"topic": topic}, read(counters)) for topic, counters in topics]
            total = self._deleted_topics[name] + sum(value for _, value in values)
            yield Family(f"kafka_server_brokertopicmetrics_{name}_total", [(NO_LABELS, total), *values])
        for gauge, read_gauge in self._gauges.items():
            yield Family(gauge, [(NO_LABELS, read_gauge())])
