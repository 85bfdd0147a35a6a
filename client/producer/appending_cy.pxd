# C types for appending_cy.py, which stays ordinary Python.

cimport cython

from ...protocol.records.client_records_cy cimport append_record

cdef extern from "Python.h":
    void hide_from_collector "PyObject_GC_UnTrack"(object delivery)


cdef Py_ssize_t MAX_RECORD_OVERHEAD
cdef Py_ssize_t MAX_LENGTH_BYTES
cdef Py_ssize_t BATCH_HEADER_SIZE

@cython.locals(size=Py_ssize_t)
cpdef Py_ssize_t record_size_bound(key, value, headers) except -1

@cython.locals(size=Py_ssize_t)
cdef Py_ssize_t _headers_size_bound(headers) except -1


cdef class ReservedBytes:
    cdef public long long capacity_bytes, used_bytes
    cdef readonly object waiting

    cpdef bint try_reserve(self, long long size_bytes)
    cpdef release(self, long long size_bytes)


cdef class Delivery:
    cdef object _batch
    cdef Py_ssize_t _index
    cdef readonly long long timestamp

    cpdef _whereabouts(self)


cdef class OpenBatch:
    cdef public bytearray body
    cdef public double room, growth_factor
    cdef public long long base_timestamp, max_timestamp
    cdef public Py_ssize_t record_count, reserved_bytes

    @cython.locals(size=Py_ssize_t, count=Py_ssize_t, base_timestamp=cython.longlong)
    cpdef Delivery append(self, long long timestamp, bytes key, bytes value, headers, Py_ssize_t reserved_bytes=*)


@cython.locals(batch=OpenBatch, index=Py_ssize_t, room=double)
cpdef append_to_open(
    queues, ReservedBytes memory, Py_ssize_t partition, long long timestamp, bytes key, bytes value, headers, Py_ssize_t size_bound
)
