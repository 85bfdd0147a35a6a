"""A producer for tests that kill the broker: it records acknowledged batches and sends the others again."""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

from gregor.protocol import apis
from gregor.protocol.apis import ApiKey
from gregor.protocol.codec import decode
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages.init_producer_id import InitProducerIdRequest
from gregor.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from gregor.protocol.records import v0, v1, v2
from gregor.protocol.records.compression import Codec
from gregor.protocol.records.record import Record
from gregor.storage.clock import SystemClock
from tests.wire import Wire

IN_FLIGHT = 5
"""Largest number of requests that an idempotent producer may have in flight."""

RECORDS_PER_BATCH = 3
CODECS = (Codec.NONE, Codec.LZ4, Codec.NONE, Codec.GZIP, Codec.SNAPPY)
V2_PRODUCE, OLD_PRODUCE = 7, 2
RESPONSE_HEADER_BYTES = 4
SENT_AGAIN = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    }
)
"""After these answers a producer sends again: the broker has just started, leads no more, or has no followers."""


class Sent(NamedTuple):
    """A request in flight: the number of its batch, and the bytes sent."""

    number: int
    version: int
    request: ProduceRequest


class TortureProducer:
    """A producer that writes numbered batches to one partition; `acknowledged` has their base offsets."""

    def __init__(self, topic: str, *, is_idempotent: bool) -> None:
        self.topic = topic
        self.is_idempotent = is_idempotent
        self.acknowledged: dict[int, int] = {}
        self._next = 0
        self._under_way: deque[Sent] = deque()
        self._producer_id = -1
        self._wire: Wire | None = None

    def connect(self, address: tuple[str, int], *, timeout_s: float = 20.0) -> None:
        """Connect, and send the unacknowledged batches again. Raises OSError."""
        self.close()
        self._wire = Wire(address, timeout=timeout_s)
        if self.is_idempotent and self._producer_id < 0:
            self._producer_id = fresh_producer_id(self._wire)
        for sent in self._under_way:
            self._wire.send(ApiKey.PRODUCE, sent.version, sent.request)

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection, as far as is known."""
        return self._wire is not None

    def close(self) -> None:
        """End the connection."""
        if self._wire is not None:
            self._wire.socket.close()
            self._wire = None

    def fill(self) -> None:
        """Send new batches until as many are under way as may be. Raises OSError."""
        assert self._wire is not None
        # A partition takes any first sequence of a producer, as Kafka's does: if the first batch is refused for lack of
        # replicas, the one behind it must not be in flight, or it may be the first.
        most = IN_FLIGHT if self.acknowledged else 1
        while len(self._under_way) < most:
            sent = self._build(self._next)
            self._next += 1
            # From here on the broker may have the batch, even if the connection breaks.
            self._under_way.append(sent)
            self._wire.send(ApiKey.PRODUCE, sent.version, sent.request)

    def receive(self) -> None:
        """Take the answer to the oldest request. Raises OSError, also where the broker wants it sent again."""
        assert self._wire is not None
        frame = self._wire.receive_frame()
        sent = self._under_way[0]
        response: Any = decode(apis.response_class(ApiKey.PRODUCE), frame[RESPONSE_HEADER_BYTES:], sent.version)
        answer = response.responses[0].partition_responses[0]
        if answer.error_code in SENT_AGAIN:
            raise ConnectionError(ErrorCode(answer.error_code).name)
        assert answer.error_code == ErrorCode.NONE, ErrorCode(answer.error_code).name
        self._under_way.popleft()
        assert self.acknowledged.setdefault(sent.number, answer.base_offset) == answer.base_offset

    def drain(self) -> None:
        """Take all answers that are to come. Raises OSError."""
        while self._under_way:
            self.receive()

    @property
    def under_way(self) -> int:
        """Requests that wait for an answer."""
        return len(self._under_way)

    def values(self, number: int) -> list[bytes]:
        """Return the values of a batch's records: different for each record, and of many sizes."""
        return [
            b"%s %d %d " % (self.topic.encode(), number, index) + bytes([number % 251]) * (number * 37 % 1500)
            for index in range(RECORDS_PER_BATCH)
        ]

    def _build(self, number: int) -> Sent:
        now_ms = SystemClock().now_ms()
        codec = CODECS[number % len(CODECS)]
        records = [Record(index, now_ms, b"key", value) for index, value in enumerate(self.values(number))]
        version = V2_PRODUCE
        if self.is_idempotent:
            sequence = number * RECORDS_PER_BATCH
            data = v2.build_batch(
                records, codec=codec, producer_id=self._producer_id, producer_epoch=0, base_sequence=sequence
            )
        elif number % 3 == 0:
            data = v2.build_batch(records, codec=codec)
        else:
            # Messages as clients sent them before record batches existed.
            version = OLD_PRODUCE
            data = (v0 if number % 3 == 1 else v1).build_message_set(records, codec=codec)
        request = ProduceRequest(
            acks=-1,
            timeout_ms=10_000,
            topic_data=[
                TopicProduceData(name=self.topic, partition_data=[PartitionProduceData(index=0, records=data)])
            ],
        )
        return Sent(number, version, request)


def fresh_producer_id(wire: Wire) -> int:
    """Return an id that no other producer has."""
    given = wire.ask(ApiKey.INIT_PRODUCER_ID, 1, InitProducerIdRequest(transactional_id=None))
    assert given.error_code == ErrorCode.NONE, ErrorCode(given.error_code).name
    return int(given.producer_id)
