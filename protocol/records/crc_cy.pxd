# C types for crc_cy.py, which stays ordinary Python. Callers of the functions with `start` and `end` check the bounds.

cimport cython
from libc.stdint cimport uint32_t

cdef extern from "crc_simd.h" nogil:
    void crc_prepare()
    uint32_t crc32_of(const unsigned char *data, Py_ssize_t start, Py_ssize_t end)
    uint32_t crc32c_of(const unsigned char *data, Py_ssize_t start, Py_ssize_t end)
    uint32_t crc32_castagnoli(uint32_t crc, const unsigned char *data, size_t size_bytes)

@cython.locals(source=cython.p_const_uchar)
cpdef uint32_t crc32(const unsigned char[::1] data) except? 0
@cython.locals(source=cython.p_const_uchar)
cpdef uint32_t crc32c(const unsigned char[::1] data, uint32_t crc=*) except? 0

cdef uint32_t crc32_between(const unsigned char *data, Py_ssize_t start, Py_ssize_t end) noexcept nogil
cdef uint32_t crc32c_between(const unsigned char *data, Py_ssize_t start, Py_ssize_t end) noexcept nogil
