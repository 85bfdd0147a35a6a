# The calls of bulk_answer_cy and bulk_chunk_cy in C: the same functions as in bulk_calls.py, which has their docstrings.

from libc.errno cimport EINTR, errno
from libc.stdint cimport int64_t

from ...protocol.records.kernel_cy cimport DownConversion
from ...protocol.records.message_bytes cimport batch_size_at
from ...protocol.records.recompression_cy cimport Recompression

cdef enum:
    # As in protocol/records/padding.py.
    FAKE_BATCH_BYTES = 131072
    FAKE_BATCH_HEAD_BYTES = 12
    LEAST_FAKE_LENGTH = 61
    # As in protocol/records/compression.py.
    DEFAULT_LIMIT_BYTES = 67108864

cdef extern from "<sys/types.h>" nogil:
    ctypedef long off_t
    ctypedef long ssize_t

cdef extern from "<sys/socket.h>" nogil:
    int MSG_MORE
    int MSG_NOSIGNAL
    int MSG_DONTWAIT
    ssize_t send(int descriptor, const void *buffer, size_t size_bytes, int flags)

cdef extern from "<sys/sendfile.h>" nogil:
    ssize_t sendfile(int descriptor, int file, off_t *position, size_t size_bytes)

cdef extern from "<poll.h>" nogil:
    struct pollfd:
        int fd
        short events
        short revents
    int POLLOUT
    int poll(pollfd *polled, unsigned long count, int timeout_ms)

cdef extern from "<string.h>" nogil:
    void *memset(void *buffer, int value, size_t size_bytes)

cdef extern from "<time.h>" nogil:
    struct timespec:
        long tv_sec
        long tv_nsec
    int CLOCK_THREAD_CPUTIME_ID
    int clock_gettime(int clock, timespec *now)

cdef inline int64_t send_bytes(int descriptor, const unsigned char *buffer, int64_t start, int64_t end,
                               int has_more) noexcept nogil:
    cdef ssize_t count
    cdef int flags = MSG_NOSIGNAL | MSG_DONTWAIT | (MSG_MORE if has_more else 0)
    while True:
        count = send(descriptor, buffer + start, <size_t>(end - start), flags)
        if count >= 0:
            return count
        if errno != EINTR:
            return -errno

cdef inline int64_t send_file(int descriptor, int file, int64_t position, int64_t size_bytes) noexcept nogil:
    cdef off_t at = <off_t>position
    cdef ssize_t count
    while True:
        count = sendfile(descriptor, file, &at, <size_t>size_bytes)
        if count > 0:
            return count
        if count == 0:
            return -1000000
        if errno != EINTR:
            return -errno

cdef inline int wait_writable(int descriptor, int timeout_ms) noexcept nogil:
    cdef pollfd polled
    polled.fd = descriptor
    polled.events = <short>POLLOUT
    polled.revents = 0
    return poll(&polled, 1, timeout_ms) > 0

cdef inline int64_t thread_cpu_ns() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now)
    return <int64_t>now.tv_sec * 1000000000 + now.tv_nsec

cdef inline int64_t convert_into(DownConversion conversion, const unsigned char *stored, int64_t stored_bytes,
                                 unsigned char *out, int64_t filled, int64_t capacity) noexcept nogil:
    return conversion.fill_unchecked(stored, stored_bytes, out, filled, capacity)

cdef inline int64_t recompress_next(Recompression recompression, DownConversion conversion,
                                    const unsigned char *stored, int64_t stored_bytes) noexcept nogil:
    cdef int64_t at = conversion.position
    cdef Py_ssize_t size = batch_size_at(stored, at, stored_bytes)
    if size <= 0 or stored[at + 16] != 2:
        return 0
    return recompression.convert_unlocked(stored, at, size, conversion.to_magic, DEFAULT_LIMIT_BYTES)

cdef inline void begin_conversion(DownConversion conversion, int to_magic, int64_t first_offset) noexcept nogil:
    conversion.begin_unlocked(to_magic, first_offset, 0)

cdef inline int64_t put_padding(unsigned char *out, int64_t start, int64_t end, int64_t padded,
                                int64_t left) noexcept nogil:
    cdef int64_t at = start
    cdef int64_t within, length, size
    if end > start + left:
        end = start + left
    while at < end:
        within = (padded + at - start) % FAKE_BATCH_BYTES
        if within < 8:
            out[at] = 0xFF
            size = 1
        elif within < FAKE_BATCH_HEAD_BYTES:
            length = left - (at - start) + within + 1
            if length < LEAST_FAKE_LENGTH:
                length = LEAST_FAKE_LENGTH
            out[at] = <unsigned char>(length >> (8 * (FAKE_BATCH_HEAD_BYTES - 1 - within)))
            size = 1
        else:
            size = FAKE_BATCH_BYTES - within
            if size > end - at:
                size = end - at
            memset(out + at, 0, <size_t>size)
        at += size
    return at - start
