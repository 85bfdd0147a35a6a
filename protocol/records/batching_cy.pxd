# C types for batching_cy.py, which stays ordinary Python.

cimport cython
from libc.stdint cimport int32_t, int64_t, uint32_t

from .crc_cy cimport crc32c_between as crc32c_of
from .message_bytes cimport copy_bytes, put_uint32, put_v2_head
from .murmur2_cy cimport murmur2
from .varint cimport put_varint, varint_size

cdef Py_ssize_t V2_HEADER_SIZE, LEADER_EPOCH_AT, CRC_AT, ATTRIBUTES_AT, LEAST_CAPACITY, MAX_BATCH_BYTES
cdef uint32_t POSITIVE


@cython.final
cdef class BytesRows:
    cdef const int32_t[::1] ends
    cdef const unsigned char[::1] data, valid
    cdef int64_t first_bit
    cdef bint has_nulls

    @cython.locals(bit=int64_t, start=int64_t, end=int64_t)
    cdef int64_t size_at(self, Py_ssize_t row, Py_ssize_t limit) except -2


@cython.final
cdef class RecordRows:
    cdef readonly Py_ssize_t count
    cdef const int64_t[::1] timestamps
    cdef const int32_t[::1] partitions
    cdef BytesRows keys, values, header_lists, header_keys, header_values
    cdef Py_ssize_t header_count

    @cython.locals(count=int64_t)
    cdef int64_t header_size(self, Py_ssize_t row) except -2


@cython.final
cdef class GrowingBatch:
    cdef unsigned char[::1] out
    cdef readonly Py_ssize_t size_bytes
    cdef readonly int64_t record_count, base_timestamp, max_timestamp

    @cython.locals(out=cython.p_uchar, at=Py_ssize_t, timestamp=int64_t, delta=int64_t, body_size=int64_t,
                   size_bytes=int64_t)
    cdef bint append(self, RecordRows rows, Py_ssize_t row, int64_t limit_bytes) except -1
    cdef unsigned char *_target(self)
    cdef _grow(self, Py_ssize_t least_bytes)


@cython.final
cdef class TopicBatches:
    cdef readonly int partition_count, keyless_partition, full_partition
    cdef readonly list growing
    cdef int64_t limit_bytes

    @cython.locals(partition=int, key_size=int64_t, batch=GrowingBatch)
    cpdef Py_ssize_t fill(self, RecordRows rows, Py_ssize_t row) except -1
    @cython.locals(hashed=uint32_t)
    cdef int _partition_of(self, BytesRows keys, Py_ssize_t row) except -1


@cython.locals(size=int64_t, count=int64_t, index=Py_ssize_t, key_size=int64_t)
cdef int64_t _body_size(RecordRows rows, Py_ssize_t row, int64_t timestamp_delta, int64_t offset_delta) except -1
cdef int64_t _string_size(int64_t size) noexcept
cdef Py_ssize_t _put_string(unsigned char *out, Py_ssize_t position, BytesRows strings, Py_ssize_t row,
                            int64_t size) noexcept
@cython.locals(count=int64_t, index=Py_ssize_t, keys=BytesRows, values=BytesRows)
cdef Py_ssize_t _put_headers(unsigned char *out, Py_ssize_t position, RecordRows rows, Py_ssize_t row) except -1
