# C types for bulk_answer_cy.py, which stays ordinary Python. No method with `nogil` may touch a Python object.

cimport cython
from libc.stdint cimport int64_t

from ...protocol.records.message_bytes cimport copy_bytes
from ...protocol.records.recompression_cy cimport Recompression
from ...storage.log.file_reads cimport read_at
from .bulk_calls cimport put_padding, send_bytes, send_file, thread_cpu_ns, wait_writable
from .bulk_chunk_cy cimport BulkChunk

cdef int SENT, FULL, TURN, NEEDS_CODEC, FAILED, BROKEN, FILE_HAS_ENDED, CANCELLED
cdef int BYTES, FILE, CONVERSION
cdef int COLUMNS, KIND, SIZE, DESCRIPTOR, POSITION, STORED
cdef int CONVERTED, TEMPORARY, CPU
cdef int64_t SOCKET_IS_FULL, TURN_BYTES, FILE_BYTES, SMALL_FILE_BYTES, LEAST_ROOM_BYTES, FILE_IS_SHORTER, BEGIN_BYTES, BEGIN_FILE_BYTES
cdef int WAIT_MS, STOP_AT_END, STOP_OUT_IS_FULL, STOP_NEEDS_CODEC


@cython.final
cdef class BulkAnswer:
    cdef readonly int descriptor, row, row_count, error
    cdef readonly int64_t row_done, stored_at, sent_bytes
    cdef readonly bint is_cancelled
    cdef readonly object rows
    cdef BulkChunk _chunk
    cdef object _waiting
    cdef bytes _unsent
    cdef bint _has_begun, _is_out_full, _sends_little
    cdef int64_t _chunk_limit, _capacity, _ahead_bytes, _out_bytes, _padded, _at, _filled
    cdef int _trouble

    cpdef cancel(self)
    cpdef skip_row(self)
    @cython.locals(stop=int)
    cpdef int run(self, object memory, int patience_ms) except -1
    @cython.locals(table=cython.p_longlong, head=cython.p_const_uchar, source=cython.p_uchar, target=cython.p_uchar,
                   others=cython.p_longlong)
    cdef int _run_in(self, Recompression recompression, long long[::1] rows, const unsigned char[::1] heads, unsigned char[::1] stored,
                     unsigned char[::1] out, long long[::1] waiting, int patience_ms) except -1

    @cython.locals(must_send=bint, is_blocked=bint, is_full=bint, is_reading=bint, has_room=bint, only_begins=bint,
                   most_bytes=int64_t, turn_bytes=int64_t, base=int64_t, kind=int, sent=int64_t, left=int64_t,
                   size=int64_t, stop=int)
    cdef int _run(self, Recompression recompression, long long *table, const unsigned char *heads, unsigned char *stored, unsigned char *out,
                  long long *waiting, int patience_ms) noexcept nogil
    cdef int64_t _least_sent(self) noexcept nogil
    @cython.locals(sent=int64_t)
    cdef int64_t _send_output(self, unsigned char *out, bint has_more) noexcept nogil
    @cython.locals(position=int64_t, sent=int64_t)
    cdef int64_t _send_part_of_file(self, long long *table, int64_t base, int64_t size) noexcept nogil
    @cython.locals(error=int64_t, size=int64_t)
    cdef int _gather(self, long long *table, int64_t base, int64_t left, const unsigned char *heads,
                     unsigned char *out) noexcept nogil
    @cython.locals(waited_ms=int)
    cdef bint _wait(self, long long *waiting, int patience_ms) noexcept nogil
    cdef int _failed(self, int64_t error) noexcept nogil
    @cython.locals(began_ns=int64_t, stop=int, before=int64_t, written=int64_t, position=int64_t, is_whole=bint,
                   loaded=int64_t, most=int64_t)
    cdef int _convert(self, Recompression recompression, long long *table, int64_t base, int64_t left, unsigned char *stored,
                      unsigned char *out) noexcept nogil
