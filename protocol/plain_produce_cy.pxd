# C types for plain_produce_cy.py, which stays ordinary Python.

cimport cython
from libc.stdint cimport int16_t, int32_t, int64_t

from .records.message_bytes cimport int16_at, int32_at, int64_at, put_int16, put_int32, put_int64

cdef int FIRST_VERSION, FIRST_VERSION_WITH_LOG_START, FIRST_VERSION_WITH_RECORD_ERRORS, FIRST_FLEXIBLE_VERSION
cdef int LAST_VERSION, COMPACT_ONE, COMPACT_NULL, LONGEST_COMPACT_NAME, LAST_SHIFT, LONGEST_NAME
cdef unsigned char[317] _scratch


@cython.final
@cython.freelist(4)
cdef class PlainProduce:
    cdef readonly int16_t acks
    cdef readonly int32_t timeout_ms, partition
    cdef readonly str topic
    cdef readonly object records


@cython.final
@cython.freelist(4)
cdef class PlainProduceResponse:
    cdef readonly str topic
    cdef readonly int32_t partition
    cdef readonly int64_t base_offset, log_append_time_ms, log_start_offset


@cython.final
cdef class ReceivedProduce:
    cdef readonly int16_t acks
    cdef readonly int32_t timeout_ms, partition
    cdef readonly Py_ssize_t name_at, name_end, records_at, records_end


cpdef bint decode_plain(const unsigned char[::1] frame, Py_ssize_t position, int version, ReceivedProduce request) except -1

@cython.locals(data=cython.p_const_uchar, end=Py_ssize_t, name_length=Py_ssize_t, name_at=Py_ssize_t,
               name_end=Py_ssize_t, records_at=Py_ssize_t, has_one=bint)
cdef bint _decode_fixed(const unsigned char[::1] frame, Py_ssize_t position, ReceivedProduce request) except -1

@cython.locals(data=cython.p_const_uchar, end=Py_ssize_t, name_length=Py_ssize_t, name_at=Py_ssize_t,
               name_end=Py_ssize_t, records_at=Py_ssize_t, records_end=Py_ssize_t, length=int64_t, shift=int, byte=int,
               has_one=bint)
cdef bint _decode_compact(const unsigned char[::1] frame, Py_ssize_t position, ReceivedProduce request) except -1

@cython.locals(is_flexible=bint, position=Py_ssize_t, byte=cython.uchar)
cpdef bytes encode_plain(bytes topic, int32_t partition, int64_t base_offset, int64_t log_append_time_ms,
                         int64_t log_start_offset, int version, int32_t correlation_id)

@cython.locals(topic=bytes, is_flexible=bint, position=Py_ssize_t, byte=cython.uchar, length=int64_t)
cpdef list plain_pieces(PlainProduce request, int version)

@cython.locals(data=cython.p_const_uchar, name=bytes, is_flexible=bint, size=Py_ssize_t, start=Py_ssize_t,
               end=Py_ssize_t, position=Py_ssize_t, base_offset=int64_t, append_time=int64_t,
               log_start_offset=int64_t)
cpdef PlainProduceResponse decode_plain_answer(const unsigned char[::1] view, int version, str topic,
                                               int32_t partition)
