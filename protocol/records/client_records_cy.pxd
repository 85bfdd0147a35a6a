# C types for client_records_cy.py; see there. Lengths are checked in the source, so that no access can be out of bounds.
cimport cython

from cpython.bytearray cimport PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.string cimport memcpy

from .crc_cy cimport crc32c_between as crc32c_of
from .message_bytes cimport batch_size_at, int16_at, int32_at, int64_at, uint32_at
from .varint cimport put_varint, varint_at, varint_size

cdef extern from "Python.h":
    void hide_from_collector "PyObject_GC_UnTrack"(object record)

cdef int TABLE_SIZE, INT32_LAST_SHIFT, INT64_LAST_SHIFT
cdef int HEADER_SIZE, CRC_AT, MAGIC_AT, ATTRIBUTES_AT, LOG_APPEND_TIME_FLAG, PLAIN_FLAGS
cdef list _VARINTS
cdef bytes _NO_HEADERS

@cython.locals(out=bytearray, size_bytes=cython.Py_ssize_t)
cpdef bytes encode_varint(long long value)

cdef bytes _varint(long long value)

cdef inline int resize(bytearray body, Py_ssize_t size_bytes) except -1:
    return PyByteArray_Resize(body, size_bytes)

cdef inline bytes bytes_between(const unsigned char *data, Py_ssize_t start, Py_ssize_t end):
    return PyBytes_FromStringAndSize(<const char *>data + start, end - start)

cdef inline Py_ssize_t put_bytes(unsigned char *out, Py_ssize_t position, bytes data) noexcept:
    if data is None:
        return position
    memcpy(out + position, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
    return position + PyBytes_GET_SIZE(data)

@cython.locals(
    tail=bytes,
    key_length=cython.Py_ssize_t,
    value_length=cython.Py_ssize_t,
    size=cython.Py_ssize_t,
    start=cython.Py_ssize_t,
    end=cython.Py_ssize_t,
    position=cython.Py_ssize_t,
    data=cython.p_uchar,
)
cpdef Py_ssize_t append_record(
    bytearray body, long long timestamp_delta, long long offset_delta, bytes key, bytes value, headers
) except -1

cdef bytes _encode_headers(headers)

@cython.locals(value=cython.longlong, after=cython.Py_ssize_t)
cpdef (long long, Py_ssize_t) read_number(
    const unsigned char *body, Py_ssize_t position, Py_ssize_t end, int last_shift
) except *

@cython.locals(
    records=list,
    data=cython.p_const_uchar,
    limit=cython.Py_ssize_t,
    position=cython.Py_ssize_t,
    end=cython.Py_ssize_t,
    size=cython.longlong,
    timestamp_delta=cython.longlong,
    offset_delta=cython.longlong,
    offset=cython.longlong,
)
cpdef list decode_records(
    const unsigned char[::1] body,
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
cdef tuple _decode_headers(const unsigned char *data, Py_ssize_t position, Py_ssize_t end, long long count)

@cython.locals(
    source=cython.p_const_uchar,
    end=cython.Py_ssize_t,
    size=cython.Py_ssize_t,
    attributes=int,
    count=int,
    last_offset=cython.longlong,
    is_append_time=bint,
)
cpdef tuple decode_plain_batch(
    const unsigned char[::1] data,
    Py_ssize_t position,
    bint checks_crc,
    long long from_offset,
    record_class,
    str topic,
    partition,
    create_time,
    log_append_time,
)
