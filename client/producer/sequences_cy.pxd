# C types for sequences_cy.py, which stays ordinary Python.

cimport cython

from .batch_cy cimport ProducerBatch

cdef object IN_FLIGHT



cdef class PartitionSequence:
    cdef public long long producer_id
    cdef public int producer_epoch, next_sequence
    cdef public bint restart_wanted
    cdef public list tracked
    cdef long long _known_id
    cdef int _known_epoch

    cpdef adopt(self, long long producer_id, int producer_epoch)
    cpdef bint may_send(self, ProducerBatch batch) except -1
    cdef bint _is_in_turn(self, ProducerBatch batch, long long producer_id, int producer_epoch) except -1
    cpdef assign(self, ProducerBatch batch)
    cpdef track(self, ProducerBatch batch)
    cdef _stamp(self, ProducerBatch batch)
    cpdef bint is_first(self, ProducerBatch batch) except -1
    cpdef delivered(self, ProducerBatch batch)
    cpdef given_up(self, ProducerBatch batch)
