# C types for bulk_chunk_cy.py, which stays ordinary Python. No method with `nogil` may touch a Python object.

cimport cython
from libc.stdint cimport int64_t

from ...protocol.records.kernel_cy cimport DownConversion, survey_unchecked
from ...protocol.records.recompression_cy cimport Recompression
from ...storage.log.file_reads cimport read_at
from .bulk_calls cimport begin_conversion, convert_into, recompress_next

cdef int SENT, NEEDS_CODEC
cdef int CONVERTED, DESCRIPTOR, FIRST_END, FIRST_OFFSET, POSITION, STORED, TEMPORARY, TO_MAGIC
cdef int STOP_AT_END, STOP_OUT_IS_FULL, STOP_NEEDS_CODEC, CODEC_WORK


@cython.final
cdef class BulkChunk:
    cdef DownConversion conversion
    cdef bint is_open, is_loaded
    cdef int64_t limit_bytes, size_bytes
    cdef int stop

    @cython.locals(window=int64_t, error=int64_t, to_magic=int, size=Py_ssize_t, work=int)
    cdef int64_t load(self, long long *table, int64_t base, int64_t stored_at, unsigned char *stored) noexcept nogil
    @cython.locals(before=int64_t, size=int64_t)
    cdef int64_t fill(self, Recompression recompression, long long *table, int64_t base, unsigned char *stored,
                      unsigned char *out, int64_t filled, int64_t most, int64_t capacity) noexcept nogil
