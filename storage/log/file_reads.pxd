# The function of file_reads.py in C, for modules that cimport it.

from libc.errno cimport EINTR, errno
from libc.stdint cimport int64_t

cdef extern from "<sys/types.h>" nogil:
    ctypedef long off_t
    ctypedef long ssize_t

cdef extern from "<unistd.h>" nogil:
    ssize_t pread(int descriptor, void *buffer, size_t size_bytes, off_t position)

cdef inline int64_t read_at(int descriptor, unsigned char *buffer, int64_t start, int64_t size_bytes,
                            int64_t position) noexcept nogil:
    cdef int64_t read = 0
    cdef ssize_t count
    while read < size_bytes:
        count = pread(descriptor, buffer + start + read, <size_t>(size_bytes - read), <off_t>(position + read))
        if count == 0:
            return -1000000
        if count > 0:
            read += count
        elif errno != EINTR:
            return -errno
    return 0
