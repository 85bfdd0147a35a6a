"""The choice of the topics whose metadata is fetched, and of the time: KIP-526.

A producer that writes to many topics must not fetch the metadata of all topics whenever it uses a new one. Topics
are *urgent* (the KIP's set T: used and unknown, known to have changed, or older than `metadata.max.age.ms`) or
*non-urgent* (U: older than half of that age). Urgent topics are fetched at once; non-urgent topics are added to such
a request up to a target size, or fetched alone once there are enough of them. Topics that are not produced to for
`metadata.evict.ms` are evicted.

The policy has no I/O: the caller passes the time (in seconds, on any monotonic clock) and fetches the metadata.
"""

import math
from collections.abc import Iterable
from itertools import islice

MINIMUM_TARGET_SIZE = 20
SECONDS_BETWEEN_REFRESHES = 10
NON_URGENT_AGE_FRACTION = 0.5


class _Topic:
    """The policy's state of one topic; `refreshed_at` is None until metadata has arrived."""

    __slots__ = ("last_used_at", "not_before", "refreshed_at")

    def __init__(self, now: float) -> None:
        self.last_used_at = now
        self.refreshed_at: float | None = None
        self.not_before = now


class MetadataPolicy:
    """The sets T and U of KIP-526 over the topics of one producer.

    Invariant: `_known` holds exactly the topics with metadata, oldest refresh first, so that U is a prefix of it.
    """

    def __init__(self, max_age_ms: int, evict_ms: int) -> None:
        self._max_age = max_age_ms / 1000
        self._evict_after = evict_ms / 1000
        self._topics: dict[str, _Topic] = {}
        self._known: dict[str, _Topic] = {}
        self._wanted: dict[str, None] = {}
        self._evict_at = math.inf
        """No topic can be evicted before this time: topics may have been used since it was computed."""

    def __len__(self) -> int:
        return len(self._topics)

    def __contains__(self, topic: str) -> bool:
        return topic in self._topics

    def use(self, topic: str, now: float) -> None:
        """Note that a record is being produced to `topic`. A topic without metadata becomes urgent."""
        entry = self._topics.get(topic)
        if entry is None:
            entry = self._topics[topic] = _Topic(now)
            self._evict_at = min(self._evict_at, now + self._evict_after)
        entry.last_used_at = now
        if entry.refreshed_at is None:
            self._wanted[topic] = None

    def request_update(self, topic: str) -> None:
        """Note that the topic's metadata is stale (NOT_LEADER_OR_FOLLOWER and the like): the topic becomes urgent."""
        if topic in self._topics:
            self._wanted[topic] = None

    def refreshed(self, topics: Iterable[str], now: float) -> None:
        """Note that metadata for these topics has arrived."""
        for topic in topics:
            entry = self._topics.get(topic)
            if entry is None:
                continue
            entry.refreshed_at = entry.not_before = now
            self._wanted.pop(topic, None)
            self._known.pop(topic, None)
            self._known[topic] = entry

    def failed(self, topics: Iterable[str], retry_at: float) -> None:
        """Note that fetching these topics failed: urgent topics remain urgent, but wait until `retry_at`
        (retry.backoff.ms).
        """
        for topic in topics:
            if (entry := self._topics.get(topic)) is not None:
                entry.not_before = retry_at
                if entry.refreshed_at is None:
                    self._wanted[topic] = None

    def evict(self, now: float) -> list[str]:
        """Remove the topics that were not produced to for `metadata.evict.ms`, and return their names."""
        if now < self._evict_at:
            return []
        gone = [name for name, topic in self._topics.items() if now - topic.last_used_at >= self._evict_after]
        for name in gone:
            del self._topics[name]
            self._known.pop(name, None)
            self._wanted.pop(name, None)
        oldest_use = min((topic.last_used_at for topic in self._topics.values()), default=math.inf)
        self._evict_at = oldest_use + self._evict_after
        return gone

    def target_fetch_size(self) -> int:
        """Return KIP-526's targetMetadataFetchSize: ten seconds' worth of topics, and at least 20."""
        topics_per_second = len(self._known) / self._max_age if self._max_age > 0 else 0
        return max(int(topics_per_second * SECONDS_BETWEEN_REFRESHES), MINIMUM_TARGET_SIZE)

    def next_fetch(self, now: float) -> list[str]:
        """Return the topics to fetch now: all urgent topics, filled up with the oldest non-urgent ones; empty if no
        fetch is due.
        """
        urgent = {name: None for name in self._wanted if self._topics[name].not_before <= now}
        for name, topic in self._known.items():
            assert topic.refreshed_at is not None
            if now - topic.refreshed_at < self._max_age:
                break
            if topic.not_before <= now:
                urgent[name] = None
        if not urgent and now < self._spread_at(now):
            return []
        target = self.target_fetch_size()
        return [*urgent, *islice(self._non_urgent(now, urgent), max(0, target - len(urgent)))]

    def _spread_at(self, now: float) -> float:
        """Return the time at which the oldest topics must be fetched, so that requests of the target size can fetch
        all topics before they are urgent.

        The requests are as far apart as the second half of the maximum age allows, if all topics had the same age.
        """
        oldest = next(iter(self._known.values()), None)
        if oldest is None or oldest.refreshed_at is None:
            return math.inf
        half_age = self._max_age * NON_URGENT_AGE_FRACTION
        if now < oldest.refreshed_at + half_age:
            # The exact time is later or the same; this saves the search for it while topics are new.
            return oldest.refreshed_at + half_age
        target = self.target_fetch_size()
        interval = half_age / math.ceil(len(self._known) / target)
        due_at = math.inf
        for count, topic in enumerate(islice(self._known.values(), 0, None, target)):
            assert topic.refreshed_at is not None
            due_at = min(due_at, topic.refreshed_at + self._max_age - count * interval)
        return due_at

    def _non_urgent(self, now: float, urgent: dict[str, None]) -> Iterable[str]:
        half_age = self._max_age * NON_URGENT_AGE_FRACTION
        for name, topic in self._known.items():
            assert topic.refreshed_at is not None
            if now - topic.refreshed_at < half_age:
                return
            if name not in urgent and topic.not_before <= now:
                yield name

    def next_check_at(self, now: float) -> float:
        """Return the time at which `next_fetch` or `evict` may next return topics, if no event comes first.

        To be called when `next_fetch` has returned no topics.
        """
        times = [self._topics[name].not_before for name in self._wanted]
        times.append(self._evict_at)
        if self._known:
            oldest = next(iter(self._known.values())).refreshed_at
            assert oldest is not None
            due_at = min(self._spread_at(now), oldest + self._max_age)
            if due_at <= now:
                # All topics that are due wait after a failure.
                due_at = min(
                    (topic.not_before for topic in self._known.values() if topic.not_before > now), default=now
                )
            times.append(due_at)
        return max(now, min(times))
