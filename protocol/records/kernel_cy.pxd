# C types for kernel_cy.py, which stays ordinary Python. Beware of int64 arithmetic in there: it must not overflow.

cimport cython
from libc.stdint cimport int16_t, int32_t, int64_t, uint32_t, uint64_t

from .crc_cy cimport crc32_between as crc32_of
from .message_bytes cimport (
    batch_size_at,
    copy_bytes,
    int16_at,
    int32_at,
    int64_at,
    put_int32,
    put_uint32,
    put_v0_head,
    put_v1_head,
)
from .varint cimport varint_at

cdef int64_t MAX_INT64, MIN_INT64, ANY_LEAD
cdef int INT32_LAST_SHIFT, INT64_LAST_SHIFT
cdef Py_ssize_t MALFORMED
cdef int AT_END, OUT_IS_FULL, NEEDS_CODEC, BATCH_DONE, CORRUPT, BAD_TIMESTAMP

cdef Py_ssize_t after_field(Py_ssize_t position, int64_t length, Py_ssize_t end) noexcept nogil

@cython.locals(length=int64_t)
cdef Py_ssize_t after_headers(const unsigned char *data, Py_ssize_t position, Py_ssize_t end,
                              int64_t count) noexcept nogil

@cython.locals(magic=int, attributes=int, codec=int)
cdef int work_for_batch(const unsigned char *data, Py_ssize_t position, int to_magic) noexcept nogil

@cython.locals(start=Py_ssize_t, size=Py_ssize_t, work=int)
cdef (Py_ssize_t, int) survey_unchecked(const unsigned char *data, Py_ssize_t position, Py_ssize_t end,
                                        int64_t limit_bytes, int to_magic) noexcept nogil

@cython.locals(data=cython.p_const_uchar)
cpdef (Py_ssize_t, int) survey(const unsigned char[::1] stored, Py_ssize_t position, Py_ssize_t end,
                               int64_t limit_bytes, int to_magic) except *


cdef class DownConversion:
    cdef public Py_ssize_t position
    cdef readonly int to_magic, stop, attributes
    cdef readonly int64_t first_offset, converted_count, records_left, base_offset, base_timestamp, log_append_time
    cdef readonly int64_t inner_base_offset, offset, timestamp, max_timestamp, key_length, value_length
    cdef readonly Py_ssize_t batch_end, record_end, key_at, value_at
    cdef readonly bint is_log_append_time
    cdef public int64_t receipt_ms
    cdef bint is_measuring
    cdef int64_t lead

    cpdef begin(self, int to_magic, int64_t first_offset, Py_ssize_t position)
    cdef void begin_unlocked(self, int to_magic, int64_t first_offset, Py_ssize_t position) noexcept nogil
    cdef Py_ssize_t fill_unchecked(self, const unsigned char *stored, Py_ssize_t end, unsigned char *out,
                                   Py_ssize_t out_position, int64_t capacity) noexcept nogil
    @cython.locals(data=cython.p_const_uchar, target=cython.p_uchar, capacity=int64_t)
    cpdef Py_ssize_t fill(self, const unsigned char[::1] stored, Py_ssize_t end, unsigned char[::1] out,
                          Py_ssize_t out_position=*) except -1
    @cython.locals(data=cython.p_const_uchar, target=cython.p_uchar)
    cpdef Py_ssize_t measure_batch(self, const unsigned char[::1] stored, Py_ssize_t end) except -1
    cpdef Py_ssize_t measure_lagging(self, const unsigned char[::1] stored, Py_ssize_t end, int64_t lead) except -1
    @cython.locals(data=cython.p_const_uchar, size_bytes=Py_ssize_t)
    cpdef skip_batch(self, const unsigned char[::1] stored)
    cpdef open_records(self, int64_t count, Py_ssize_t end, int64_t base_offset, int64_t base_timestamp,
                       int64_t log_append_time, bint is_log_append_time, int64_t inner_base_offset)
    cpdef bint read_record(self, const unsigned char[::1] stored) except -1
    @cython.locals(size=int64_t)
    cdef int64_t write_record(self, const unsigned char *data, unsigned char *out, Py_ssize_t at, int64_t capacity,
                              bint is_first) noexcept nogil
    cpdef skip_record(self)
    cdef void _skip_record(self) noexcept nogil
    cpdef count_message(self)

    cdef _check(self, Py_ssize_t stored_bytes, Py_ssize_t end)
    @cython.locals(size=Py_ssize_t, magic=int, before=Py_ssize_t)
    cdef Py_ssize_t _run(self, const unsigned char *data, Py_ssize_t end, unsigned char *out, Py_ssize_t at,
                         int64_t capacity) noexcept nogil
    @cython.locals(count=int64_t, base_offset=int64_t)
    cdef bint open_header(self, const unsigned char *data, Py_ssize_t position) noexcept nogil
    @cython.locals(position=Py_ssize_t, attributes=int)
    cdef bint _open_batch(self, const unsigned char *data, Py_ssize_t size) noexcept nogil
    @cython.locals(size=int64_t)
    cdef Py_ssize_t _convert_records(self, const unsigned char *data, Py_ssize_t end, unsigned char *out,
                                     Py_ssize_t at, int64_t capacity) noexcept nogil
    @cython.locals(size=int64_t, body=Py_ssize_t, end=Py_ssize_t, position=Py_ssize_t, timestamp_delta=int64_t,
                   offset_delta=int64_t, header_count=int64_t)
    cdef bint _read_record(self, const unsigned char *data) noexcept nogil
    @cython.locals(size=int64_t)
    cdef int64_t _message_size(self) noexcept nogil
    @cython.locals(offset=int64_t, key_length=int64_t, value_length=int64_t, field=Py_ssize_t)
    cdef void _write_message(self, const unsigned char *data, unsigned char *out, Py_ssize_t at,
                             Py_ssize_t size) noexcept nogil
    @cython.locals(position=Py_ssize_t, attributes=int)
    cdef Py_ssize_t _convert_message(self, const unsigned char *data, Py_ssize_t size, int magic, unsigned char *out,
                                     Py_ssize_t at, int64_t capacity) noexcept nogil
    @cython.locals(position=Py_ssize_t, end=Py_ssize_t, value_length_at=Py_ssize_t)
    cdef Py_ssize_t _convert_v1_message(self, const unsigned char *data, Py_ssize_t size, unsigned char *out,
                                        Py_ssize_t at, int64_t capacity) noexcept nogil
