"""A lane for plain Produce requests: from the bytes in a connection's receive buffer to the bytes of the answers.

A request is plain if it has one partition that this broker leads, one valid v2 batch, which is small if it is
compressed, no transaction, and acks=1 or acks=all. With acks=all and other replicas its answer comes later, and the
connection gives the request's frame to `PlainLane.answer_later`. The lane takes the same steps as
`Dispatcher.answer` and `handle_produce` do with such a request, without the objects that only other requests need, and
leaves every other request, with nothing done, to them. The lane is not used where other parts of the broker read
declared messages: with an authorizer, quotas or fault rules.

This is ordinary Python that is also compiled: ``plain_lane_cy.pxd`` has the C types.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

try:
    import cython
except ImportError:
    from ...protocol.records import cython_stand_in as cython

from ...protocol.apis import ApiKey
from ...protocol.records.compression import Codec
from ...protocol.records.validation import FIRST_ZSTD_PRODUCE_VERSION
from ...storage.log.append_result import AppendOrigin
from ..server.receive_buffer_cy import InvalidFrameError

if not cython.compiled:
    from ...protocol.plain_produce_cy import ReceivedProduce, decode_plain, encode_plain
    from ...protocol.records.message_bytes import int16_at, int32_at
    from ...protocol.records.plain_batch_cy import check_plain_batch
    from ...protocol.records.produced_cy import Produced
    from ..server.receive_buffer_cy import ReceiveBuffer

if TYPE_CHECKING:
    from ...storage.clock import Clock
    from ...storage.log.append_result import AppendResult
    from ...storage.log.appendable_log_cy import AppendableLog
    from ..monitoring.metrics import Metrics
    from ..quotas.enforcement import ClientQuotas
    from ..replicas.partition import Partition
    from ..replicas.partition_registry import PartitionRegistry
    from ..server.client_connection import ClientConnection
    from ..server.pending import Pending

PRODUCE = ApiKey.PRODUCE
_PRODUCE_KEY = int(PRODUCE)
_FIRST_FLEXIBLE_VERSION = 9
_FIRST_ZSTD_VERSION = FIRST_ZSTD_PRODUCE_VERSION
_CLIENT_ID_AT = 10
_LENGTH_BYTES = 4
ZSTD, LZ4 = Codec.ZSTD, Codec.LZ4
CLIENT = AppendOrigin.CLIENT
MOST_ANSWERS = 256
"""Most requests of a connection that are answered before others get their turn."""

Refuse = Callable[[Exception, "Partition", int, int], bytes]
"""Takes the exception of an append, the partition, the request's version and correlation id; returns the answer with
its length."""


class LateAnswer(NamedTuple):
    """An answer that waits for replicas, with what an error needs instead."""

    answer: bytes
    """The answer, with its length, if there is no error."""
    partition: Partition
    result: AppendResult
    version: int
    correlation_id: int
    client: ClientConnection


RefuseLate = Callable[[LateAnswer, int], bytes]
"""Takes an answer and the error code in its place; returns the answer with that code, with its length."""


class PlainLane:
    """A lane that answers the plain Produce requests of all connections of one broker."""

    def __init__(
        self,
        partitions: PartitionRegistry,
        clock: Clock,
        metrics: Metrics,
        quotas: ClientQuotas,
        refuse: Refuse,
        refuse_late: RefuseLate,
        first_version: int,
        last_version: int,
    ) -> None:
        self._partitions = partitions.encoded
        self._clock = clock
        self._metrics = metrics
        self._errors = metrics.response_errors
        self._quotas = quotas
        self._refuse = refuse
        self._refuse_late = refuse_late
        self._first_version = first_version
        self._last_version = last_version
        self._request = ReceivedProduce()
        self._version = 0
        """The version of the latest request."""
        self._answers: list[bytes] = []

    def answer(self, buffer: ReceiveBuffer, client: ClientConnection) -> list[bytes]:
        """Answer the plain requests with which the buffer begins; return the answers, each with its length.

        The list is valid until the next call.
        """
        self._answers.clear()
        # The first request of a connection introduces the client to the census.
        if client.client_id_bytes is not None and not self._quotas.is_active:
            self._answer_all(buffer, buffer.view, buffer.octets, client)
        return self._answers

    def answer_later(self, frame: memoryview, client: ClientConnection) -> list[bytes] | Pending[list[bytes]] | None:
        """Take a plain request with acks=all for a partition with other replicas; return None, with nothing done, for
        any other request.

        The answer, without its length, is pending until the replicas that are in sync have the records.
        """
        if client.client_id_bytes is None or self._quotas.is_active or len(frame) <= _CLIENT_ID_AT:
            return None
        # The frame is given once more for its C type.
        answer = self._answered(frame, frame, 0, len(frame), client, self._clock.now_ms(), True)
        if answer is None:
            return None
        client.request_counts[PRODUCE, self._version] += 1
        if isinstance(answer, bytes):
            return [answer[_LENGTH_BYTES:]]
        pending: Pending[list[bytes]] = answer
        return pending

    def _replicated(self, late: LateAnswer, code: int) -> list[bytes]:
        """Return the answer once the records are replicated, or cannot be: then ``code`` is an error."""
        if code:
            return [self._refuse_late(late, code)[_LENGTH_BYTES:]]
        if self._errors is not None:
            self._errors.add_success(PRODUCE)
        return [late.answer[_LENGTH_BYTES:]]

    def _answer_all(
        self, buffer: ReceiveBuffer, memory: memoryview, view: memoryview, client: ClientConnection
    ) -> None:
        """Answer the plain requests with which the buffer begins; ``view`` is ``memory`` once more, for its C type."""
        answers = self._answers
        counted_version = -1
        counted = 0
        now_ms = self._clock.now_ms()
        while len(answers) < MOST_ANSWERS:
            try:
                end = buffer.frame_end()
            except InvalidFrameError:
                # The connection refuses the frame after it has these answers.
                break
            if end == 0:
                break
            answer = self._answered(memory, view, buffer.consumed + 4, end, client, now_ms, False)
            if answer is None:
                break
            buffer.consume(end)
            answers.append(answer)
            if self._version != counted_version:
                self._count(client, counted_version, counted)
                counted_version = self._version
                counted = 0
            counted += 1
        self._count(client, counted_version, counted)

    def _count(self, client: ClientConnection, version: int, request_count: int) -> None:
        if request_count:
            client.request_counts[PRODUCE, version] += request_count

    def _answered(
        self,
        memory: memoryview,
        view: memoryview,
        start: int,
        end: int,
        client: ClientConnection,
        now_ms: int,
        waits: bool,
    ) -> Any:
        """Answer the request from ``start`` to ``end``; return None, with nothing done, if it is not plain.

        With ``waits`` only a request whose answer may wait for replicas is plain; its answer may be pending.
        """
        data = cython.address(view[0]) if cython.compiled else view
        if end - start <= _CLIENT_ID_AT or int16_at(data, start) != _PRODUCE_KEY:
            return None
        version = self._version = int16_at(data, start + 2)
        if version < self._first_version or version > self._last_version:
            return None
        length = int16_at(data, start + 8)
        position = start + _CLIENT_ID_AT + max(length, 0)
        if position >= end or (length < 0) != (client.client_id is None):
            return None
        if _copied(data, start + _CLIENT_ID_AT, position) != client.client_id_bytes:
            return None
        if version >= _FIRST_FLEXIBLE_VERSION:
            if data[position] != 0:
                return None
            position += 1
        request = self._request
        if not decode_plain(view[:end], position, version, request) or (request.acks != 1 and request.acks != -1):
            return None
        topic = _copied(data, request.name_at, request.name_end)
        partitions = self._partitions.get(topic)
        partition = None if partitions is None else partitions.get(request.partition)
        if partition is None or partition.is_internal:
            return None
        # With other replicas, an answer to acks=all comes later.
        if waits:
            leadership = partition.leadership
            if request.acks == 1 or leadership is None or not leadership.has_enough_in_sync:
                return None
        elif partition.role is not None and (request.acks != 1 or partition.leadership is None):
            return None
        records_at = request.records_at
        log = partition.log
        batch = check_plain_batch(
            view[records_at : request.records_end],
            log.append_rules or partition.append_rules,
            now_ms,
            ZSTD if version >= _FIRST_ZSTD_VERSION else LZ4,
        )
        if batch is None:
            return None
        correlation_id = int32_at(data, start + 4)
        try:
            produced = Produced(memory[records_at : request.records_end], [batch])
            result = self._append(partition, log, produced, now_ms)
        except Exception as error:
            return self._refuse(error, partition, version, correlation_id)
        self._metrics.count_plain_produce(partition.topic, batch)
        base_offset, last_offset, log_append_time_ms, log_start_offset, _ = result
        answer = encode_plain(
            topic, request.partition, base_offset, log_append_time_ms, log_start_offset, version, correlation_id
        )
        if waits and not partition.is_replicated(last_offset):
            late = LateAnswer(answer, partition, result, version, correlation_id, client)
            replicated = partition.replicated(last_offset, request.timeout_ms / 1000)
            return replicated.map(partial(self._replicated, late))
        if self._errors is not None:
            self._errors.add_success(PRODUCE)
        return answer

    def _append(self, partition: Partition, log: AppendableLog, produced: Produced, now_ms: int) -> AppendResult:
        """Append as `Partition.append` does, whose common case is inlined because this is the hot path."""
        if partition.role is None and not partition.waiters:
            return log.append(produced, partition.leader_epoch, CLIENT, now_ms)
        return partition.append(produced)


def _copied(data: memoryview, start: int, end: int) -> bytes:
    """Return a copy of some bytes; in C a slice is one already."""
    piece = data[start:end]
    return piece if isinstance(piece, bytes) else bytes(piece)
