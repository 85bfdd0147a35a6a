"""The common Produce request, answered at once and without typed messages.

Common is: version 3 or later, one partition, one plain batch, no transaction, no error. Any other request is left
unchanged to `produce.handle_produce`, whose answer is the same where both could answer. With acks=all and followers the
answer is a pending one, and later requests of the connection need not wait for it.
"""

from __future__ import annotations

import struct
from struct import Struct
from typing import NamedTuple

from ....protocol.errors import BrokerError, ErrorCode
from ....protocol.records.compression import Codec
from ....protocol.records.plain_batch import check_plain_batch
from ....protocol.records.produced import Produced
from ....protocol.records.validation import FIRST_ZSTD_PRODUCE_VERSION
from ....storage.log.partition_log import AppendResult
from ...replicas.partition import Partition
from ...server.late_answer import LateAnswer
from ..services import Services
from .produce import ACKS, ALL_IN_SYNC

FIRST_VERSION = 3
FIRST_VERSION_WITH_LOG_START = 5
FIRST_VERSION_WITH_RECORD_ERRORS = 8
FIRST_FLEXIBLE_VERSION = 9

REQUEST_HEAD = Struct(">hhiih")  # length of transactional id, acks, timeout, number of topics, length of topic
PARTITION_HEAD = Struct(">iii")  # number of partitions, partition, size of records
COMPACT_REQUEST_HEAD = Struct(">BBhiBB")  # tags of the header, then as above
COMPACT_PARTITION_HEAD = Struct(">Bi")  # number of partitions, partition
COMPACT_TAIL = b"\0\0\0"
"""No tagged fields of partition, topic and request."""
COMPACT_ONE = 2
"""An array with one element, or the length of a string with one byte."""
COMPACT_NULL = 0
BASE_OFFSET = Struct(">q")
"""The first field of a batch."""

ANSWER_HEAD = Struct(">iiih")  # size, correlation id, number of topics, length of topic
ANSWER_V3 = Struct(">iihqqi")  # number of partitions, partition, error, base offset, append time, throttle time
ANSWER_V5 = Struct(">iihqqqi")  # the same, with the log start offset before the throttle time
ANSWER_V8 = Struct(">iihqqqihi")  # the same, with record errors and error message before the throttle time
COMPACT_ANSWER_HEAD = Struct(">iiBBB")  # size, correlation id, tags of the header, then as above
COMPACT_ANSWER = Struct(">BihqqqBBBBiB")  # as v8, with the tags of partition, topic and response


class PlainProduce(NamedTuple):
    """A Produce request with one partition."""

    acks: int
    timeout_ms: int
    topic: bytes
    partition: int
    records: memoryview


def produce_now(
    services: Services, frame: memoryview, position: int, version: int, correlation_id: int
) -> bytes | LateAnswer | None:
    """Append the records of the request whose body begins at ``position``, and return the frame of the answer.

    Returns empty bytes if the client expects no answer; None, with nothing done, for a request not of the common kind.
    """
    if version < FIRST_VERSION:
        return None
    try:
        request = _parse(frame, position) if version < FIRST_FLEXIBLE_VERSION else _parse_compact(frame, position)
    except (struct.error, IndexError):
        return None
    if request is None:
        return None
    partition = services.partitions.find_encoded(request.topic, request.partition)
    if partition is None or partition.is_internal or request.acks not in ACKS:
        return None
    if partition.role is not None and not partition.takes(request.acks):
        return None
    newest_codec = Codec.ZSTD if version >= FIRST_ZSTD_PRODUCE_VERSION else Codec.LZ4
    batch = check_plain_batch(
        request.records, partition.append_rules, now_ms=services.clock.now_ms(), newest_codec=newest_codec
    )
    if batch is None:
        return None
    try:
        result = partition.append(Produced(request.records, [batch]))
    except BrokerError:
        # Nothing was appended; the handler finds the same error. It needs the batch without an assigned offset.
        if not request.records.readonly:
            BASE_OFFSET.pack_into(request.records, 0, 0)
        return None
    counters = services.metrics.topics[partition.topic]
    counters.produce_requests += 1
    counters.messages_in += batch.record_count
    counters.bytes_in += batch.size_bytes
    answer = _answer(request.topic, request.partition, result, version, correlation_id) if request.acks else b""
    if partition.role is None or request.acks != ALL_IN_SYNC or partition.is_replicated(result.last_offset):
        return answer
    return _once_replicated(partition, request, result, answer, version, correlation_id)


def _once_replicated(
    partition: Partition, request: PlainProduce, result: AppendResult, answer: bytes, version: int, correlation_id: int
) -> LateAnswer:
    """Return the pending answer: success when all in-sync replicas have the records, else the error."""
    late = LateAnswer()
    # Keep no reference to the request: its records are in the connection's buffer.
    topic, index = request.topic, request.partition

    def settle(code: ErrorCode) -> None:
        late.give(_answer(topic, index, result, version, correlation_id, error=code) if code else answer)

    partition.when_replicated(result.last_offset, settle, timeout_s=request.timeout_ms / 1000)
    return late


def _parse(frame: memoryview, position: int) -> PlainProduce | None:
    no_transaction, acks, timeout_ms, topics, name_length = REQUEST_HEAD.unpack_from(frame, position)
    name_at = position + REQUEST_HEAD.size
    partition_at = name_at + name_length
    if name_length < 0:
        return None
    partitions, index, size_bytes = PARTITION_HEAD.unpack_from(frame, partition_at)
    records_at = partition_at + PARTITION_HEAD.size
    if no_transaction != -1 or topics != 1 or partitions != 1 or records_at + size_bytes != len(frame):
        return None
    return PlainProduce(acks, timeout_ms, bytes(frame[name_at:partition_at]), index, frame[records_at:])


def _parse_compact(frame: memoryview, position: int) -> PlainProduce | None:
    header_tags, no_transaction, acks, timeout_ms, topics, name_length = COMPACT_REQUEST_HEAD.unpack_from(
        frame, position
    )
    name_at = position + COMPACT_REQUEST_HEAD.size
    partition_at = name_at + name_length - 1
    if header_tags or no_transaction != COMPACT_NULL or topics != COMPACT_ONE or not 1 < name_length < 0x80:
        return None
    partitions, index = COMPACT_PARTITION_HEAD.unpack_from(frame, partition_at)
    length, records_at = _unsigned_varint(frame, partition_at + COMPACT_PARTITION_HEAD.size)
    records_end = records_at + length - 1
    if partitions != COMPACT_ONE or length == COMPACT_NULL or frame[records_end:] != COMPACT_TAIL:
        return None
    return PlainProduce(acks, timeout_ms, bytes(frame[name_at:partition_at]), index, frame[records_at:records_end])


def _unsigned_varint(frame: memoryview, position: int) -> tuple[int, int]:
    """Return the number at ``position`` and the position after it. Raises IndexError if the number is cut off."""
    byte = frame[position]
    value = byte & 0x7F
    shift = 7
    while byte >= 0x80:
        position += 1
        byte = frame[position]
        value |= (byte & 0x7F) << shift
        shift += 7
    return value, position + 1


def _answer(
    topic: bytes, index: int, result: AppendResult, version: int, correlation_id: int, *, error: int = 0
) -> bytes:
    base_offset, _, append_time_ms, log_start_offset, _ = result
    if version >= FIRST_FLEXIBLE_VERSION:
        size_bytes = COMPACT_ANSWER_HEAD.size - 4 + len(topic) + COMPACT_ANSWER.size
        head = COMPACT_ANSWER_HEAD.pack(size_bytes, correlation_id, 0, COMPACT_ONE, len(topic) + 1)
        no_errors, no_text = 1, COMPACT_NULL
        return (
            head
            + topic
            + COMPACT_ANSWER.pack(
                COMPACT_ONE, index, error, base_offset, append_time_ms, log_start_offset, no_errors, no_text, 0, 0, 0, 0
            )
        )
    if version >= FIRST_VERSION_WITH_RECORD_ERRORS:
        tail = ANSWER_V8.pack(1, index, error, base_offset, append_time_ms, log_start_offset, 0, -1, 0)
    elif version >= FIRST_VERSION_WITH_LOG_START:
        tail = ANSWER_V5.pack(1, index, error, base_offset, append_time_ms, log_start_offset, 0)
    else:
        tail = ANSWER_V3.pack(1, index, error, base_offset, append_time_ms, 0)
    return ANSWER_HEAD.pack(ANSWER_HEAD.size - 4 + len(topic) + len(tail), correlation_id, 1, len(topic)) + topic + tail
