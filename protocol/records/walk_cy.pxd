# C types for walk_cy.py; see there.
cimport cython

from .varint cimport varint_at

cdef int _LENGTH, _ATTRIBUTES, _TIMESTAMP, _OFFSET, _KEY, _VALUE, _HEADER_COUNT, _HEADER_KEY, _HEADER_VALUE, _DONE
cdef long long _INT64_MAX
cdef Py_ssize_t _INCOMPLETE


@cython.final
cdef class RecordWalk:
    cdef public long long index, max_timestamp, index_of_max, null_keys
    cdef public bint is_sequential
    cdef public list bad_timestamps, bad_keys
    cdef long long records_left, base_timestamp, earliest, latest
    cdef bint keys_required
    cdef int field
    cdef long long to_skip, left_in_record, headers_left

    cpdef bint is_finished(self)

    @cython.locals(
        position=cython.Py_ssize_t,
        end=cython.Py_ssize_t,
        cursor=cython.Py_ssize_t,
        step=cython.Py_ssize_t,
        numbers=cython.p_const_uchar,
        value=cython.longlong,
    )
    @cython.boundscheck(False)
    @cython.wraparound(False)
    cpdef Py_ssize_t feed(self, const unsigned char[::1] data) except -1

    cdef int _accept(self, long long value, Py_ssize_t size) except -1

    cdef int _accept_inside(self, long long value) except -1

    @cython.locals(timestamp=cython.longlong)
    cdef int _note_timestamp(self, long long delta) except -1

    cdef int _note_bad_timestamp(self, long long timestamp) except -1

    cdef int _take(self, long long size) except -1

    cdef int _skip(self, long long size) except -1

    cdef int _next_header(self) except -1
