# C types for murmur2_cy.py, which stays ordinary Python.

cimport cython
from libc.stdint cimport uint32_t

cdef uint32_t MULTIPLIER, SEED, MASK

@cython.locals(hashed=uint32_t, word=uint32_t, position=Py_ssize_t, size=Py_ssize_t, shift=int)
cpdef uint32_t murmur2(const unsigned char[::1] key) except? 0
