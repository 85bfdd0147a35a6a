# C types for copy_steps_cy.py, which stays ordinary Python.

cimport cython
from libc.stdint cimport int32_t, int64_t

from ....protocol.records.crc_cy cimport crc32c_between as crc32c_of
from ....protocol.records.message_bytes cimport (
    batch_size_at, int16_at, int32_at, int64_at, put_int32, put_int64, uint32_at
)
from ....protocol.records.produced_cy cimport ProducedBatch
from ....storage.log.appendable_log_cy cimport AppendableLog

cdef int _FETCH_KEY, _HEAD_BYTES_IN_SIZE, _MOST_PARTITIONS, _PARTITION_BYTES
cdef int32_t _MAX_EPOCH, _LAST_CORRELATION_ID
cdef Py_ssize_t _ERROR_AT, _SESSION_AT, _TOPICS_AT, _TOPIC_ID_BYTES, _FIXED_BYTES, _RUN_BYTES
cdef Py_ssize_t _LEADER_EPOCH_AT, _MAGIC_AT, _CRC_AT, _ATTRIBUTES_AT, _LAST_OFFSET_DELTA_AT, _MAX_TIMESTAMP_AT
cdef Py_ssize_t _PRODUCER_ID_AT, _PRODUCER_EPOCH_AT, _BASE_SEQUENCE_AT, _RECORD_COUNT_AT
cdef int _CODEC_MASK, _TRANSACTIONAL, _LAST_PLAIN_ATTRIBUTES, _NEWEST_CODEC
cdef unsigned char[3272] _scratch


@cython.final
cdef class CopiedPartition:
    cdef readonly object followed
    cdef readonly tuple partition_id
    cdef readonly AppendableLog log
    cdef readonly int64_t topic_high, topic_low, asked_offset, told_log_start_offset
    cdef readonly int32_t index, max_bytes, leader_epoch
    cdef readonly bint is_moved
    cdef Py_ssize_t records_at, records_end
    cdef int64_t high_watermark, receipt_ms
    cdef bint is_keyed


@cython.final
cdef class CopySteps:
    cdef object _memory, _now_ms
    cdef const unsigned char[::1] _view
    cdef dict _partitions
    cdef bytes _before_epoch, _after_topics
    cdef int32_t _session_id
    cdef list _found
    cdef public int32_t session_epoch, correlation_id
    cdef public bint is_over
    cdef public int64_t answer_count

    @cython.locals(partition=CopiedPartition)
    cpdef take(self, Py_ssize_t size_bytes)

    @cython.locals(data=cython.p_const_uchar, topics_left=int, partitions_left=int, at=Py_ssize_t,
                   topic_high=int64_t, topic_low=int64_t)
    cdef bint _finds(self, Py_ssize_t size_bytes) except -1

    @cython.locals(data=cython.p_const_uchar, partition=CopiedPartition, log=AppendableLog, length=int64_t, shift=int,
                   byte=int)
    cdef Py_ssize_t _found_at(self, int64_t topic_high, int64_t topic_low, Py_ssize_t at, Py_ssize_t end) except -1

    @cython.locals(data=cython.p_const_uchar, log=AppendableLog, at=Py_ssize_t, offset=int64_t, epoch=int32_t,
                   size_bytes=Py_ssize_t, attributes=int, delta=int32_t)
    cdef bint _continues(self, CopiedPartition partition) except -1

    @cython.locals(data=cython.p_const_uchar, log=AppendableLog, at=Py_ssize_t, offset=int64_t, receipt_ms=int64_t,
                   size_bytes=Py_ssize_t, attributes=int, is_known=bint, batch=ProducedBatch)
    cdef int _append(self, CopiedPartition partition) except -1

    @cython.locals(out=cython.p_uchar, at=Py_ssize_t, count_at=Py_ssize_t, topic_count=int, before=CopiedPartition,
                   partition=CopiedPartition, log=AppendableLog, end_offset=int64_t, size_bytes=int32_t, middle=bytes)
    cdef _next_request(self)
