"""The steps of a follower while its leader's answers are plain: check, append, and the bytes of the next Fetch.

An answer is plain if it fits in one read, reports no errors, and has only complete v2 batches of data that continue
this broker's copies in the present leader epochs. `CopySteps` does with such an answer what the declared codec,
`Followed.take`, `PartitionLog.append_as_follower` and `ReplicaFetchSession.fill` do, without objects between them.
It leaves any other answer, with nothing done, to them. `fetch_lane.py` has the socket.

This is ordinary Python that is also compiled: ``copy_steps_cy.pxd`` has the C types.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING

try:
    import cython
except ImportError:
    from ....protocol.records import cython_stand_in as cython

from ....protocol.apis import ApiKey
from ....protocol.fetch_session import MAX_EPOCH
from ....protocol.records import v2
from ....protocol.records.compression import CODECS, Codec

if not cython.compiled:
    from ....protocol.records.checksum_libraries import crc32c_of
    from ....protocol.records.message_bytes import (
        batch_size_at,
        int16_at,
        int32_at,
        int64_at,
        put_int32,
        put_int64,
        uint32_at,
    )
    from ....protocol.records.produced_cy import ProducedBatch
    from ....storage.log.appendable_log_cy import AppendableLog

if TYPE_CHECKING:
    from .following import Followed

FETCH_VERSION = 17
"""The version of a follower's Fetch, which every possible broker of the cluster supports."""
HEAD = Struct(">ihhi")
"""The start of a request: size, API key, version, correlation id."""
_FETCH_KEY = int(ApiKey.FETCH)
_HEAD_BYTES_IN_SIZE = 8
_MOST_PARTITIONS = 64
"""Most partitions of a plain answer."""
_PARTITION_BYTES = 35
"""The size of a partition in the request, with the ends of its topic."""
_MAX_EPOCH = MAX_EPOCH
_LAST_CORRELATION_ID = 0x7FFFFFFF

# Sizes and places in an answer: length, correlation id, tagged fields, throttle time, error, session id.
_ERROR_AT = 13
_SESSION_AT = 15
_TOPICS_AT = 19
_TOPIC_ID_BYTES = 16
# A partition up to its records: index, error, high watermark, last stable offset, log start, aborted, preferred.
_FIXED_BYTES = 35
# The tagged field with one run: number of fields, tag 18260, size, length, position, receipt time, keyed, wrapper.
_RUN_BYTES = 31
_RUN_TAG = b"\x01\xd4\x8e\x01\x1a\x1a\x00\x00\x00\x00"
_RUN_END = b"\xff" * 12

_LEADER_EPOCH_AT = v2.LEADER_EPOCH_AT
_MAGIC_AT = v2.MAGIC_AT
_CRC_AT = v2.CRC_AT
_ATTRIBUTES_AT = v2.ATTRIBUTES_AT
_LAST_OFFSET_DELTA_AT = v2.LAST_OFFSET_DELTA_AT
_MAX_TIMESTAMP_AT = v2.MAX_TIMESTAMP_AT
_PRODUCER_ID_AT = v2.PRODUCER_ID_AT
_PRODUCER_EPOCH_AT = v2.PRODUCER_EPOCH_AT
_BASE_SEQUENCE_AT = v2.BASE_SEQUENCE_AT
_RECORD_COUNT_AT = v2.RECORD_COUNT_AT
_CODEC_MASK = v2.CODEC_MASK
_TRANSACTIONAL = v2.TRANSACTIONAL_FLAG
_LAST_PLAIN_ATTRIBUTES = v2.CODEC_MASK | v2.LOG_APPEND_TIME_FLAG | v2.TRANSACTIONAL_FLAG
_NEWEST_CODEC = int(Codec.ZSTD)

if not cython.compiled:
    _scratch = bytearray(8 + _MOST_PARTITIONS * (_TOPIC_ID_BYTES + _PARTITION_BYTES))


class CopiedPartition:
    """A partition that a session fetches, with its part of the present answer."""

    def __init__(self, followed: Followed, topic_id: int, index: int, max_bytes: int) -> None:
        self.followed = followed
        self.log: AppendableLog = followed.log
        self.partition_id = (topic_id, index)
        """The topic id as an integer, and the partition's number."""
        self.topic_high = _signed(topic_id >> 64)
        self.topic_low = _signed(topic_id & 0xFFFFFFFFFFFFFFFF)
        self.index = index
        self.max_bytes = max_bytes
        self.leader_epoch = followed.leader_epoch
        self.asked_offset = self.log.log_end_offset
        """The fetch offset that the leader has."""
        self.told_log_start_offset = self.log.log_start_offset
        """The log start offset that the leader has."""
        self.is_moved = False
        """Whether records were appended in these steps."""
        self.records_at = self.records_end = 0
        self.high_watermark = -1
        self.receipt_ms = -1
        self.is_keyed = True


class CopySteps:
    """The state of a follower's session from one plain answer to the next."""

    def __init__(
        self,
        memory: memoryview,
        partitions: list[CopiedPartition],
        *,
        session_id: int,
        session_epoch: int,
        before_epoch: bytes,
        after_topics: bytes,
        now_ms: Callable[[], int],
    ) -> None:
        """Take answers from ``memory``, to requests whose bytes are equal but for session epoch and positions.

        ``before_epoch`` are those from the client id to the session id, ``after_topics`` those behind the topics.
        ``session_epoch`` is that of the request whose answer is awaited. ``now_ms`` is the clock of receipt times.
        """
        self._memory = memory
        # Once more, for its C type.
        self._view = memory
        self._partitions: dict[tuple[int, int, int], CopiedPartition] = {
            (each.topic_high, each.topic_low, each.index): each for each in partitions
        }
        self._session_id = session_id
        self._before_epoch = before_epoch
        self._after_topics = after_topics
        self._now_ms = now_ms
        self.session_epoch = session_epoch
        """The session epoch of the latest request."""
        self.correlation_id = 0
        """The correlation id of the latest request."""
        self.is_over = False
        """Whether the next answer must be handled by others, as the partitions have changed."""
        self.answer_count = 0
        """The answers that were plain."""
        self._found: list[CopiedPartition] = []

    @property
    def moved(self) -> list[CopiedPartition]:
        """The partitions to which records were appended."""
        return [each for each in self._partitions.values() if each.is_moved]

    def take(self, size_bytes: int) -> bytes | None:
        """Append the records of the plain answer in the first ``size_bytes``, and return the next request.

        Returns None, with nothing done, for any other answer. Raises as `AppendableLog` does if a disk fails; a new
        session must follow then, as some of the records may be appended.
        """
        if self.is_over or not self._finds(size_bytes):
            return None
        for partition in self._found:
            self._append(partition)
        self.answer_count += 1
        return self._next_request()

    # --- checks

    def _finds(self, size_bytes: int) -> bool:
        """Return whether the answer is plain; set its partitions."""
        view = self._view
        data = cython.address(view[0]) if cython.compiled else view
        self._found.clear()
        if (
            size_bytes < _TOPICS_AT + 2
            or int32_at(data, 0) != size_bytes - 4
            or int32_at(data, 4) != self.correlation_id
            or data[8] != 0
            or int16_at(data, _ERROR_AT) != 0
            or int32_at(data, _SESSION_AT) != self._session_id
        ):
            return False
        topics_left = data[_TOPICS_AT] - 1
        # An answer without partitions ends a wait: the next look at all partitions is due.
        if not 0 < topics_left < _MOST_PARTITIONS:
            return False
        at = _TOPICS_AT + 1
        while topics_left:
            if at + _TOPIC_ID_BYTES + 1 > size_bytes:
                return False
            topic_high = int64_at(data, at)
            topic_low = int64_at(data, at + 8)
            at += _TOPIC_ID_BYTES
            partitions_left = data[at] - 1
            if not 0 < partitions_left < _MOST_PARTITIONS:
                return False
            at += 1
            while partitions_left:
                at = self._found_at(topic_high, topic_low, at, size_bytes)
                if not at:
                    return False
                partitions_left -= 1
            if at >= size_bytes or data[at] != 0:
                return False
            at += 1
            topics_left -= 1
        return at == size_bytes - 1 and data[at] == 0 and len(self._found) < _MOST_PARTITIONS

    def _found_at(self, topic_high: int, topic_low: int, at: int, end: int) -> int:
        """Add the partition at ``at`` and return its end; return 0 if it is not plain."""
        view = self._view
        data = cython.address(view[0]) if cython.compiled else view
        if at + _FIXED_BYTES + 2 > end:
            return 0
        partition = self._partitions.get((topic_high, topic_low, int32_at(data, at)))
        if partition is None or int16_at(data, at + 4) != 0 or data[at + 30] > 1 or int32_at(data, at + 31) != -1:
            return 0
        followed, log = partition.followed, partition.log
        if (
            not followed.is_current
            or followed.log is not log
            or followed.epoch_starts
            or log.log_end_offset != partition.asked_offset
            or int64_at(data, at + 22) > log.log_start_offset
        ):
            return 0
        partition.high_watermark = int64_at(data, at + 6)
        at += _FIXED_BYTES
        length = shift = 0
        while True:
            if at >= end or shift > 28:
                return 0
            byte = data[at]
            at += 1
            length |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
        partition.records_at = at
        partition.records_end = at + (length - 1 if length else 0)
        at = partition.records_end
        if at + 1 > end:
            return 0
        partition.receipt_ms = -1
        partition.is_keyed = True
        if data[at] == 0:
            at += 1
        else:
            if at + _RUN_BYTES > end or self._memory[at : at + 10] != _RUN_TAG:
                return 0
            if self._memory[at + 19 : at + _RUN_BYTES] != _RUN_END or data[at + 18] > 1:
                return 0
            partition.receipt_ms = int64_at(data, at + 10)
            partition.is_keyed = data[at + 18] == 0
            at += _RUN_BYTES
        if partition.records_at < partition.records_end and not self._continues(partition):
            return 0
        self._found.append(partition)
        return at

    def _continues(self, partition: CopiedPartition) -> bool:
        """Return whether the records are complete, undamaged v2 batches of data that continue the log."""
        view = self._view
        data = cython.address(view[0]) if cython.compiled else view
        log = partition.log
        at = partition.records_at
        offset = log.log_end_offset
        epoch = log._epochs.latest
        if epoch != partition.leader_epoch or log.health.failure is not None:
            return False
        while at < partition.records_end:
            size_bytes = batch_size_at(data, at, partition.records_end)
            if size_bytes <= 0 or data[at + _MAGIC_AT] != 2:
                return False
            attributes = int16_at(data, at + _ATTRIBUTES_AT)
            delta = int32_at(data, at + _LAST_OFFSET_DELTA_AT)
            if (
                int64_at(data, at) != offset
                or int32_at(data, at + _LEADER_EPOCH_AT) != epoch
                or not 0 <= attributes <= _LAST_PLAIN_ATTRIBUTES
                or attributes & _CODEC_MASK > _NEWEST_CODEC
                or delta < 0
                or int32_at(data, at + _RECORD_COUNT_AT) < 0
                or crc32c_of(data, at + _ATTRIBUTES_AT, at + size_bytes) != uint32_at(data, at + _CRC_AT)
            ):
                return False
            offset += delta + 1
            at += size_bytes
        return True

    # --- appends

    def _append(self, partition: CopiedPartition) -> None:
        """Append the checked records of a partition, and move the ends of its log."""
        view = self._view
        data = cython.address(view[0]) if cython.compiled else view
        log = partition.log
        at = partition.records_at
        if at < partition.records_end:
            is_known = partition.receipt_ms >= 0
            receipt_ms = partition.receipt_ms if is_known else self._now_ms()
            while at < partition.records_end:
                size_bytes = batch_size_at(data, at, partition.records_end)
                attributes = int16_at(data, at + _ATTRIBUTES_AT)
                offset = int64_at(data, at)
                batch = ProducedBatch(
                    at - partition.records_at,
                    size_bytes,
                    2,  # magic
                    CODECS[attributes & _CODEC_MASK],
                    int32_at(data, at + _RECORD_COUNT_AT),
                    int64_at(data, at + _MAX_TIMESTAMP_AT),
                    0,  # index_of_max_timestamp
                    True,  # relative_offsets_honoured
                    partition.is_keyed,
                    attributes & _TRANSACTIONAL != 0,
                    False,  # is_control
                    int64_at(data, at + _PRODUCER_ID_AT),
                    int16_at(data, at + _PRODUCER_EPOCH_AT),
                    int32_at(data, at + _BASE_SEQUENCE_AT),
                    offset,
                    offset + int32_at(data, at + _LAST_OFFSET_DELTA_AT),
                )
                log._store(self._memory[at : at + size_bytes], batch, partition.leader_epoch, receipt_ms, is_known)
                if batch.producer_id >= 0:
                    log.producers.record_data(batch)
                at += size_bytes
            if log._flusher.unflushed_count >= log._config.flush_messages:
                log.flush()
            partition.is_moved = True
        partition.followed.move_ends(partition.high_watermark)

    # --- the next request

    def _next_request(self) -> bytes:
        """Return the request that names the partitions to which records were appended."""
        out = cython.address(_scratch[0]) if cython.compiled else _scratch
        self.session_epoch = 1 if self.session_epoch == _MAX_EPOCH else self.session_epoch + 1
        self.correlation_id = (self.correlation_id + 1) & _LAST_CORRELATION_ID
        put_int32(out, 0, self.session_epoch)
        at = 5
        topic_count = 0
        count_at = 0
        before: CopiedPartition | None = None
        for partition in self._found:
            log = partition.log
            end_offset = log.log_end_offset
            if end_offset == partition.asked_offset:
                continue
            partition.asked_offset = end_offset
            if before is None or before.topic_high != partition.topic_high or before.topic_low != partition.topic_low:
                if before is not None:
                    out[at] = 0
                    at += 1
                put_int64(out, at, partition.topic_high)
                put_int64(out, at + 8, partition.topic_low)
                count_at = at + _TOPIC_ID_BYTES
                out[count_at] = 1
                at = count_at + 1
                topic_count += 1
            before = partition
            out[count_at] += 1
            put_int32(out, at, partition.index)
            put_int32(out, at + 4, partition.leader_epoch)
            put_int64(out, at + 8, end_offset)
            put_int32(out, at + 16, partition.leader_epoch)
            partition.told_log_start_offset = log.log_start_offset
            put_int64(out, at + 20, partition.told_log_start_offset)
            put_int32(out, at + 28, partition.max_bytes)
            out[at + 32] = 0
            at += 33
        if before is not None:
            out[at] = 0
            at += 1
        out[4] = topic_count + 1
        middle = bytes(out[:at])
        size_bytes = _HEAD_BYTES_IN_SIZE + len(self._before_epoch) + at + len(self._after_topics)
        head = HEAD.pack(size_bytes, _FETCH_KEY, FETCH_VERSION, self.correlation_id)
        return b"".join((head, self._before_epoch, middle, self._after_topics))


def _signed(half: int) -> int:
    """Return the int64 with the bits of an unsigned half of a topic id."""
    return half - (1 << 64) if half >> 63 else half
