# C types for columns_cy.py, which stays ordinary Python. Beware of int64 arithmetic in there: it must not overflow.

cimport cython
from libc.stdint cimport int16_t, int32_t, int64_t, uint32_t, uint64_t

from .crc_cy cimport crc32_between as crc32_of, crc32c_between as crc32c_of
from .message_bytes cimport batch_size_at, copy_bytes, int16_at, int32_at, int64_at
from .varint cimport varint_at

cdef int AT_END, OUT_IS_FULL, NEEDS_CODEC, CORRUPT, BAD_TIMESTAMP
cdef int INT32_LAST_SHIFT, INT64_LAST_SHIFT
cdef int64_t MAX_INT64, MIN_INT64, MAX_MILLIS
cdef uint32_t UINT32_MAX
cdef Py_ssize_t V2_HEADER_SIZE, MALFORMED


@cython.final
cdef class BytesColumn:
    cdef int32_t[::1] ends
    cdef unsigned char[::1] data
    cdef unsigned char[::1] valid
    cdef readonly int64_t count, size_bytes, null_count

    @cython.locals(bit=int)
    cdef void append(self, const unsigned char *source, Py_ssize_t position, int64_t length) noexcept nogil


@cython.final
cdef class RecordColumns:
    cdef int64_t[::1] offsets, timestamps, producer_ids
    cdef int32_t[::1] timestamp_types, magics, codecs, header_ends
    cdef unsigned char[::1] header_valid
    cdef BytesColumn keys, values, header_keys, header_values
    cdef readonly int64_t rows, headerless_rows, next_offset
    cdef readonly int stop
    cdef int64_t row_capacity, bytes_left, first_offset, end_offset, least_timestamp
    cdef bint checks_crc, is_exact, has_contents
    cdef Py_ssize_t cursor
    cdef int magic, codec, timestamp_type
    cdef int64_t producer_id, base_offset, base_timestamp, append_time

    @cython.locals(data=cython.p_const_uchar)
    cpdef Py_ssize_t fill(self, const unsigned char[::1] stored, Py_ssize_t position, Py_ssize_t end) except -1
    @cython.locals(data=cython.p_const_uchar, inflated=cython.p_const_uchar, count=int64_t)
    cpdef bint add_records(self, const unsigned char[::1] stored, Py_ssize_t position,
                           const unsigned char[::1] body) except -1
    @cython.locals(data=cython.p_const_uchar, position=Py_ssize_t, index=int64_t,
                   size=Py_ssize_t, stored_offset=int64_t)
    cpdef bint add_messages(self, const unsigned char[::1] inner, int64_t base_offset, bint is_numbered,
                            int64_t append_time, bint has_append_time, int codec) except -1

    @cython.locals(size=Py_ssize_t, is_taken=bint)
    cdef Py_ssize_t _fill(self, const unsigned char *data, Py_ssize_t position, Py_ssize_t end) noexcept nogil
    @cython.locals(attributes=int, count=int64_t, delta=int64_t, base_offset=int64_t, last_offset=int64_t)
    cdef bint _take_batch(self, const unsigned char *data, Py_ssize_t position, Py_ssize_t size) noexcept nogil
    cdef bint _step_over(self, int64_t last_offset) noexcept nogil
    cdef bint _has_crc(self, const unsigned char *data, Py_ssize_t position, uint32_t crc) noexcept nogil
    @cython.locals(attributes=int)
    cdef void _open_v2(self, const unsigned char *data, Py_ssize_t position) noexcept nogil
    cdef bint _has_room(self, int64_t count, int64_t size_bytes) noexcept nogil
    @cython.locals(size=int64_t, _=int64_t)
    cdef bint _add_records(self, const unsigned char *data, Py_ssize_t position, Py_ssize_t end,
                           int64_t count) noexcept nogil
    @cython.locals(timestamp_delta=int64_t, offset_delta=int64_t, key_length=int64_t, value_length=int64_t,
                   header_count=int64_t, key_at=Py_ssize_t, value_at=Py_ssize_t, offset=int64_t, timestamp=int64_t)
    cdef bint _add_record(self, const unsigned char *data, Py_ssize_t position, Py_ssize_t end) noexcept nogil
    @cython.locals(row=int64_t)
    cdef bint _add_fixed(self, int64_t offset, int64_t timestamp) noexcept nogil
    @cython.locals(row=int64_t, length=int64_t, value_length=int64_t, key_at=Py_ssize_t, value_at=Py_ssize_t)
    cdef bint _add_headers(self, const unsigned char *data, Py_ssize_t end, int64_t count) noexcept nogil
    @cython.locals(offset=int64_t, is_wrapper=bint)
    cdef bint _take_message(self, const unsigned char *data, Py_ssize_t position, Py_ssize_t size) noexcept nogil
    @cython.locals(end=Py_ssize_t, timestamp=int64_t, fields_at=Py_ssize_t, key_length=int64_t, key_at=Py_ssize_t,
                   value_length=int64_t, value_at=Py_ssize_t)
    cdef bint _add_message(self, const unsigned char *data, Py_ssize_t position, Py_ssize_t size, int64_t offset,
                           int64_t append_time, bint has_append_time) noexcept nogil
    @cython.locals(value=int64_t)
    cdef int64_t _varint(self, const unsigned char *data, Py_ssize_t position, Py_ssize_t end,
                         int last_shift) noexcept nogil
    cdef void _skip(self, int64_t length, Py_ssize_t end) noexcept nogil


@cython.locals(data=cython.p_const_uchar, position=Py_ssize_t, size=Py_ssize_t, count=int64_t, last_offset=int64_t)
cpdef (int64_t, int64_t) survey_messages(const unsigned char[::1] inner) except *
