# C types for appendable_segment_cy.py, which stays ordinary Python.

cimport cython
from libc.stdint cimport int64_t

from ...protocol.records.produced_cy cimport ProducedBatch


cdef class AppendableSegment:
    cdef public object _file, index
    cdef public int64_t base_offset, created_ms, first_timestamp, max_timestamp, max_timestamp_offset, next_offset
    cdef public int64_t size_bytes
    cdef public int magics
    cdef public bint is_suspect, recently_used

    @cython.locals(position=int64_t, size_bytes=int64_t, written=int64_t, magic=int, is_usual=bint, timestamp=int64_t)
    cpdef append(self, data, ProducedBatch batch, int64_t receipt_ms=*, bint is_exact=*)
