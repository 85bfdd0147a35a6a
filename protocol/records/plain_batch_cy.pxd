# C types for plain_batch_cy.py, which stays ordinary Python.

cimport cython
from libc.stdint cimport int16_t, int32_t, int64_t

from .crc_cy cimport crc32c_between as crc32c_of
from .message_bytes cimport int16_at, int32_at, int64_at, uint32_at
from .produced_cy cimport ProducedBatch
from .walk_cy cimport RecordWalk

cdef Py_ssize_t _LENGTH_AT, _MAGIC_AT, _CRC_AT, _ATTRIBUTES_AT, _LAST_OFFSET_DELTA_AT, _BASE_TIMESTAMP_AT
cdef Py_ssize_t _PRODUCER_ID_AT, _PRODUCER_EPOCH_AT, _BASE_SEQUENCE_AT, _RECORD_COUNT_AT, _RECORDS_AT, _LOG_OVERHEAD
cdef Py_ssize_t _COMPRESSED_LIMIT_BYTES
cdef int64_t _MAX_INT64


@cython.locals(size_bytes=Py_ssize_t, earliest=int64_t, latest=int64_t, before_ms=int64_t, after_ms=int64_t)
cpdef check_plain_batch(const unsigned char[::1] data, rules, int64_t now_ms, newest_codec=*)

@cython.locals(header=cython.p_const_uchar, size_bytes=Py_ssize_t, attributes=int, count=int64_t, producer_id=int64_t,
               base_sequence=int32_t, base_timestamp=int64_t, walk=RecordWalk, is_good=bint,
               batch=ProducedBatch)
cdef _checked(const unsigned char[::1] data, rules, int64_t earliest, int64_t latest, int newest_codec)
