# Zig-zag integers for the compiled modules: the same functions as in varint.py, which has their docstrings.

from libc.stdint cimport int64_t, uint32_t, uint64_t

cdef inline int varint_size(int64_t value) noexcept nogil:
    cdef uint64_t unsigned = (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)
    cdef int size_bytes = 1
    while unsigned > 0x7F:
        unsigned >>= 7
        size_bytes += 1
    return size_bytes

cdef inline Py_ssize_t put_varint(unsigned char *out, Py_ssize_t position, int64_t value) noexcept nogil:
    cdef uint64_t unsigned = (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)
    while unsigned > 0x7F:
        out[position] = <unsigned char>(unsigned | 0x80)
        position += 1
        unsigned >>= 7
    out[position] = <unsigned char>unsigned
    return position + 1

cdef inline (int64_t, Py_ssize_t) varint_at(const unsigned char *data, Py_ssize_t position, Py_ssize_t end,
                                            int last_shift) noexcept nogil:
    cdef uint64_t unsigned = 0
    cdef uint64_t byte
    cdef int64_t value = 0
    cdef Py_ssize_t too_long = -1, incomplete = -2
    cdef int shift = 0
    if position < 0:
        return value, incomplete
    while shift <= last_shift:
        if position >= end:
            return value, incomplete
        byte = data[position]
        position += 1
        unsigned |= (byte & 0x7F) << shift
        if byte < 0x80:
            if last_shift == 28:
                unsigned = <uint32_t>unsigned
            value = <int64_t>((unsigned >> 1) ^ (0 - (unsigned & 1)))
            return value, position
        shift += 7
    return value, too_long
