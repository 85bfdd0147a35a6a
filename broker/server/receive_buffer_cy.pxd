# C types for receive_buffer_cy.py, which stays ordinary Python.

cimport cython

from ...protocol.records.message_bytes cimport int32_at
from .socket_calls cimport receive_bytes


cdef int _EAGAIN, _WOULD_BLOCK


@cython.final
cdef class ReceiveBuffer:
    cdef Py_ssize_t _frame_limit, _received
    cdef readonly Py_ssize_t consumed
    cdef bytearray _buffer
    cdef readonly object view
    cdef readonly const unsigned char[::1] octets

    cpdef bint is_empty(self)
    cpdef space(self)
    @cython.locals(count=Py_ssize_t)
    cpdef Py_ssize_t receive(self, int descriptor) except -2
    cpdef bint is_full(self)
    cpdef _free_space(self)
    cpdef received(self, Py_ssize_t count)

    @cython.locals(start=Py_ssize_t, end=Py_ssize_t, size_bytes=Py_ssize_t)
    cpdef Py_ssize_t frame_end(self) except -1
    cpdef consume(self, Py_ssize_t end)

    @cython.locals(start=Py_ssize_t, end=Py_ssize_t)
    cpdef next_frame(self)

    @cython.locals(pending=Py_ssize_t, capacity=Py_ssize_t)
    cpdef _make_room(self)
    cpdef _replace(self, Py_ssize_t capacity)
