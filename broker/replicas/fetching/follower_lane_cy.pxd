# C types for follower_lane_cy.py, which stays ordinary Python.

cimport cython
from libc.stdint cimport int32_t, int64_t

from ....protocol.records.message_bytes cimport int32_at, int64_at
from ....storage.log.appendable_log_cy cimport AppendableLog
from .lane_answers_cy cimport LanePartition, answer_with, empty_answer

cdef Py_ssize_t _HEAD_AT, _TOPIC_BYTES, _PARTITION_BYTES
cdef int _MOST_NAMED
cdef int32_t _MAX_EPOCH


@cython.final
cdef class FollowerLane:
    cdef object _session, _limits, _replica_id, _client, _purgatory, _quotas, _metrics, _now_s, _pending
    cdef double _max_wait_s, _look_at
    cdef bytes _before_epoch, _after_topics
    cdef dict _partitions
    cdef list _active, _named, _named_at
    cdef int32_t _correlation_id
    cdef bint _is_woken, _is_ended
    cdef public object timer

    cpdef looked(self)

    @cython.locals(now_s=double)
    cpdef answer(self, frame)

    @cython.locals(data=cython.p_const_uchar, before=bytes, after=bytes, epoch_at=Py_ssize_t, end=Py_ssize_t,
                   at=Py_ssize_t, topics_left=int, partitions_left=int, topic_id=bytes)
    cdef bint _finds(self, frame, const unsigned char[::1] view) except -1

    @cython.locals(data=cython.p_const_uchar, each=LanePartition, log=AppendableLog)
    cdef bint _is_usual(self, const unsigned char[::1] view, Py_ssize_t at, bytes topic_id) except -1

    @cython.locals(data=cython.p_const_uchar, each=LanePartition, at=Py_ssize_t, number=Py_ssize_t)
    cdef int _take_positions(self, const unsigned char[::1] view) except -1

    @cython.locals(each=LanePartition)
    cpdef renew(self, bytes topic_id, index)

    cpdef note_append(self, LanePartition each)

    cpdef try_again(self, bint is_last)

    @cython.locals(each=LanePartition, found=list, kept=list, moved=list, has_records=bint, lacks_records=bint,
                   end_offset=int64_t, log=AppendableLog)
    cdef _parts(self, bint is_last)

    @cython.locals(each=LanePartition)
    cpdef end(self)
