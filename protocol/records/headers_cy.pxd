# C types for headers_cy.py, which stays ordinary Python.

cimport cython
from libc.stdint cimport int16_t, int32_t, int64_t, uint32_t

from .crc_cy cimport crc32_between as crc32_of, crc32c_between as crc32c_of
from .message_bytes cimport batch_size_at, int16_at, int32_at, int64_at

cdef int UNKNOWN
cdef int64_t MAX_INT64
cdef uint32_t UINT32_MAX


@cython.final
cdef class HeaderColumns:
    cdef int64_t[::1] base_offsets, last_offsets, positions, first_timestamps, max_timestamps, producer_ids
    cdef int32_t[::1] sizes, magics, codecs, counts, timestamp_types, leader_epochs, producer_epochs, base_sequences
    cdef unsigned char[::1] transactional, control, crc_ok
    cdef bint checks_crc
    cdef int64_t capacity
    cdef readonly int64_t rows

    @cython.locals(data=cython.p_const_uchar, size=Py_ssize_t)
    cpdef Py_ssize_t fill(self, const unsigned char[::1] stored, Py_ssize_t position, Py_ssize_t end,
                          int64_t file_position) except -1
    @cython.locals(row=int64_t, crc_at=Py_ssize_t, start=Py_ssize_t, crc=uint32_t)
    cdef void _take(self, const unsigned char *data, Py_ssize_t position, Py_ssize_t size,
                    int64_t file_position) noexcept nogil
    @cython.locals(attributes=int)
    cdef void _take_v2(self, const unsigned char *data, Py_ssize_t position, int64_t row) noexcept nogil
    @cython.locals(attributes=int, is_wrapper=bint, timestamp=int64_t)
    cdef void _take_message(self, const unsigned char *data, Py_ssize_t position, int64_t row) noexcept nogil


@cython.locals(data=cython.p_const_uchar, size=Py_ssize_t, end=Py_ssize_t, last_offset=int64_t, next_offset=int64_t,
               newest=int64_t)
cpdef (Py_ssize_t, int64_t) seek(const unsigned char[::1] stored, Py_ssize_t position, Py_ssize_t stop, int64_t offset,
                                 int64_t timestamp) except *
