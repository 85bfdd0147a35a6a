# C types for offsets_cy.py, which stays ordinary Python.

cimport cython
from libc.stdint cimport int32_t, int64_t

from .message_bytes cimport int16_at, int64_at, put_int32, put_int64
from .produced_cy cimport Produced, ProducedBatch

cdef Py_ssize_t _LEADER_EPOCH_AT, _ATTRIBUTES_AT, _MAX_TIMESTAMP_AT
cdef int _LOG_APPEND_TIME_FLAG


@cython.locals(next_offset=int64_t, last_offset=int64_t, magic=int, has_append_time=bint, is_right=bint,
               batch=ProducedBatch)
cpdef int64_t assign_offsets(Produced produced, int64_t base_offset, int32_t leader_epoch, log_append_time_ms=*) except? -2

@cython.locals(header=cython.p_uchar, flag=int)
cdef bint _place_v2_batch(unsigned char[::1] data, Py_ssize_t position, int64_t base_offset, int32_t leader_epoch,
                          int64_t max_timestamp, bint is_append_time) except -1
