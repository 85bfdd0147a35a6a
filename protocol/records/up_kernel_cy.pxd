# C types for up_kernel_cy.py, which stays ordinary Python.

cimport cython
from libc.stdint cimport int32_t, int64_t, uint32_t

from .crc_cy cimport crc32c_between as crc32c_of
from .message_bytes cimport (
    batch_size_at,
    copy_bytes,
    int32_at,
    int64_at,
    put_uint32,
    put_v2_head,
)
from .varint cimport put_varint, varint_size

cdef int AT_END, OUT_IS_FULL, NEEDS_CODEC, BATCH_DONE, CORRUPT
cdef int64_t V2_HEADER_SIZE, MAX_OFFSET_DELTA, MAX_INT64

cdef class UpConversion:
    cdef readonly Py_ssize_t position
    cdef readonly int to_magic, stop
    cdef readonly int64_t first_offset, batch_bytes, converted_count, offset, timestamp, key_length, value_length
    cdef readonly Py_ssize_t message_end, key_at, value_at
    cdef readonly bint is_log_append_time, stops_at_zstd
    cdef public int64_t receipt_ms
    cdef bint is_measuring

    @cython.locals(data=cython.p_const_uchar, target=cython.p_uchar, capacity=int64_t)
    cpdef Py_ssize_t fill(self, const unsigned char[::1] stored, Py_ssize_t end, unsigned char[::1] out,
                          Py_ssize_t out_position=*) except -1
    @cython.locals(data=cython.p_const_uchar, target=cython.p_uchar)
    cpdef Py_ssize_t measure_batch(self, const unsigned char[::1] stored, Py_ssize_t end) except -1
    cpdef bint read_message(self, const unsigned char[::1] stored) except -1
    @cython.locals(size_bytes=Py_ssize_t)
    cpdef skip_batch(self, const unsigned char[::1] stored)

    cdef _check(self, Py_ssize_t stored_bytes, Py_ssize_t end)
    @cython.locals(size=Py_ssize_t, magic=int, before=Py_ssize_t)
    cdef Py_ssize_t _run(self, const unsigned char *data, Py_ssize_t end, unsigned char *out, Py_ssize_t at,
                         int64_t capacity) noexcept nogil
    @cython.locals(position=Py_ssize_t, end=Py_ssize_t, key_length_at=Py_ssize_t, value_length_at=Py_ssize_t)
    cdef bint _read_message(self, const unsigned char *data, Py_ssize_t size, int magic) noexcept nogil
    @cython.locals(start=Py_ssize_t, base_offset=int64_t, base_timestamp=int64_t, max_timestamp=int64_t,
                   is_log_append_time=bint, count=int64_t, last_offset=int64_t, size=int64_t, body=int64_t,
                   record=int64_t)
    cdef Py_ssize_t _merge(self, const unsigned char *data, Py_ssize_t end, unsigned char *out, Py_ssize_t at,
                           int64_t capacity) noexcept nogil
    @cython.locals(size=Py_ssize_t, magic=int)
    cdef bint _read_next_mergeable(self, const unsigned char *data, Py_ssize_t end) noexcept nogil
    @cython.locals(size=int64_t)
    cdef int64_t _body_size(self, int64_t base_offset, int64_t base_timestamp) noexcept nogil
    cdef void _write_record(self, const unsigned char *data, unsigned char *out, Py_ssize_t at, int64_t body,
                            int64_t base_offset, int64_t base_timestamp) noexcept nogil
