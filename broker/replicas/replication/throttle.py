"""The replication throttle (KIP-73): how fast replicas are copied that are not in sync, as after a reassignment.

A topic's ``leader.replication.throttled.replicas`` and ``follower.replication.throttled.replicas`` name the replicas,
the broker's ``leader.replication.throttled.rate`` and ``follower.replication.throttled.rate`` the bytes a second. What
is copied of throttled replicas counts, in sync or not; only who is not in sync has to wait, so that nobody drops out of
the in-sync set for the throttle. Source: Kafka `ReplicationQuotaManager`, `SimpleRate`, `TopicConfigHandler`.
"""

from __future__ import annotations

from collections.abc import Callable

from ...config import BrokerConfig
from ...config.dynamic_only import FOLLOWER_THROTTLED_RATE, LEADER_THROTTLED_RATE, UNLIMITED_BYTES_PER_SECOND
from ...metadata.changes import BrokerConfigChanged, MetadataChange, PartitionsAdded, TopicConfigChanged, TopicDeleted
from ...metadata.state import TopicState
from ...metadata.store import MetadataStore
from ...quotas.rates import SampledRate, Window

LEADER_REPLICAS = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS = "follower.replication.throttled.replicas"
ALL = "*"


class RecentRate(SampledRate):
    """Units per second since the oldest sample, or over one whole sample at least (Kafka `SimpleRate`)."""

    __slots__ = ()

    def _elapsed_ms(self, now_ms: int) -> int:
        elapsed_ms = int(now_ms - self._samples[0][0]) if self._samples else 0
        return max(elapsed_ms, self._window.sample_ms)


class ReplicationThrottle:
    """One side's throttle on one broker."""

    def __init__(self, window: Window, node_id: int, now_ms: Callable[[], int], replicas_key: str) -> None:
        self._rate = RecentRate(window)
        self._node_id = node_id
        self._now_ms = now_ms
        self._replicas_key = replicas_key
        self._throttled: dict[str, frozenset[int] | None] = {}
        """Partitions of each topic that are throttled here; None for all of them."""
        self.limit = UNLIMITED_BYTES_PER_SECOND
        """Bytes a second."""

    @property
    def is_active(self) -> bool:
        """Whether anything can have to wait."""
        return bool(self._throttled) and self.limit < UNLIMITED_BYTES_PER_SECOND

    def take_topic(self, topic: TopicState) -> None:
        """Note which replicas of a topic are throttled here."""
        text = topic.configs.get(self._replicas_key, "").strip()
        self._throttled.pop(topic.name, None)
        if text == ALL:
            self._throttled[topic.name] = None
        elif text and (named := _partitions_of(text, self._node_id)):
            self._throttled[topic.name] = named

    def forget_topic(self, name: str) -> None:
        """Forget a topic that is deleted."""
        self._throttled.pop(name, None)

    def is_throttled(self, topic: str, index: int) -> bool:
        """Whether the replica here of a partition is among those that are named."""
        named = self._throttled.get(topic, frozenset())
        return named is None or index in named

    def must_wait(self, topic: str, index: int) -> bool:
        """Whether what is not in sync of this partition is not to be copied now."""
        return self.is_active and self.is_throttled(topic, index) and self.is_exceeded

    @property
    def is_exceeded(self) -> bool:
        """Whether more than the limit was copied of late."""
        return self._rate.exceeds(self.limit, self._now_ms())

    def record(self, topic: str, index: int, size_bytes: int) -> None:
        """Count bytes that were copied, if the partition is throttled."""
        if size_bytes and self._throttled and self.is_throttled(topic, index):
            self._rate.record(size_bytes, self._now_ms())


class ReplicationThrottles:
    """Both sides' throttles of one broker, in step with the metadata."""

    def __init__(self, config: BrokerConfig, metadata: MetadataStore, now_ms: Callable[[], int]) -> None:
        window = Window(config.replication_quota_window_num, config.replication_quota_window_size_seconds * 1000)
        self._config = config
        self._metadata = metadata
        self.leader = ReplicationThrottle(window, config.node_id, now_ms, LEADER_REPLICAS)
        """Of what this broker's partitions are copied from here."""
        self.follower = ReplicationThrottle(window, config.node_id, now_ms, FOLLOWER_REPLICAS)
        """Of what this broker copies."""

    def start(self) -> None:
        """Take what the metadata says now, and follow its changes."""
        self._take_rates()
        for topic in self._metadata.topics.values():
            self._take_topic(topic)
        self._metadata.subscribe(self._note)

    def _note(self, change: MetadataChange) -> None:
        match change:
            case BrokerConfigChanged():
                self._take_rates()
            case PartitionsAdded(topic, _) | TopicConfigChanged(topic):
                self._take_topic(topic)
            case TopicDeleted(topic):
                self.leader.forget_topic(topic.name)
                self.follower.forget_topic(topic.name)

    def _take_rates(self) -> None:
        self.leader.limit = int(self._config.text(LEADER_THROTTLED_RATE) or UNLIMITED_BYTES_PER_SECOND)
        self.follower.limit = int(self._config.text(FOLLOWER_THROTTLED_RATE) or UNLIMITED_BYTES_PER_SECOND)

    def _take_topic(self, topic: TopicState) -> None:
        self.leader.take_topic(topic)
        self.follower.take_topic(topic)


def _partitions_of(text: str, node_id: int) -> frozenset[int]:
    """The partitions that are named for one broker in ``partition:broker`` pairs."""
    pairs = (pair.partition(":") for pair in text.split(","))
    return frozenset(int(index) for index, _, broker in pairs if int(broker) == node_id)
