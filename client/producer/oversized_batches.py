"""Batches that a broker has refused as too large: they wait for the topic's limit, and are then split (KIP-126)."""

from __future__ import annotations

import logging
from collections.abc import Callable

import trio

from ...protocol.errors import BrokerError, ErrorCode
from ...protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from ..config import ProducerConfig
from ..errors import ConnectionLostError
from ..wire.cluster import Cluster
from .accumulator_cy import Accumulator
from .batch_cy import BatchState, ProducerBatch
from .partition_queue_cy import PartitionQueue

logger = logging.getLogger(__name__)

TOPIC = 2
"""Kafka's ConfigResource.Type.TOPIC."""
LIMIT_KEYS = ("max.message.bytes", "segment.bytes")
"""The topic configurations that limit a batch: MESSAGE_TOO_LARGE and RECORD_LIST_TOO_LARGE."""


class OversizedBatches:
    """The refused batches of all topics, and the task that requests the limits of their topics.

    A refused batch remains in flight for its partition until it is split: no sequence number is skipped, and its
    `delivery.timeout.ms` runs on. The limit is requested once for all batches of a topic, with one attempt: without
    an answer (a broker before 0.11, no right to describe the topic's configuration) it is inferred.
    """

    def __init__(
        self, cluster: Cluster, accumulator: Accumulator, config: ProducerConfig, wake: Callable[[], None]
    ) -> None:
        self._cluster = cluster
        self._accumulator = accumulator
        self._config = config
        self._wake = wake
        self._held: dict[str, list[tuple[PartitionQueue, ProducerBatch]]] = {}
        self._news = trio.Event()

    def refused(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """Split a refused batch, at once if the topic's limit need not be requested first."""
        limits = self._accumulator.limits
        limits.refused(queue.topic, batch.sent_bytes)
        if queue.topic in self._held or limits.should_ask(queue.topic):
            self._held.setdefault(queue.topic, []).append((queue, batch))
            self._news.set()
        else:
            self._accumulator.split(queue, batch)

    async def run(self) -> None:
        """Request the limits of topics that have refused batches, until cancelled."""
        while True:
            while self._held:
                topics = list(self._held)
                limits = await self._limits(topics)
                for topic in topics:
                    self._accumulator.limits.told(topic, limits.get(topic))
                    for queue, batch in self._held.pop(topic):
                        # Unless the batch has expired or was abandoned meanwhile.
                        if batch.state is BatchState.IN_FLIGHT:
                            self._accumulator.split(queue, batch)
                self._wake()
            self._news = trio.Event()
            await self._news.wait()

    async def _limits(self, topics: list[str]) -> dict[str, int]:
        """Return the size limit of each topic whose configuration a broker tells."""
        request = DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(resource_type=TOPIC, resource_name=topic, configuration_keys=list(LIMIT_KEYS))
                for topic in topics
            ]
        )
        try:
            answer = await self._cluster.request_any(request, DescribeConfigsResponse)
        except (ConnectionLostError, BrokerError) as failure:
            logger.info("the size limits of %s could not be requested: %s", ", ".join(topics), failure)
            return {}
        found: dict[str, int] = {}
        for result in answer.results:
            if result.error_code:
                logger.info("the size limit of %s: %s", result.resource_name, ErrorCode(result.error_code).name)
                continue
            values = [entry.value for entry in result.configs if entry.name in LIMIT_KEYS]
            sizes = [int(value) for value in values if value is not None and value.isascii() and value.isdecimal()]
            if sizes:
                found[result.resource_name] = min(sizes)
        return found
