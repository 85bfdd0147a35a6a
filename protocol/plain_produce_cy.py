"""A second codec for the Produce messages that carry nearly all traffic: one partition, no transaction, no error.

`decode_plain` and `encode_plain` are the broker's part, `plain_pieces` and `decode_plain_answer` the client's. They do
what `codec.decode` and `codec.encode` do with such messages, in a fraction of the time, to and from flat values: the
client has a `PlainProduce` for a ProduceRequest with one partition and a `PlainProduceResponse` for a response without
an error, the broker a `ReceivedProduce`. Every other message is left to the declared codec. The layouts follow from the
declarations in `messages/produce.py`; `tests/protocol/test_plain_produce.py` compares the two codecs in all versions.

This is ordinary Python that is also compiled: ``plain_produce_cy.pxd`` has the C types. In the compiled module the
bytes are read through pointers without bounds checks, so each length is checked before its use.
"""

from __future__ import annotations

try:
    import cython
except ImportError:
    from .records import cython_stand_in as cython

from .messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from .records.record import Buffer

if not cython.compiled:
    from .records.message_bytes import int16_at, int32_at, int64_at, put_int16, put_int32, put_int64

FIRST_VERSION = 3
FIRST_VERSION_WITH_LOG_START = 5
FIRST_VERSION_WITH_RECORD_ERRORS = 8
FIRST_FLEXIBLE_VERSION = 9
LAST_VERSION = 12
"""The last version in which topics have names."""

COMPACT_ONE = 2
"""The length of an array with one element."""
COMPACT_NULL = 0
LONGEST_COMPACT_NAME = 0x7E
"""Bytes of the longest topic name whose length takes one byte."""
LAST_SHIFT = 28
"""The shift of the last byte of a compact length."""
LONGEST_NAME = 249
"""Bytes of the longest legal topic name."""

if not cython.compiled:
    _scratch = bytearray(LONGEST_NAME + 68)


class PlainProduce:
    """A ProduceRequest with one partition and without a transactional id."""

    def __init__(self, acks: int, timeout_ms: int, topic: str, partition: int, records: memoryview) -> None:
        self.acks = acks
        self.timeout_ms = timeout_ms
        self.topic = topic
        self.partition = partition
        self.records = records

    def declared(self) -> ProduceRequest:
        """Return the same request as a declared message."""
        data = PartitionProduceData(index=self.partition, records=self.records)
        topic = TopicProduceData(name=self.topic, partition_data=[data])
        return ProduceRequest(acks=self.acks, timeout_ms=self.timeout_ms, topic_data=[topic])


class PlainProduceResponse:
    """A ProduceResponse for one partition without an error; its topic's name is that of a `PlainProduce`."""

    def __init__(
        self, topic: str, partition: int, base_offset: int, log_append_time_ms: int, log_start_offset: int
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.base_offset = base_offset
        self.log_append_time_ms = log_append_time_ms
        self.log_start_offset = log_start_offset

    def declared(self) -> ProduceResponse:
        """Return the same response as a declared message."""
        answer = PartitionProduceResponse(
            index=self.partition,
            base_offset=self.base_offset,
            log_append_time_ms=self.log_append_time_ms,
            log_start_offset=self.log_start_offset,
        )
        return ProduceResponse(responses=[TopicProduceResponse(name=self.topic, partition_responses=[answer])])


class ReceivedProduce:
    """The values of a received request with one partition and without a transactional id, and the places of its bytes.

    The bytes of the topic's name and the records are at `name_at` to `name_end` and `records_at` to `records_end` in
    the frame. `decode_plain` sets all values.
    """

    def __init__(self) -> None:
        self.acks = 0
        self.timeout_ms = 0
        self.partition = 0
        self.name_at = self.name_end = 0
        self.records_at = self.records_end = 0


def decode_plain(frame: memoryview, position: int, version: int, request: ReceivedProduce) -> bool:
    """Set ``request`` to the one whose body begins at ``position``; return False if the declared codec must decode it.

    The name of the topic may be no valid UTF-8, which the declared codec refuses.
    """
    if not FIRST_VERSION <= version <= LAST_VERSION or position >= len(frame):
        return False
    if version >= FIRST_FLEXIBLE_VERSION:
        return _decode_compact(frame, position, request)
    return _decode_fixed(frame, position, request)


def _decode_fixed(frame: memoryview, position: int, request: ReceivedProduce) -> bool:
    """Decode a request before version 9."""
    data = cython.address(frame[0]) if cython.compiled else frame
    end = len(frame)
    # Length of the transactional id, acks, timeout, number of topics, length of the topic.
    name_at = position + 14
    if name_at > end:
        return False
    name_length = int16_at(data, position + 12)
    name_end = name_at + name_length
    # Number of partitions, partition, size of the records.
    records_at = name_end + 12
    if not 0 <= name_length <= LONGEST_NAME or records_at > end:
        return False
    has_one = int32_at(data, position + 8) == 1 and int32_at(data, name_end) == 1
    if not has_one or int16_at(data, position) != -1 or int32_at(data, name_end + 8) != end - records_at:
        return False
    request.acks = int16_at(data, position + 2)
    request.timeout_ms = int32_at(data, position + 4)
    request.partition = int32_at(data, name_end + 4)
    request.name_at = name_at
    request.name_end = name_end
    request.records_at = records_at
    request.records_end = end
    return True


def _decode_compact(frame: memoryview, position: int, request: ReceivedProduce) -> bool:
    """Decode a request of version 9 or later."""
    data = cython.address(frame[0]) if cython.compiled else frame
    end = len(frame)
    # Length of the transactional id, acks, timeout, number of topics, length of the topic.
    name_at = position + 9
    if name_at > end:
        return False
    name_length = data[position + 8] - 1
    name_end = name_at + name_length
    # Number of partitions, partition, size of the records.
    records_at = name_end + 5
    if not 0 <= name_length <= LONGEST_COMPACT_NAME or records_at >= end:
        return False
    has_one = data[position + 7] == COMPACT_ONE and data[name_end] == COMPACT_ONE
    if not has_one or data[position] != COMPACT_NULL:
        return False
    length = 0
    shift = 0
    byte = 0x80
    while byte >= 0x80:
        if records_at >= end or shift > LAST_SHIFT:
            return False
        byte = data[records_at]
        length |= (byte & 0x7F) << shift
        shift += 7
        records_at += 1
    # No tagged fields of partition, topic and request.
    records_end = end - 3
    if length == COMPACT_NULL or length - 1 != records_end - records_at:
        return False
    if data[records_end] != 0 or data[records_end + 1] != 0 or data[records_end + 2] != 0:
        return False
    request.acks = int16_at(data, position + 1)
    request.timeout_ms = int32_at(data, position + 3)
    request.partition = int32_at(data, name_end + 1)
    request.name_at = name_at
    request.name_end = name_end
    request.records_at = records_at
    request.records_end = records_end
    return True


def encode_plain(
    topic: bytes,
    partition: int,
    base_offset: int,
    log_append_time_ms: int,
    log_start_offset: int,
    version: int,
    correlation_id: int,
) -> bytes:
    """Return length, header and body of an answer without an error to a request that `decode_plain` has decoded."""
    is_flexible = version >= FIRST_FLEXIBLE_VERSION
    put_int32(_scratch, 4, correlation_id)
    if is_flexible:
        # No tagged fields of the header; number of topics, length of the topic.
        _scratch[8] = 0
        _scratch[9] = COMPACT_ONE
        _scratch[10] = len(topic) + 1
        position = 11
    else:
        put_int32(_scratch, 8, 1)
        put_int16(_scratch, 12, len(topic))
        position = 14
    for byte in topic:
        _scratch[position] = byte
        position += 1
    # Number of partitions, partition, error, base offset, append time, start offset.
    if is_flexible:
        _scratch[position] = COMPACT_ONE
        position += 1
    else:
        put_int32(_scratch, position, 1)
        position += 4
    put_int32(_scratch, position, partition)
    put_int16(_scratch, position + 4, 0)
    put_int64(_scratch, position + 6, base_offset)
    put_int64(_scratch, position + 14, log_append_time_ms)
    position += 22
    if version >= FIRST_VERSION_WITH_LOG_START:
        put_int64(_scratch, position, log_start_offset)
        position += 8
    if is_flexible:
        # Record errors, error message, tagged fields of partition and topic.
        _scratch[position] = COMPACT_ONE - 1
        _scratch[position + 1] = COMPACT_NULL
        _scratch[position + 2] = 0
        _scratch[position + 3] = 0
        position += 4
    elif version >= FIRST_VERSION_WITH_RECORD_ERRORS:
        put_int32(_scratch, position, 0)
        put_int16(_scratch, position + 4, -1)
        position += 6
    # Throttle time, tagged fields of the response.
    put_int32(_scratch, position, 0)
    position += 4
    if is_flexible:
        _scratch[position] = 0
        position += 1
    put_int32(_scratch, 0, position - 4)
    return bytes(_scratch[:position])


def plain_pieces(request: PlainProduce, version: int) -> list[Buffer] | None:
    """Return the body of a request in pieces, of which one is its records, not copied; None if the declared codec must
    encode the request.
    """
    topic = request.topic.encode()
    is_flexible = version >= FIRST_FLEXIBLE_VERSION
    if not FIRST_VERSION <= version <= LAST_VERSION or len(topic) > (
        LONGEST_COMPACT_NAME - 1 if is_flexible else LONGEST_NAME
    ):
        return None
    # No transactional id, acks, timeout, number of topics, length of the topic.
    if is_flexible:
        _scratch[0] = COMPACT_NULL
        position = 1
    else:
        put_int16(_scratch, 0, -1)
        position = 2
    put_int16(_scratch, position, request.acks)
    put_int32(_scratch, position + 2, request.timeout_ms)
    position += 6
    if is_flexible:
        _scratch[position] = COMPACT_ONE
        _scratch[position + 1] = len(topic) + 1
        position += 2
    else:
        put_int32(_scratch, position, 1)
        put_int16(_scratch, position + 4, len(topic))
        position += 6
    for byte in topic:
        _scratch[position] = byte
        position += 1
    # Number of partitions, partition, size of the records.
    if is_flexible:
        _scratch[position] = COMPACT_ONE
        put_int32(_scratch, position + 1, request.partition)
        position += 5
        length = len(request.records) + 1
        while length > 0x7F:
            _scratch[position] = (length & 0x7F) | 0x80
            length >>= 7
            position += 1
        _scratch[position] = length
        # No tagged fields of partition, topic and request.
        return [bytes(_scratch[: position + 1]), request.records, b"\x00\x00\x00"]
    put_int32(_scratch, position, 1)
    put_int32(_scratch, position + 4, request.partition)
    put_int32(_scratch, position + 8, len(request.records))
    return [bytes(_scratch[: position + 12]), request.records]


def decode_plain_answer(view: memoryview, version: int, topic: str, partition: int) -> PlainProduceResponse | None:
    """Return the answer in the body ``view`` to a request for this partition; None if the declared codec must decode
    the answer, as each one with an error or a throttle time.
    """
    name = topic.encode()
    is_flexible = version >= FIRST_FLEXIBLE_VERSION
    size = len(view)
    # Number of topics, length of the topic, number of partitions.
    start = 2 if is_flexible else 6
    end = start + len(name)
    position = end + (1 if is_flexible else 4)
    # Partition, error, base offset, append time.
    if not FIRST_VERSION <= version <= LAST_VERSION or position + 22 > size:
        return None
    data = cython.address(view[0]) if cython.compiled else view
    if is_flexible:
        if data[0] != COMPACT_ONE or data[1] != len(name) + 1 or data[end] != COMPACT_ONE:
            return None
    elif int32_at(data, 0) != 1 or int16_at(data, 4) != len(name) or int32_at(data, end) != 1:
        return None
    if data[start:end] != name or int32_at(data, position) != partition or int16_at(data, position + 4) != 0:
        return None
    base_offset = int64_at(data, position + 6)
    append_time = int64_at(data, position + 14)
    log_start_offset = -1
    position += 22
    if version >= FIRST_VERSION_WITH_LOG_START:
        if position + 8 > size:
            return None
        log_start_offset = int64_at(data, position)
        position += 8
    if is_flexible:
        # Record errors, error message, tagged fields of partition and topic, throttle time, tagged fields.
        if size - position != 9 or data[position] != COMPACT_ONE - 1:
            return None
        position += 1
    elif version >= FIRST_VERSION_WITH_RECORD_ERRORS:
        # Record errors, error message, throttle time.
        if size - position != 10 or int32_at(data, position) != 0 or int16_at(data, position + 4) != -1:
            return None
        position += 6
    elif size - position != 4:
        return None
    while position < size:
        if data[position] != 0:
            return None
        position += 1
    return PlainProduceResponse(topic, partition, base_offset, append_time, log_start_offset)
