"""Counters and gauges under Kafka's own names, cheap enough to be always on.

A counter is an integer in a dictionary; whoever exports them reads `samples`. Names are those of Kafka's MBeans as the
usual exporters spell them, ``kafka_server_brokertopicmetrics_messagesin_total`` and so on.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import NamedTuple

from ..protocol.records.produced import Produced


class Sample(NamedTuple):
    """One value of one metric, with its labels."""

    name: str
    labels: dict[str, str]
    value: float


class TopicCounters:
    """What has gone in and out of one topic since the start."""

    __slots__ = ("bytes_in", "bytes_out", "fetch_conversions", "messages_in")

    def __init__(self) -> None:
        self.messages_in = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.fetch_conversions = 0


TOPIC_METRICS = {
    "messages_in": "messagesin",
    "bytes_in": "bytesin",
    "bytes_out": "bytesout",
    "fetch_conversions": "fetchmessageconversions",
}


class Metrics:
    """All metrics of a broker."""

    def __init__(self) -> None:
        self.topics: defaultdict[str, TopicCounters] = defaultdict(TopicCounters)
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

    def count_conversion(self, topic: str) -> None:
        """A stretch of ``topic`` was converted for an old client."""
        self.topics[topic].fetch_conversions += 1

    def forget_topic(self, topic: str) -> None:
        """The topic was deleted."""
        self.topics.pop(topic, None)

    def samples(self) -> Iterator[Sample]:
        """All values now."""
        for topic, counters in list(self.topics.items()):
            for attribute, name in TOPIC_METRICS.items():
                value = getattr(counters, attribute)
                yield Sample(f"kafka_server_brokertopicmetrics_{name}_total", {"topic": topic}, value)
        for name, read in self._gauges.items():
            yield Sample(name, {}, read())
