# The calls of the compiled connection in C: the same functions as in socket_calls.py, which has their docstrings.

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE
from libc.errno cimport EINTR, errno

cdef extern from "<sys/types.h>" nogil:
    ctypedef long ssize_t

cdef extern from "<sys/socket.h>" nogil:
    int MSG_DONTWAIT
    int MSG_NOSIGNAL
    ssize_t recv(int descriptor, void *buffer, size_t size_bytes, int flags)
    ssize_t send(int descriptor, const void *buffer, size_t size_bytes, int flags)

cdef inline Py_ssize_t receive_bytes(int descriptor, bytearray buffer, Py_ssize_t start) noexcept:
    cdef ssize_t count
    cdef char *memory = PyByteArray_AS_STRING(buffer) + start
    cdef size_t size_bytes = <size_t>(PyByteArray_GET_SIZE(buffer) - start)
    while True:
        count = recv(descriptor, memory, size_bytes, MSG_DONTWAIT)
        if count >= 0:
            return count
        if errno != EINTR:
            return -errno

cdef inline Py_ssize_t send_gathered(int descriptor, bytearray data, int flags) noexcept:
    cdef ssize_t count
    while True:
        count = send(descriptor, PyByteArray_AS_STRING(data), <size_t>PyByteArray_GET_SIZE(data),
                     flags | MSG_DONTWAIT | MSG_NOSIGNAL)
        if count >= 0:
            return count
        if errno != EINTR:
            return -errno
