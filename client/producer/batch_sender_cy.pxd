# C types for batch_sender_cy.py, which stays ordinary Python.

cimport cython

from ...protocol.plain_produce_cy cimport PlainProduce, PlainProduceResponse, decode_plain_answer, plain_pieces
from .accumulator_cy cimport Accumulator, Readiness
from .batch_cy cimport ProducerBatch
from .partition_queue_cy cimport PartitionQueue
from .sequences_cy cimport PartitionSequence

cdef object PRODUCE, IN_FLIGHT

cdef class BatchSender:
    cdef public object _cluster, _metadata, _config, _metrics, _sent_batches, _sent_records, _transactions, _news
    cdef public Accumulator _accumulator
    cdef public bint _is_idempotent, _watches_availability
    cdef public Py_ssize_t _max_in_flight, _max_request_size
    cdef public int _acks, _timeout_ms
    cdef public double _delivery_timeout
    cdef public dict _in_flight_counts
    cdef public tuple _producer
    cdef list _unflushed

    cpdef wake(self)
    cpdef bint has_room(self, node) except -1
    @cython.locals(accumulator=Accumulator, readiness=Readiness, has_sent=bint, next_check=double,
                   oldest=ProducerBatch, late=list)
    cpdef double _step(self, double now) except? -1
    @cython.locals(drained=list, queue=PartitionQueue, batch=ProducerBatch)
    cdef bint _send_to(self, node, double now) except -1
    cdef bint _start(self, node, connection, list drained, double now) except -1
    @cython.locals(is_legacy=bint, before=ProducerBatch, sequence=PartitionSequence, is_of_this_producer=bint,
                   identity=tuple)
    cpdef bint _may_send(self, PartitionQueue queue, ProducerBatch batch) except -1
    cdef tuple _identity(self)
    @cython.locals(queue=PartitionQueue, batch=ProducerBatch, is_legacy=bint, version=int, request=PlainProduce,
                   pieces=list)
    cdef _submit(self, node, connection, list drained, double now)
    @cython.locals(queue=PartitionQueue, batch=ProducerBatch, is_readable=bint)
    cdef _declared(self, list drained, int version, bint is_legacy)
    @cython.locals(answer=PlainProduceResponse, now=double)
    cpdef _plain_arrived(self, node, double sent_at, PartitionQueue queue, ProducerBatch batch, pending)
    @cython.locals(queue=PartitionQueue, batch=ProducerBatch)
    cdef _settle_all(self, node, list drained, dict answers, missing)
    cdef _settle(self, PartitionQueue queue, ProducerBatch batch, answer)
    cdef _deliver(self, PartitionQueue queue, ProducerBatch batch, long long base_offset, long long append_time,
                  double now)
