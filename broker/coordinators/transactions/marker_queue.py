"""The queue of markers for one broker: one request at a time, with all markers queued since the last request.

So a broker that does not answer delays only its own markers, and a slow one receives few large requests rather than
many. Source: Kafka `TransactionMarkerChannelManager`, `TxnMarkerQueue`.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import trio

from ....protocol.errors import BrokerError, ErrorCode
from ....protocol.messages.write_txn_markers import WritableTxnMarker, WriteTxnMarkersRequest, WriteTxnMarkersResponse
from ....protocol.topic_partition import TopicPartition

logger = logging.getLogger(__name__)

SETTLED = frozenset({ErrorCode.NONE, ErrorCode.INVALID_PRODUCER_EPOCH})
"""Results that need no retry: a producer with a newer epoch has already ended the transaction itself."""

Ask = Callable[[WriteTxnMarkersRequest], Awaitable[WriteTxnMarkersResponse]]
"""Sends a request to the broker. Raises BrokerError."""


@dataclass(slots=True, eq=False)
class QueuedMarker:
    """A marker and, after it was sent, the partitions that need no retry."""

    marker: WritableTxnMarker
    settled: set[TopicPartition] | None = None


class MarkerQueue:
    """A queue of the markers to send to one broker."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._sending = trio.Lock()
        self._gathered: list[QueuedMarker] = []

    async def write(self, marker: WritableTxnMarker) -> set[TopicPartition]:
        """Send a marker; return the partitions that need no retry, none if the broker does not answer."""
        queued = QueuedMarker(marker)
        self._gathered.append(queued)
        async with self._sending:
            if queued.settled is None:
                await self._send_gathered()
        return queued.settled or set()

    async def _send_gathered(self) -> None:
        sent, self._gathered = self._gathered, []
        settled: dict[int, set[TopicPartition]] = {}
        try:
            settled = _settled(await self._ask(WriteTxnMarkersRequest(markers=[queued.marker for queued in sent])))
        except BrokerError as error:
            logger.debug("%d markers could not be sent: %s", len(sent), error)
        finally:
            for queued in sent:
                queued.settled = settled.get(queued.marker.producer_id, set())


def _settled(response: WriteTxnMarkersResponse) -> dict[int, set[TopicPartition]]:
    """Return the partitions that need no retry, by producer id."""
    settled: dict[int, set[TopicPartition]] = {}
    for result in response.markers:
        settled.setdefault(result.producer_id, set()).update(
            TopicPartition(topic.name, partition.partition_index)
            for topic in result.topics
            for partition in topic.partitions
            if partition.error_code in SETTLED
        )
    return settled
