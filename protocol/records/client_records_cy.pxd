# C types for client_records_cy.py; see there. Lengths are checked in the source, so that no access can be out of bounds.
cimport cython

from .varint cimport put_varint, varint_at

cdef int TABLE_SIZE, INT32_LAST_SHIFT, INT64_LAST_SHIFT
cdef list _VARINTS
cdef bytes _ATTRIBUTES
cdef bytes _NULL
cdef bytes _NO_HEADERS

@cython.locals(out=bytearray, size_bytes=cython.Py_ssize_t)
cpdef bytes encode_varint(long long value)

cdef bytes _varint(long long value)

@cython.locals(when=bytes, place=bytes, key_size=bytes, value_size=bytes, tail=bytes, size=cython.longlong)
cpdef bytes encode_record(long long timestamp_delta, long long offset_delta, bytes key, bytes value, headers)

cdef bytes _encode_headers(headers)

@cython.locals(value=cython.longlong, after=cython.Py_ssize_t)
cpdef (long long, Py_ssize_t) read_number(bytes body, Py_ssize_t position, Py_ssize_t end, int last_shift) except *

@cython.locals(
    records=list,
    limit=cython.Py_ssize_t,
    position=cython.Py_ssize_t,
    end=cython.Py_ssize_t,
    size=cython.longlong,
    timestamp_delta=cython.longlong,
    offset_delta=cython.longlong,
    offset=cython.longlong,
)
cpdef list decode_records(
    bytes body,
    long long count,
    long long base_offset,
    long long base_timestamp,
    append_time,
    long long from_offset,
    record_class,
    str topic,
    partition,
    timestamp_type,
    leader_epoch,
)

@cython.locals(size=cython.longlong)
cdef tuple _decode_headers(bytes body, Py_ssize_t position, Py_ssize_t end, long long count)
