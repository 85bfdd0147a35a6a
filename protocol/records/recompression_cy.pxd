# C types for recompression_cy.py, which stays ordinary Python.

cimport cython
from libc.stdint cimport int64_t, uint32_t

from .codec_memory cimport (
    HEAD_ROOM,
    LZ_OUT_IS_FULL,
    CodecMemory,
    note_message,
    read_content,
    release_memory,
    reserve_memory,
    write_content,
)
from .crc_cy cimport crc32_between as crc32_of
from .kernel_cy cimport DownConversion
from .message_bytes cimport (
    copy_bytes,
    int16_at,
    put_int32,
    put_uint32,
    put_v0_head,
    put_v1_head,
)

ctypedef CodecMemory *CodecMemoryPointer

cdef int GZIP, SNAPPY
cdef Py_ssize_t FIRST_RAW_BYTES, MOST_RAW_BYTES, KEPT_RAW_BYTES, LEAST_CONTENT_BYTES, LEAST_RECORD_BYTES, INT32_BYTES
cdef Py_ssize_t V0_KEY_AT, V1_KEY_AT, V0_CRC_FROM, CRC_AT
cdef Py_ssize_t ATTRIBUTES_AT, RECORDS_AT
cdef int CODEC_MASK


@cython.final
cdef class Recompression:
    cdef CodecMemory _memory
    cdef DownConversion _conversion
    cdef readonly int64_t stored_bytes, record_count, written_bytes
    cdef Py_ssize_t _begin, _end

    @cython.locals(data=cython.p_const_uchar, memory=CodecMemoryPointer, size_bytes=Py_ssize_t, encoded=cython.p_uchar)
    cpdef convert(self, const unsigned char[::1] batch, int to_magic, int64_t limit_bytes)
    @cython.locals(memory=CodecMemoryPointer, codec=int, count=int64_t, at=Py_ssize_t, stored=cython.p_const_uchar)
    cdef Py_ssize_t convert_unlocked(self, const unsigned char *data, Py_ssize_t position, Py_ssize_t size_bytes,
                                     int to_magic, int64_t limit_bytes) noexcept nogil
    @cython.locals(memory=CodecMemoryPointer)
    cdef void take(self, unsigned char *out, Py_ssize_t at) noexcept nogil
    @cython.locals(memory=CodecMemoryPointer)
    cdef void _shrink(self) noexcept nogil
    @cython.locals(raw_bytes=Py_ssize_t, content=Py_ssize_t, size=Py_ssize_t, is_v0=bint, crc=uint32_t,
                   start=Py_ssize_t, attributes=int, message=Py_ssize_t, offset=int64_t,
                   latest=int64_t)
    cdef Py_ssize_t _run(self, CodecMemory *memory, const unsigned char *data, Py_ssize_t size_bytes, int codec,
                         int64_t count, int64_t limit_bytes) noexcept nogil
    @cython.locals(key_at=Py_ssize_t, at=Py_ssize_t, size=Py_ssize_t, key_to=Py_ssize_t, value_to=Py_ssize_t,
                   value_bytes=Py_ssize_t)
    cdef Py_ssize_t _convert_records(self, CodecMemory *memory, Py_ssize_t content) noexcept nogil
