"""A pipeline of batches in one transaction to one partition's leader: many requests in flight, no copy, no retry.

`client.Producer` retries batches and splits those that are too large, for which it keeps a queue and a state for
each batch. A writer whose transactions start over after any failure needs neither: batches are sent from the memory
into which they were fetched, where their headers are changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self
from uuid import UUID

from ...client.errors import ConnectionLostError
from ...client.producer.raw_batch import produce_again
from ...protocol.apis import ApiKey
from ...protocol.errors import BrokerError, ErrorCode
from ...protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from ...protocol.records import v2
from ...protocol.records.record import Buffer
from ...protocol.records.v2 import next_sequence
from ...protocol.topic_partition import AnyTopicPartition
from ..kafka.cluster_view import ClusterView
from ..kafka.wire import Wire, WireSettings

NEWEST_WITH_RECORDS_LAST = 7
"""The newest version of Produce with records as the last field: version 8 adds errors of records to answers, version 9
tagged fields.
"""
ALL_REPLICAS = -1
BATCHES_AT_ONCE = 8
BATCHES_UNDER_WAY = 16
BYTES_UNDER_WAY = 4 << 20


class BatchPipe:
    """A connection for transactional batches; a context manager that is unusable after an exception."""

    def __init__(self, settings: WireSettings, place: AnyTopicPartition, transactional_id: str) -> None:
        self._cluster = ClusterView(settings)
        self._place = place
        topic, partition = place
        self._request = ProduceRequest(
            transactional_id=transactional_id,
            acks=ALL_REPLICAS,
            timeout_ms=int(settings.request_timeout_s * 1000),
            topic_data=[
                TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=partition, records=b"")])
            ],
        )
        self._identity = (v2.NO_PRODUCER_ID, v2.NO_PRODUCER_EPOCH)
        self._sequence = 0
        self._under_way: list[int] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._cluster.close()

    def topic_id(self) -> UUID:
        """Return the id of the topic that has the name now. Raises PipelineError."""
        topic, _ = self._place
        return self._cluster.topics([topic])[topic].topic_id

    def append(self, batches: Sequence[Buffer], identity: tuple[int, int]) -> list[int]:
        """Append v2 batches in order, with this producer id and epoch; return the offset of each batch's first record.

        Batches in writable memory are changed in place. Raises BrokerError, ConnectionLostError, PipelineError; then
        the transaction must be aborted.
        """
        if identity != self._identity:
            self._identity, self._sequence = identity, 0
        if not batches:
            return []
        wire = self._cluster.retry("Metadata", lambda: self._cluster.leader(*self._place))
        version = wire.versions.version(ApiKey.PRODUCE, newest=NEWEST_WITH_RECORDS_LAST)
        offsets: list[int] = []
        try:
            for group in _groups(batches):
                size_bytes = sum(map(len, group))
                while self._under_way and self._is_full(len(group), size_bytes):
                    offsets.append(self._answer(wire))
                wire.send_each(self._request, [self._stamped(batch) for batch in group], version=version)
                self._under_way += map(len, group)
            while self._under_way:
                offsets.append(self._answer(wire))
        except BrokerError:
            # Requests in flight must not be appended after the transaction's end.
            with suppress(ConnectionLostError):
                while self._under_way:
                    self._receive(wire)
            raise
        return offsets

    def _is_full(self, count: int, size_bytes: int) -> bool:
        """Return whether the pipe must wait for answers before it sends `count` batches of `size_bytes` in all."""
        return len(self._under_way) + count > BATCHES_UNDER_WAY or sum(self._under_way) + size_bytes > BYTES_UNDER_WAY

    def _stamped(self, batch: Buffer) -> memoryview:
        view = memoryview(batch)
        if view.readonly:
            view = memoryview(bytearray(view))
        (count,) = v2.UINT32.unpack_from(view, v2.RECORD_COUNT_AT)
        produce_again(view, *self._identity, self._sequence, is_transactional=True)
        self._sequence = next_sequence(self._sequence, count)
        return view

    def _answer(self, wire: Wire) -> int:
        """Return the offset of the oldest batch in flight. Raises BrokerError, ConnectionLostError."""
        answer = self._receive(wire)
        for topic in answer.responses:
            for part in topic.partition_responses:
                if part.error_code:
                    raise BrokerError(ErrorCode(part.error_code), f"Produce to {self._place[0]}-{self._place[1]}")
                return part.base_offset
        raise ConnectionLostError(f"{wire.node}: an answer to a Produce without the partition that was written to")

    def _receive(self, wire: Wire) -> ProduceResponse:
        del self._under_way[0]
        return wire.receive(ProduceResponse)


def _groups(batches: Sequence[Buffer]) -> Iterator[list[Buffer]]:
    """Yield the batches in order, in groups for one write each."""
    group: list[Buffer] = []
    size = 0
    for batch in batches:
        if group and (len(group) == BATCHES_AT_ONCE or size + len(batch) > BYTES_UNDER_WAY):
            yield group
            group, size = [], 0
        group.append(batch)
        size += len(batch)
    yield group
