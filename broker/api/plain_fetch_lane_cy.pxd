# C types for plain_fetch_lane_cy.py, which stays ordinary Python.

cimport cython
from libc.stdint cimport int32_t, int64_t

from ...protocol.plain_fetch_cy cimport FetchAnswer, ReceivedFetch
from ...protocol.records.kernel_cy cimport DownConversion
from ...protocol.records.message_bytes cimport int32_at
from ...storage.log.appendable_log_cy cimport AppendableLog
from ...storage.log.plain_reading_cy cimport PlainReader

cdef int _FIRST_VERSION_WITH_ZSTD, _FIRST_VERSION_FROM_FOLLOWERS, _LAST_VERSION_WITH_HARD_LIMIT
cdef int _FIRST_VERSION_UNCONVERTED, _FIRST_VERSION_WITH_STABLE_OFFSET
cdef int NOT_PLAIN, FOUND, _NEWEST_MAGIC, _LEGACY_MAGICS, _READ_COMMITTED, _BATCH_DONE, _AT_END, _MOST_MEASURED
cdef int64_t _OFFSET_AND_SIZE_BYTES, _SMALL_BYTES, _MOST_GROWTH, _ALL_OFFSETS
cdef double _LEAST_SHARE, _LEAST_LOST_SHARE


@cython.final
cdef class PlainFetchLane:
    cdef object _services, _partitions, _metrics, _errors, _quotas, _config, _pool
    cdef ReceivedFetch _request
    cdef FetchAnswer _answer
    cdef PlainReader _reader
    cdef DownConversion _conversion
    cdef readonly list found
    cdef readonly int64_t missing_bytes
    cdef list _stored, _at_once
    cdef int64_t _left_at_once_bytes
    cdef int _version, _to_magic, _measured_count
    cdef bint _reads_zstd, _converts

    @cython.locals(request=ReceivedFetch, began_ns=int64_t, parts=list)
    cpdef list answer(self, frame, Py_ssize_t position, int version, int32_t correlation_id, client, bint is_last=*)

    @cython.locals(request=ReceivedFetch, found=list, parts=list, most_bytes=int64_t, missing_bytes=int64_t,
                   at_least_one=bint, number=int, size=int64_t)
    cdef list _parts(self, bint is_last)

    @cython.locals(request=ReceivedFetch, log=AppendableLog, reader=PlainReader, epoch=int64_t, max_bytes=int64_t,
                   offset=int64_t, bound=int64_t, outcome=int, is_found=bint, end_offset=int64_t, size=int64_t)
    cdef int64_t _read(self, partition, int number, int64_t remaining_bytes, bint at_least_one) except? -1

    cdef int64_t _bound(self, AppendableLog log) except? -1
    cdef bint _has_aborted(self, log, int64_t first_offset, int64_t end_offset) except -1

    @cython.locals(to_magic=int)
    cdef bint _may_send(self, log, int magics) except -1

    cdef _part(self, int64_t offset, int64_t size)

    @cython.locals(reader=PlainReader)
    cdef _slice(self, int64_t offset)

    @cython.locals(reader=PlainReader, size=int64_t, conversion=DownConversion, converted_bytes=int64_t,
                   first_end=int64_t, promised=int64_t)
    cdef _converted(self, int64_t offset, int64_t counted_bytes)

    @cython.locals(reader=PlainReader, conversion=DownConversion, size=int64_t, filled=int64_t)
    cdef _converted_now(self, int64_t offset, int64_t promised)

    @cython.locals(size=int64_t, loses_little=bint, conversion=DownConversion, whole_bytes=int64_t, largest=int64_t)
    cdef int64_t _promised(self, log_slice, int64_t counted_bytes, int64_t first_end,
                           int64_t converted_bytes) except? -1

    @cython.locals(reader=PlainReader, size=int64_t)
    cdef bint _has_batch_at(self, int64_t position, int64_t end) except -1

    @cython.locals(request=ReceivedFetch, answer=FetchAnswer, is_committed=bint, pieces=list, last_topic=int,
                   topic=int, number=int, log=AppendableLog, stable=int64_t, size=int64_t)
    cdef list _encoded(self, list parts, int32_t correlation_id)

    @cython.locals(number=int, version=int)
    cdef int _count(self, list parts, client, int64_t began_ns) except -1

    @cython.locals(number=int)
    cdef int _charge(self, list parts, client, int64_t began_ns) except -1
