# C types for batch_cy.py, which stays ordinary Python.

cimport cython

from ...protocol.records.crc_cy cimport crc32c_between as crc32c_of
from ...protocol.records.message_bytes cimport put_int16, put_int32, put_int64, put_uint32, put_v2_head
from .appending_cy cimport OpenBatch

cdef object OPEN, SEALED, IN_FLIGHT, DELIVERED, FAILED, SPLIT
cdef Py_ssize_t BATCH_HEADER_SIZE, CRC_AT, ATTRIBUTES_AT, PRODUCER_ID_AT, PRODUCER_EPOCH_AT, BASE_SEQUENCE_AT, LENGTH_FROM


cdef class ProducerBatch(OpenBatch):
    cdef object _finished
    cdef public object topic, codec, payload, state, parts, sent_to, error, record_errors
    cdef public Py_ssize_t partition, size_limit, attempts, sent_bytes
    cdef public double created_at, retry_at, finished_at
    cdef public bint crc_is_due, is_raw, keeps_producer
    cdef public int magic, producer_epoch, base_sequence
    cdef public long long producer_id, acknowledged_base_offset, acknowledged_append_time

    @cython.locals(batch=bytearray, attributes=int)
    cpdef seal(self, estimator, bint is_transactional=*)
    @cython.locals(batch=bytearray, data=cython.p_uchar)
    cpdef stamp(self, long long producer_id, int producer_epoch, int base_sequence)
    @cython.locals(batch=bytearray, data=cython.p_uchar)
    cpdef sent(self, node=*)
    cpdef back_to_queue(self, double retry_at)
    cpdef delivered(self, long long base_offset, long long append_time, double now)
    cpdef failed(self, error, record_errors=*)
    cdef _finish(self, state, double now)
    cdef _wake(self)
    cpdef _move_to(self, state)
