"""The replication throttle (KIP-73): limits the copying of replicas that are not in sync, as after a reassignment.

A topic's ``leader.replication.throttled.replicas`` and ``follower.replication.throttled.replicas`` name the replicas,
the broker's ``leader.replication.throttled.rate`` and ``follower.replication.throttled.rate`` the bytes a second. All
copied bytes of throttled replicas count, in sync or not; only replicas that are not in sync are delayed, so that the
throttle removes none from the in-sync set. Source: Kafka `ReplicationQuotaManager`, `SimpleRate`, `TopicConfigHandler`.
"""

from __future__ import annotations

from collections.abc import Callable

from ...config import BrokerConfig
from ...config.dynamic_only import FOLLOWER_THROTTLED_RATE, LEADER_THROTTLED_RATE, UNLIMITED_BYTES_PER_SECOND
from ...metadata.changes import BrokerConfigChanged, MetadataChange, PartitionsAdded, TopicConfigChanged, TopicDeleted
from ...metadata.state import TopicState
from ...metadata.store import MetadataStore
from ...server.sampled_rate import SampledRate, Window

LEADER_REPLICAS = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS = "follower.replication.throttled.replicas"
ALL = "*"


class RecentRate(SampledRate):
    """A rate in units per second since the oldest sample, over one whole sample at least (Kafka `SimpleRate`)."""

    __slots__ = ()

    def _elapsed_ms(self, now_ms: int) -> int:
        elapsed_ms = int(now_ms - self._samples[0][0]) if self._samples else 0
        return max(elapsed_ms, self._window.sample_ms)


class ReplicationThrottle:
    """A throttle of one side, leader or follower, on one broker."""

    def __init__(self, window: Window, node_id: int, now_ms: Callable[[], int], replicas_key: str) -> None:
        self._rate = RecentRate(window)
        self._node_id = node_id
        self._now_ms = now_ms
        self._replicas_key = replicas_key
        self._throttled: dict[str, frozenset[int] | None] = {}
        """The throttled partitions of each topic; None for all of them."""
        self.limit = UNLIMITED_BYTES_PER_SECOND
        """Bytes a second."""

    @property
    def is_active(self) -> bool:
        """Whether any replica can be delayed."""
        return bool(self._throttled) and self.limit < UNLIMITED_BYTES_PER_SECOND

    def take_topic(self, topic: TopicState) -> None:
        """Set the throttled replicas of a topic from its configuration."""
        text = topic.configs.get(self._replicas_key, "").strip()
        self._throttled.pop(topic.name, None)
        if text == ALL:
            self._throttled[topic.name] = None
        elif text and (named := _partitions_of(text, self._node_id)):
            self._throttled[topic.name] = named

    def forget_topic(self, name: str) -> None:
        """Remove a deleted topic."""
        self._throttled.pop(name, None)

    def is_throttled(self, topic: str, index: int) -> bool:
        """Return whether the configuration names this broker's replica of a partition."""
        named = self._throttled.get(topic, frozenset())
        return named is None or index in named

    def must_wait(self, topic: str, index: int) -> bool:
        """Return whether a replica of this partition that is not in sync must not be copied now."""
        return self.is_active and self.is_throttled(topic, index) and self.is_exceeded

    @property
    def is_exceeded(self) -> bool:
        """Whether more than the limit was copied recently."""
        return self._rate.exceeds(self.limit, self._now_ms())

    def record(self, topic: str, index: int, size_bytes: int) -> None:
        """Count copied bytes, if the partition is throttled."""
        if size_bytes and self._throttled and self.is_throttled(topic, index):
            self._rate.record(size_bytes, self._now_ms())


class ReplicationThrottles:
    """A pair of one broker's throttles, updated from the metadata."""

    def __init__(self, config: BrokerConfig, metadata: MetadataStore, now_ms: Callable[[], int]) -> None:
        window = Window(config.replication_quota_window_num, config.replication_quota_window_size_seconds * 1000)
        self._config = config
        self._metadata = metadata
        self.leader = ReplicationThrottle(window, config.node_id, now_ms, LEADER_REPLICAS)
        """The throttle of the records that followers copy from this broker."""
        self.follower = ReplicationThrottle(window, config.node_id, now_ms, FOLLOWER_REPLICAS)
        """The throttle of the records that this broker copies."""

    def start(self) -> None:
        """Apply the present metadata, and subscribe to its changes."""
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
    """Return the partitions of one broker in ``partition:broker`` pairs."""
    pairs = (pair.partition(":") for pair in text.split(","))
    return frozenset(int(index) for index, _, broker in pairs if int(broker) == node_id)
