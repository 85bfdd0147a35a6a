# The calls of relay_cy in C: the same functions as in relay_calls.py, which has their docstrings.

from libc.errno cimport EINTR, errno
from libc.stdint cimport int64_t

cdef extern from "<poll.h>" nogil:
    struct pollfd:
        int fd
        short events
        short revents
    int POLLIN
    int POLLOUT
    int poll(pollfd *polled, unsigned long count, int timeout_ms)

cdef extern from "<time.h>" nogil:
    struct timespec:
        long tv_sec
        long tv_nsec
    int CLOCK_MONOTONIC
    int clock_gettime(int clock, timespec *now)

cdef extern from *:
    """
    #include <errno.h>
    #include <unistd.h>
    #ifdef __linux__
    #include <sys/syscall.h>
    /* fcntl.h declares splice only with _GNU_SOURCE, which must precede all headers. */
    static inline long gregor_splice(int source, int target, size_t size_bytes, unsigned int flags) {
        return syscall(SYS_splice, source, (void *)0, target, (void *)0, size_bytes, flags);
    }
    #else
    static inline long gregor_splice(int source, int target, size_t size_bytes, unsigned int flags) {
        errno = ENOSYS;
        return -1;
    }
    #endif
    """
    long gregor_splice(int source, int target, size_t size_bytes, unsigned int flags) nogil

cdef enum:
    SPLICE_F_MOVE = 1
    SPLICE_F_NONBLOCK = 2
    SPLICE_F_MORE = 4

cdef inline int64_t move(int source, int target, int64_t size_bytes, bint has_more) noexcept nogil:
    cdef long count
    cdef unsigned int flags = SPLICE_F_MOVE | SPLICE_F_NONBLOCK | (SPLICE_F_MORE if has_more else 0)
    while True:
        count = gregor_splice(source, target, <size_t>size_bytes, flags)
        if count >= 0:
            return count
        if errno != EINTR:
            return -errno

cdef inline bint wait_alone(int descriptor, bint is_output, int first_other, int second_other,
                            int timeout_ms) noexcept nogil:
    # poll(2) leaves negative descriptors out.
    cdef pollfd polled[3]
    polled[0].fd, polled[1].fd, polled[2].fd = descriptor, first_other, second_other
    polled[0].events = <short>(POLLOUT if is_output else POLLIN)
    polled[1].events = polled[2].events = <short>POLLIN
    polled[0].revents = polled[1].revents = polled[2].revents = 0
    return poll(polled, 3, timeout_ms) == 1 and polled[0].revents != 0

cdef inline int64_t monotonic_ns() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return <int64_t>now.tv_sec * 1000000000 + now.tv_nsec
