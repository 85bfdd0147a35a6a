"""Fetch of consumers without sessions, in versions 0 to 11, without an object for each partition.

`ReceivedFetch` decodes a request into numbers; requests with a session, and everything else that few consumers send,
are left to the declared codec (`messages/fetch.py`). `FetchAnswer` writes all of an answer but its records.
`tests/protocol/test_plain_fetch.py` compares both with the declared codec in all versions.

This is ordinary Python that is also compiled: ``plain_fetch_cy.pxd`` has the C types.
"""

from __future__ import annotations

from array import array

try:
    import cython
except ImportError:
    from .records import cython_stand_in as cython

if not cython.compiled:
    from .records.message_bytes import int16_at, int32_at, int64_at, put_int16, put_int32, put_int64

FIRST_VERSION = 0
LAST_VERSION = 11
"""The last version before the flexible ones."""
_WITH_THROTTLE_TIME = 1
_WITH_MAX_BYTES = 3
_WITH_ISOLATION = 4
_WITH_LOG_START = 5
_WITH_SESSIONS = 7
_WITH_LEADER_EPOCH = 9
_WITH_RACK = 11
"""The first versions with these fields."""

MOST_PARTITIONS = 128
"""The most partitions of a request that is decoded here; more take milliseconds, which the handler divides."""
_MOST_TOPICS = MOST_PARTITIONS
_LONGEST_NAME = 249
_COLUMNS = 5
_TOPIC, _PARTITION, _LEADER_EPOCH, _OFFSET, _MAX_BYTES = range(_COLUMNS)
_MOST_HEAD_BYTES = 32 + _MOST_TOPICS * (6 + _LONGEST_NAME) + MOST_PARTITIONS * 48
_NO_LEADER_EPOCH = -1
_NO_SESSION, _FINAL_EPOCH = 0, -1
_NO_MAX_BYTES = 0x7FFFFFFF


class ReceivedFetch:
    """The values of a received request; `decode` sets them.

    `count` is the number of its partitions, in the order of the request, and `topics` are the bytes of the names, which
    may be no valid UTF-8. No partition is repeated.
    """

    def __init__(self) -> None:
        self._rows = array("q", [0]) * (MOST_PARTITIONS * _COLUMNS)
        self.topics: list[bytes] = []
        self.count = 0
        self.replica_id = 0
        self.max_wait_ms = 0
        self.min_bytes = 0
        self.max_bytes = 0
        self.isolation_level = 0
        self.has_rack = False

    def topic_number(self, number: int) -> int:
        """Return the place in `topics` of the name of a partition's topic."""
        return self._rows[number * _COLUMNS + _TOPIC]

    def partition_count(self, topic: int) -> int:
        """Return the number of partitions of a topic."""
        count = 0
        for number in range(self.count):
            if self._rows[number * _COLUMNS + _TOPIC] == topic:
                count += 1
        return count

    def partition(self, number: int) -> int:
        """Return a partition's index."""
        return self._rows[number * _COLUMNS + _PARTITION]

    def leader_epoch(self, number: int) -> int:
        """Return the leader epoch that the client knows, -1 if it sends none."""
        return self._rows[number * _COLUMNS + _LEADER_EPOCH]

    def offset(self, number: int) -> int:
        """Return the offset to fetch from."""
        return self._rows[number * _COLUMNS + _OFFSET]

    def most_bytes(self, number: int) -> int:
        """Return the limit of a partition's records (`partition_max_bytes`)."""
        return self._rows[number * _COLUMNS + _MAX_BYTES]

    def decode(self, frame: memoryview, position: int, version: int) -> bool:
        """Decode the request whose body begins at ``position``; return False if the declared codec must decode it."""
        if not FIRST_VERSION <= version <= LAST_VERSION or position >= len(frame):
            return False
        return self._decode(frame, position, version, self._rows)

    def _decode(self, frame: memoryview, position: int, version: int, rows: array[int]) -> bool:
        data = cython.address(frame[0]) if cython.compiled else frame
        end = len(frame)
        # The fields before the topics, and the number of topics.
        if end - position < 33:
            return False
        self.topics = []
        self.count = 0
        self.replica_id = int32_at(data, position)
        self.max_wait_ms = int32_at(data, position + 4)
        self.min_bytes = int32_at(data, position + 8)
        position += 12
        self.max_bytes = _NO_MAX_BYTES
        if version >= _WITH_MAX_BYTES:
            self.max_bytes = int32_at(data, position)
            position += 4
        self.isolation_level = 0
        if version >= _WITH_ISOLATION:
            self.isolation_level = data[position]
            position += 1
        if version >= _WITH_SESSIONS:
            if int32_at(data, position) != _NO_SESSION or int32_at(data, position + 4) != _FINAL_EPOCH:
                return False
            position += 8
        topics_left = int32_at(data, position)
        position += 4
        if not 0 < topics_left <= _MOST_TOPICS:
            return False
        while topics_left > 0:
            position = self._decode_topic(data, position, end, version, rows)
            if position < 0:
                return False
            topics_left -= 1
        self.has_rack = False
        if version >= _WITH_SESSIONS:
            # No topics are forgotten.
            if end - position < 4 or int32_at(data, position) != 0:
                return False
            position += 4
        if version >= _WITH_RACK:
            if end - position < 2:
                return False
            length = int16_at(data, position)
            if length < 0:
                return False
            self.has_rack = length > 0
            position += 2 + length
        return position == end

    def _decode_topic(self, data: memoryview, position: int, end: int, version: int, rows: array[int]) -> int:
        """Decode a topic and return the position after it; return -1 if the declared codec must decode the request."""
        if end - position < 2:
            return -1
        name_at = position + 2
        length = int16_at(data, position)
        position = name_at + length
        if not 0 < length <= _LONGEST_NAME or end - position < 4:
            return -1
        name = bytes(data[name_at:position])
        if name in self.topics:
            return -1
        left = int32_at(data, position)
        position += 4
        item_bytes = 16 + (4 if version >= _WITH_LEADER_EPOCH else 0) + (8 if version >= _WITH_LOG_START else 0)
        first = self.count
        if not 0 < left <= MOST_PARTITIONS - first or end - position < left * item_bytes:
            return -1
        topic = len(self.topics)
        self.topics.append(name)
        while left > 0:
            base = self.count * _COLUMNS
            partition = int32_at(data, position)
            position += 4
            for other in range(first, self.count):
                if rows[other * _COLUMNS + _PARTITION] == partition:
                    return -1
            rows[base + _TOPIC] = topic
            rows[base + _PARTITION] = partition
            rows[base + _LEADER_EPOCH] = _NO_LEADER_EPOCH
            if version >= _WITH_LEADER_EPOCH:
                rows[base + _LEADER_EPOCH] = int32_at(data, position)
                position += 4
            rows[base + _OFFSET] = int64_at(data, position)
            position += 8
            if version >= _WITH_LOG_START:
                position += 8
            rows[base + _MAX_BYTES] = int32_at(data, position)
            position += 4
            self.count += 1
            left -= 1
        return position


class FetchAnswer:
    """An answer without errors and without a session, as it is written: heads, between which the records are sent."""

    def __init__(self) -> None:
        self._out = bytearray(_MOST_HEAD_BYTES)
        self._version = 0
        self._at = 0
        self._taken = 0

    def begin(self, version: int, correlation_id: int, topic_count: int) -> None:
        """Begin an answer with its header; its length is not included."""
        self._version = version
        self._taken = 0
        out = cython.address(self._out[0]) if cython.compiled else self._out
        put_int32(out, 0, correlation_id)
        position = 4
        if version >= _WITH_THROTTLE_TIME:
            put_int32(out, position, 0)
            position += 4
        if version >= _WITH_SESSIONS:
            # No error, and no session.
            put_int16(out, position, 0)
            put_int32(out, position + 2, 0)
            position += 6
        put_int32(out, position, topic_count)
        self._at = position + 4

    def add_topic(self, name: bytes, partition_count: int) -> None:
        """Add the head of a topic."""
        out = cython.address(self._out[0]) if cython.compiled else self._out
        position = self._at
        put_int16(out, position, len(name))
        position += 2
        for byte in name:
            out[position] = byte
            position += 1
        put_int32(out, position, partition_count)
        self._at = position + 4

    def add_partition(
        self,
        partition: int,
        high_watermark: int,
        last_stable_offset: int,
        log_start_offset: int,
        is_committed: bool,
        records_bytes: int,
    ) -> None:
        """Add the head of a partition with so many bytes of records.

        The answer to a client that reads committed records only, ``is_committed``, lists no aborted transactions.
        """
        version = self._version
        out = cython.address(self._out[0]) if cython.compiled else self._out
        position = self._at
        put_int32(out, position, partition)
        put_int16(out, position + 4, 0)
        put_int64(out, position + 6, high_watermark)
        position += 14
        if version >= _WITH_ISOLATION:
            put_int64(out, position, last_stable_offset)
            position += 8
        if version >= _WITH_LOG_START:
            put_int64(out, position, log_start_offset)
            position += 8
        if version >= _WITH_ISOLATION:
            put_int32(out, position, 0 if is_committed else -1)
            position += 4
        if version >= _WITH_RACK:
            # No preferred replica.
            put_int32(out, position, -1)
            position += 4
        put_int32(out, position, records_bytes)
        self._at = position + 4

    def take(self) -> bytes:
        """Return what was added since the last call."""
        begin, self._taken = self._taken, self._at
        return bytes(self._out[begin : self._at])
