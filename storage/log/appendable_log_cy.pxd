# C types for appendable_log_cy.py, which stays ordinary Python.

cimport cython
from libc.stdint cimport int32_t, int64_t

from ...protocol.records.offsets_cy cimport assign_offsets
from ...protocol.records.produced_cy cimport Produced, ProducedBatch
from .appendable_segment_cy cimport AppendableSegment

cdef int64_t NO_TAIL, NOT_READ, _MAX_RELATIVE_OFFSET


cdef class AppendableLog:
    cdef public object append_rules, _clock, _config, _epochs, _faults, _flusher, _rolling, _segments, health, producers
    cdef public bint _stamps_append_time, sole_replica
    cdef public int64_t _roll_after_ms, _segment_bytes
    cdef public int64_t _tail_offset, _tail_position, high_watermark, log_end_offset, log_start_offset

    @cython.locals(batch=ProducedBatch)
    cpdef append(self, Produced produced, int32_t leader_epoch, origin=*, int64_t receipt_ms=*)

    cdef _append_of_producer(self, Produced produced, ProducedBatch batch, int32_t leader_epoch, origin,
                                int64_t receipt_ms)

    @cython.locals(base_offset=int64_t, last_offset=int64_t)
    cdef _write(self, Produced produced, ProducedBatch batch, int32_t leader_epoch, int64_t receipt_ms)

    @cython.locals(first=int64_t)
    cdef bint _has_room(self, AppendableSegment active, int64_t size_bytes, int64_t last_offset, int64_t timestamp_ms)

    @cython.locals(active=AppendableSegment, last_offset=int64_t, timestamp_ms=int64_t, end_offset=int64_t)
    cpdef _store(self, data, ProducedBatch batch, int32_t epoch, int64_t receipt_ms, bint is_exact=*)
