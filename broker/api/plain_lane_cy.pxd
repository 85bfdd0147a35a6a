# C types for plain_lane_cy.py, which stays ordinary Python.

cimport cython
from libc.stdint cimport int32_t, int64_t

from ...protocol.plain_produce_cy cimport ReceivedProduce, decode_plain, encode_plain
from ...protocol.records.message_bytes cimport int16_at, int32_at
from ...protocol.records.plain_batch_cy cimport check_plain_batch
from ...protocol.records.produced_cy cimport Produced, ProducedBatch
from ...storage.log.appendable_log_cy cimport AppendableLog
from ..server.receive_buffer_cy cimport ReceiveBuffer

cdef int _PRODUCE_KEY, _FIRST_FLEXIBLE_VERSION, _FIRST_ZSTD_VERSION, _CLIENT_ID_AT, MOST_ANSWERS, _LENGTH_BYTES


@cython.final
cdef class PlainLane:
    cdef object _clock, _metrics, _errors, _quotas, _refuse, _refuse_late
    cdef dict _partitions
    cdef int _first_version, _last_version, _version
    cdef ReceivedProduce _request
    cdef list _answers

    cpdef list answer(self, ReceiveBuffer buffer, client)

    cpdef answer_later(self, frame, client)

    @cython.locals(answers=list, end=Py_ssize_t, counted_version=int, counted=Py_ssize_t,
                   now_ms=int64_t)
    cdef int _answer_all(self, ReceiveBuffer buffer, memory, const unsigned char[::1] view, client) except -1

    cdef int _count(self, client, int version, Py_ssize_t request_count) except -1

    @cython.locals(data=cython.p_const_uchar, version=int, length=int, position=Py_ssize_t, records_at=Py_ssize_t,
                   correlation_id=int32_t, request=ReceivedProduce, batch=ProducedBatch, topic=bytes,
                   answer=bytes, partitions=dict, log=AppendableLog)
    cdef _answered(self, memory, const unsigned char[::1] view, Py_ssize_t start, Py_ssize_t end, client,
                   int64_t now_ms, bint waits)

    cdef _append(self, partition, AppendableLog log, Produced produced, int64_t now_ms)


cdef bytes _copied(const unsigned char *data, Py_ssize_t start, Py_ssize_t end)
