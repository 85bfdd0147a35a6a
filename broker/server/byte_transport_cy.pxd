# C types for byte_transport_cy.py, which stays ordinary Python.

cimport cython

from .socket_calls cimport send_gathered

cdef int _EAGAIN


cdef class ByteTransport:
    cdef public object _socket
    cdef public bytearray _gathered
    cdef public int plain_descriptor
    cdef readonly int descriptor
    cdef public bint has_ended
    cdef readonly bint is_plain

    cpdef gather(self, data)

    @cython.locals(gathered=bytearray, size_bytes=Py_ssize_t, sent=Py_ssize_t)
    cpdef bint flush_now(self, int flags=*) except -1
