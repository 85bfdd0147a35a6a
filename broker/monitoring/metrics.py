"""Counters and gauges under Kafka's own names, cheap enough to be always on.

A counter is a number in an object; whoever exports them reads `families`. Names are those of Kafka's MBeans as the JMX
exporter spells them: ``kafka.server:type=BrokerTopicMetrics,name=MessagesInPerSec`` is
``kafka_server_brokertopicmetrics_messagesin_total``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from ...protocol.records.produced import Produced
from ..requests import ConversionCost

Labels = Mapping[str, str]
NO_LABELS: Labels = {}


class Family(NamedTuple):
    """All values of one metric, each with its labels. Names of counters end in ``_total``."""

    name: str
    samples: Iterable[tuple[Labels, float]]


class TopicCounters:
    """What has gone in and out of one topic since the start."""

    __slots__ = ("bytes_in", "bytes_out", "fetch_conversion", "messages_in")

    def __init__(self) -> None:
        self.messages_in = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.fetch_conversion = ConversionCost()


TOPIC_METRICS: Mapping[str, Callable[[TopicCounters], int]] = {
    "messagesin": lambda counters: counters.messages_in,
    "bytesin": lambda counters: counters.bytes_in,
    "bytesout": lambda counters: counters.bytes_out,
    "fetchmessageconversions": lambda counters: counters.fetch_conversion.record_count,
    # Batches are stored as they were produced.
    "producemessageconversions": lambda counters: 0,
}


class Metrics:
    """What is counted where it happens; `metric_families` adds what the broker knows anyway."""

    def __init__(self) -> None:
        self.topics: defaultdict[str, TopicCounters] = defaultdict(TopicCounters)
        self._deleted_topics: defaultdict[str, int] = defaultdict(int)
        self._gauges: dict[str, Callable[[], float]] = {}

    def gauge(self, name: str, read: Callable[[], float]) -> None:
        """Offer a value that is read when somebody asks."""
        self._gauges[name] = read

    def count_produced(self, topic: str, produced: Produced) -> None:
        """Records were appended to ``topic``."""
        counters = self.topics[topic]
        counters.messages_in += produced.record_count
        counters.bytes_in += produced.size_bytes

    def count_fetched(self, topic: str, size_bytes: int) -> None:
        """Records of ``topic`` were handed to a client, so many bytes as stored."""
        self.topics[topic].bytes_out += size_bytes

    def forget_topic(self, topic: str) -> None:
        """The topic was deleted; what went through it stays in the sums over all topics."""
        counters = self.topics.pop(topic, None)
        if counters is not None:
            for name, read in TOPIC_METRICS.items():
                self._deleted_topics[name] += read(counters)

    def families(self) -> Iterator[Family]:
        """All values now. As in Kafka, a metric of topics also has a value without a topic, the sum."""
        topics = list(self.topics.items())
        for name, read in TOPIC_METRICS.items():
            values = [({"topic": topic}, read(counters)) for topic, counters in topics]
            total = self._deleted_topics[name] + sum(value for _, value in values)
            yield Family(f"kafka_server_brokertopicmetrics_{name}_total", [(NO_LABELS, total), *values])
        for gauge, read_gauge in self._gauges.items():
            yield Family(gauge, [(NO_LABELS, read_gauge())])
