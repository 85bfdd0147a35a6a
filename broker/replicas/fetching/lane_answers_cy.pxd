# C types for lane_answers_cy.py, which stays ordinary Python.

cimport cython
from libc.stdint cimport int32_t, int64_t

from ....storage.log.appendable_log_cy cimport AppendableLog


@cython.final
cdef class LanePartition:
    cdef readonly object lane, fetched, partition, role
    cdef readonly bytes topic_id
    cdef public bint is_active

    cpdef appended(self, size_bytes)
    cpdef changed(self)


cpdef list empty_answer(int32_t correlation_id, int32_t session_id)

@cython.locals(each=LanePartition, log=AppendableLog, parts=list, pieces=list, topics=list, entries=list,
               entry=list, topic_id=bytes, remaining_bytes=int64_t, most_bytes=int64_t, is_first=bint, count=int)
cpdef list answer_with(list found, list active, int32_t correlation_id, int32_t session_id, int64_t max_bytes, metrics)
