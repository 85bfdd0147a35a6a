# C types for lane_answers_cy.py, which stays ordinary Python.

cimport cython
from libc.stdint cimport int32_t, int64_t


@cython.final
cdef class LanePartition:
    cdef readonly object lane, fetched, partition, role
    cdef readonly bytes topic_id
    cdef public bint is_active

    cpdef appended(self, size_bytes)
    cpdef changed(self)


cpdef list empty_answer(int32_t correlation_id, int32_t session_id)

@cython.locals(each=LanePartition, topics=list, entries=list, topic_id=bytes, left_bytes=int64_t, is_first=bint,
               count=int)
cpdef list answer_with(list found, list active, int32_t correlation_id, int32_t session_id, int64_t max_bytes, metrics)

@cython.locals(most_bytes=int64_t)
cdef _read(LanePartition each, int64_t left_bytes, bint is_first)

@cython.locals(runs=bytes, length=bytes, state=bytes, data=bytes)
cdef list _entry(LanePartition each, records)

@cython.locals(parts=list, pieces=list, entries=list, entry=list)
cdef list _joined(bytes head, list topics)
