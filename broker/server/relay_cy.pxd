# C types for relay_cy.py, which stays ordinary Python. No method with `nogil` may touch a Python object.

cimport cython
from libc.stdint cimport int64_t

from .relay_calls cimport monotonic_ns, move, wait_alone

cdef int MOVED, NEEDS_INPUT, FULL, TURN, SOURCE_HAS_FAILED, TARGET_HAS_FAILED
cdef int WAIT_MS
cdef int64_t WOULD_WAIT, TURN_BYTES, NS_OF_MS


@cython.final
cdef class Relay:
    cdef readonly int64_t left_bytes, held_bytes
    cdef readonly int error
    cdef int _source, _target, _pipe_out, _pipe_in
    cdef int64_t _pipe_bytes

    cpdef int run(self, int quiet_ms, int first_other, int second_other) except -1
    @cython.locals(end_ns=int64_t, turn_bytes=int64_t, count=int64_t, left_ms=int64_t, is_output=bint)
    cdef int _run(self, int quiet_ms, int first_other, int second_other) noexcept nogil
