# C types for plain_reading_cy.py, which stays ordinary Python.

cimport cython
from libc.stdint cimport int64_t, uint32_t

from ...protocol.records.message_bytes cimport int32_at, int64_at, uint32_at
from .appendable_log_cy cimport AppendableLog
from .appendable_segment_cy cimport AppendableSegment
from .file_reads cimport read_at

cdef int NOT_PLAIN, EMPTY, FOUND
cdef int64_t _NOWHERE, _ENTRY_SIZE, _HEADER_SIZE, _FIRST_HEAD_BYTES, _HEADS_BYTES, _HEAD_BYTES, _OFFSET_AND_SIZE_BYTES
cdef int64_t _LEAST_BATCH_BYTES
cdef int _OFFSET_AT, _POSITION_AT, _CHECKSUM_AT, _MAGIC_AT, _LAST_DELTA_AT


@cython.final
cdef class PlainReader:
    cdef readonly bytearray window
    cdef readonly int64_t window_at, window_bytes, position, size_bytes, first_bytes, end_offset
    cdef readonly object segment, file, view
    cdef readonly int magics
    cdef int _descriptor

    @cython.locals(bound=int64_t, segment=AppendableSegment, start=int64_t, first_bytes=int64_t, end=int64_t,
                   size=int64_t)
    cpdef int find(self, AppendableLog log, int64_t offset, int64_t max_bytes, int64_t upper_bound,
                   bint at_least_one) except -1

    @cython.locals(segment=AppendableSegment, start=int64_t, end=int64_t, position=int64_t, size=int64_t)
    cpdef bint cut_incomplete_batch(self) except -1

    cpdef bint load(self, int64_t position, int64_t size_bytes) except -1

    cdef bint _open(self, AppendableSegment segment) except -1

    @cython.locals(position=int64_t, end=int64_t, at=int64_t, size=int64_t, last_offset=int64_t)
    cdef int64_t _locate(self, AppendableSegment segment, int64_t offset) except? -1

    @cython.locals(is_first=bint, wanted=int64_t)
    cdef bint _holds(self, int64_t position, int64_t size_bytes, int64_t end) except -1

    @cython.locals(last_offset=int64_t, last=int64_t, base_offset=int64_t, count=int64_t)
    cdef int64_t _indexed(self, index, int field_at, int64_t value) except? -1

    cdef bint _verify(self, segment, int64_t start, int64_t size) except -1


@cython.locals(data=cython.p_const_uchar, low=int64_t, high=int64_t, probe=int64_t, step=int64_t, at=int64_t,
               has_lower=bint, has_higher=bint, checksum=uint32_t)
cdef int64_t _position_up_to(const unsigned char[::1] entries, memory, int field_at, int64_t limit, int64_t last,
                             int64_t count, int64_t base_offset) except? -1
