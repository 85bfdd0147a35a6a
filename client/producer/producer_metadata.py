"""The metadata of a producer's topics: runs KIP-526's policy, and lets senders wait for a topic."""

from __future__ import annotations

import logging
from collections.abc import Callable
from random import Random

import trio

from ...protocol.errors import BrokerError, ErrorCode
from ..config import ProducerConfig
from ..errors import AuthenticationFailedError, ClosedError, ConnectionLostError, DeadlineExceededError, copied_error
from ..metrics import Metrics
from ..wire.backoff import backoff_seconds
from ..wire.cluster import Cluster
from .accumulator_cy import Accumulator
from .metadata_policy import MetadataPolicy
from .partition_queue_cy import TopicQueues

logger = logging.getLogger(__name__)

_HOPELESS_CODES = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    }
)
"""Error codes of a topic after which waiting is useless; others may pass (the topic may be in creation)."""


class ProducerMetadata:
    """The single task that fetches metadata for a producer.

    Invariant: at most one Metadata request is in flight; topics that become urgent meanwhile are added to the next
    request.
    """

    def __init__(self, cluster: Cluster, accumulator: Accumulator, config: ProducerConfig, metrics: Metrics) -> None:
        self._cluster = cluster
        self._accumulator = accumulator
        self._config = config
        self._metrics = metrics
        self._policy = MetadataPolicy(
            # As in Kafka, no refresh is sooner than retry.backoff.ms: a maximum age of 0 must not cause endless
            # requests.
            max(config.metadata_max_age_ms, config.retry_backoff_ms),
            config.metadata_evict_ms,
        )
        self._errors: dict[str, BrokerError | AuthenticationFailedError] = {}
        self._refusals: dict[str, BrokerError] = {}
        """The last refusals of topics that may become available later."""
        self._last_failure: Exception | None = None
        """The error of the last fetch if it got no answer at all."""
        self._is_closed = False
        self._wanted = trio.Event()
        self._arrived = trio.Event()
        self._random = Random()
        self._failures = 0
        self.on_news: Callable[[], None] = lambda: None
        """Called with each answer: batches that waited for a leader may be sendable now."""

    def use(self, topic: str, now: float) -> None:
        """Note that records are produced to this topic at `now` (trio's clock), so that it is not evicted."""
        self._policy.use(topic, now)

    def request_update(self, topic: str) -> None:
        """Note that the metadata of a topic is stale: it is fetched at once."""
        self._policy.request_update(topic)
        self._wanted.set()

    async def wait_for(self, topic: str, partition: int | None = None, *, deadline: float | None = None) -> TopicQueues:
        """Wait until a topic (and the given partition of it) is known.

        Raises BrokerError if the broker refuses the topic for good, DeadlineExceededError with the last failure at
        `deadline` (by default `max.block.ms` from now), ClosedError if the producer is closed meanwhile. The call
        also waits for a partition that the topic does not have, as partitions may be in creation (Kafka's
        KafkaProducer.waitOnMetadata).
        """
        self._errors.pop(topic, None)
        is_told = False
        with trio.move_on_at(trio.current_time() + self._config.max_block_ms / 1000 if deadline is None else deadline):
            while True:
                if self._is_closed:
                    raise ClosedError(f"the producer was closed while a record waited for the metadata of {topic}")
                queues = self._accumulator.topics.get(topic)
                if queues is not None and (partition is None or partition < len(queues.queues)):
                    return queues
                if topic in self._errors:
                    raise copied_error(self._errors.pop(topic))
                if queues is not None and not is_told:
                    is_told = True
                    count = len(queues.queues)
                    logger.warning("waiting for %s-%s: the topic has %d partition(s), from 0", topic, partition, count)
                self.use(topic, trio.current_time())
                self.request_update(topic)
                await self._arrived.wait()
        raise self._not_known(topic, partition)

    def _not_known(self, topic: str, partition: int | None) -> DeadlineExceededError:
        missing = topic if partition is None else f"{topic}-{partition}"
        cause = self._last_failure or self._refusals.get(topic)
        because = f": {cause}" if cause is not None else ""
        queues = self._accumulator.topics.get(topic)
        if queues is not None:
            because = f": {topic} has {len(queues.queues)} partition(s){because}"
        error = DeadlineExceededError(
            f"{missing} is not known after max.block.ms ({self._config.max_block_ms} ms){because}"
        )
        error.__cause__ = cause
        return error

    def close(self) -> None:
        """Make all waiting and later callers raise ClosedError."""
        self._is_closed = True
        self._arrived.set()

    async def run(self) -> None:
        """Fetch the topics that the policy returns, until cancelled."""
        while True:
            self._wanted = trio.Event()
            now = trio.current_time()
            self._evict(now)
            if topics := self._policy.next_fetch(now):
                await self._fetch(topics)
                continue
            with trio.move_on_at(self._policy.next_check_at(now)):
                await self._wanted.wait()

    def _evict(self, now: float) -> None:
        for topic in self._policy.evict(now):
            if self._accumulator.forget_topic(topic):
                self._cluster.topics.pop(topic, None)
                self._refusals.pop(topic, None)
            elif topic in self._accumulator.topics:
                # Batches for this topic are still queued.
                self._policy.use(topic, now)

    async def _fetch(self, topics: list[str]) -> None:
        self._metrics.count("gregor.metadata-request")
        try:
            answer = await self._cluster.refresh(topics, allow_auto_create=True)
        except (ConnectionLostError, BrokerError) as failure:
            logger.info("metadata could not be fetched: %s", failure)
            self._last_failure = failure
            self._failures += 1
            if isinstance(failure, AuthenticationFailedError):
                self._errors.update(dict.fromkeys(topics, failure))
            self._policy.failed(topics, trio.current_time() + self._backoff(self._failures))
        else:
            self._failures = 0
            self._last_failure = None
            self._apply(topics, {topic.name or "": ErrorCode(topic.error_code) for topic in answer.topics})
        arrived, self._arrived = self._arrived, trio.Event()
        arrived.set()
        self.on_news()

    def _apply(self, asked: list[str], codes: dict[str, ErrorCode]) -> None:
        now = trio.current_time()
        for topic in asked:
            metadata = self._cluster.topics.get(topic)
            code = codes.get(topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            if metadata is not None and code in (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE):
                self._accumulator.update_topic(topic, metadata.leaders)
            self._refusals.pop(topic, None)
            if metadata is not None and code is ErrorCode.NONE and None not in metadata.leaders:
                self._policy.refreshed([topic], now)
                continue
            if code in _HOPELESS_CODES:
                self._errors[topic] = BrokerError(code, f"topic {topic!r}")
            elif code:
                self._refusals[topic] = BrokerError(code, f"topic {topic!r}")
            self._policy.failed([topic], now + self._backoff(1))

    def _backoff(self, failures: int) -> float:
        return backoff_seconds(failures, self._config.retry_backoff_ms, self._config.retry_backoff_max_ms, self._random)
