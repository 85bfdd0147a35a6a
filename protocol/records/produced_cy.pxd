# C types for produced_cy.py, which stays ordinary Python.

cimport cython
from libc.stdint cimport int16_t, int32_t, int64_t


@cython.final
@cython.freelist(8)
cdef class ProducedBatch:
    cdef public int64_t position, size_bytes, record_count, max_timestamp, index_of_max_timestamp
    cdef public int magic
    cdef public object codec
    cdef public bint relative_offsets_honoured, keyed, is_transactional, is_control
    cdef public int64_t producer_id, base_offset, last_offset
    cdef public int32_t base_sequence
    cdef public int16_t producer_epoch


@cython.final
@cython.freelist(8)
cdef class Produced:
    cdef public object data
    cdef public list batches

    cpdef writable_data(self)
