# C types for sending_cy.py, which stays ordinary Python.

from .appending_cy cimport ReservedBytes, append_to_open, record_size_bound

cpdef wall_clock_ms()


cdef class SendingProducer:
    cdef public object _config, _clock_ms, _metadata, _partitioner, _accumulator, _transactions
    cdef public ReservedBytes _memory
    cdef public bint _ignores_keys, _is_open
    cdef public Py_ssize_t _max_record_bytes, _sends_since_yield
