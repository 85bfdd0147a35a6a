# C types for plain_fetch_cy.py, which stays ordinary Python.

cimport cython
from libc.stdint cimport int32_t, int64_t

from .records.message_bytes cimport int16_at, int32_at, int64_at, put_int16, put_int32, put_int64

cdef int FIRST_VERSION, LAST_VERSION, MOST_PARTITIONS
cdef int _WITH_THROTTLE_TIME, _WITH_MAX_BYTES, _WITH_ISOLATION, _WITH_LOG_START, _WITH_SESSIONS, _WITH_LEADER_EPOCH
cdef int _WITH_RACK, _MOST_TOPICS, _LONGEST_NAME, _COLUMNS, _TOPIC, _PARTITION, _LEADER_EPOCH, _OFFSET, _MAX_BYTES
cdef int _NO_LEADER_EPOCH, _NO_SESSION, _FINAL_EPOCH, _NO_MAX_BYTES


@cython.final
cdef class ReceivedFetch:
    cdef long long[::1] _rows
    cdef readonly list topics
    cdef readonly int count, isolation_level
    cdef readonly int32_t replica_id, max_wait_ms, min_bytes, max_bytes
    cdef readonly bint has_rack

    cpdef int topic_number(self, int number) except -1
    @cython.locals(count=int, number=int)
    cpdef int partition_count(self, int topic) except -1
    cpdef int64_t partition(self, int number) except? -1
    cpdef int64_t leader_epoch(self, int number) except? -1
    cpdef int64_t offset(self, int number) except? -1
    cpdef int64_t most_bytes(self, int number) except? -1
    cpdef bint decode(self, const unsigned char[::1] frame, Py_ssize_t position, int version) except -1

    @cython.locals(data=cython.p_const_uchar, end=Py_ssize_t, topics_left=int64_t, length=int)
    cdef bint _decode(self, const unsigned char[::1] frame, Py_ssize_t position, int version,
                      long long[::1] rows) except -1

    @cython.locals(name_at=Py_ssize_t, length=int, name=bytes, left=int64_t, item_bytes=int64_t, first=int, topic=int,
                   base=Py_ssize_t, partition=int32_t, other=int)
    cdef Py_ssize_t _decode_topic(self, const unsigned char *data, Py_ssize_t position, Py_ssize_t end, int version,
                                  long long[::1] rows) except? -1


@cython.final
cdef class FetchAnswer:
    cdef unsigned char[::1] _out
    cdef int _version
    cdef Py_ssize_t _at, _taken

    @cython.locals(out=cython.p_uchar, position=Py_ssize_t)
    cpdef begin(self, int version, int32_t correlation_id, int topic_count)

    @cython.locals(out=cython.p_uchar, position=Py_ssize_t, byte=cython.uchar)
    cpdef add_topic(self, bytes name, int partition_count)

    @cython.locals(out=cython.p_uchar, version=int, position=Py_ssize_t)
    cpdef add_partition(self, int32_t partition, int64_t high_watermark, int64_t last_stable_offset,
                        int64_t log_start_offset, bint is_committed, int64_t records_bytes)

    @cython.locals(begin=Py_ssize_t)
    cpdef bytes take(self)
