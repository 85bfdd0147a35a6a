# C types for request_header_cy.py, which stays ordinary Python.

cimport cython
from libc.stdint cimport int16_t, int32_t

from ...protocol.records.message_bytes cimport int16_at, int32_at

cdef Py_ssize_t _FIXED_SIZE


@cython.final
@cython.freelist(4)
cdef class Header:
    cdef readonly int16_t api_key, api_version
    cdef readonly int32_t correlation_id
    cdef readonly str client_id
    cdef readonly Py_ssize_t end


cpdef Header parse_header(frame, known_bytes=*, known_id=*)

@cython.locals(data=cython.p_const_uchar, length=Py_ssize_t, end=Py_ssize_t, found=bytes)
cdef Header _parsed(const unsigned char[::1] frame, known_bytes, known_id)
