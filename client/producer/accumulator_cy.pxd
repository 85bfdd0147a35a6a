# C types for accumulator_cy.py, which stays ordinary Python.

cimport cython

from .appending_cy cimport Delivery, ReservedBytes
from .batch_cy cimport ProducerBatch
from .partition_queue_cy cimport PartitionQueue, TopicQueues

cdef double ANSWER_TIME_STEP
cdef object OPEN

cdef class Readiness:
    cdef public set nodes, leaderless_topics
    cdef public double check_again_at

cdef class Accumulator:
    cdef public dict topics, incomplete
    cdef public object new_sticky, estimator, limits, on_split
    cdef public ReservedBytes memory
    cdef public Py_ssize_t flushes
    cdef public object _random, _clock, _codec
    cdef public dict _waiting, _blocked_since, _answer_seconds
    cdef public Py_ssize_t _batch_size
    cdef public double last_begun_at, _linger, _availability_timeout
    cdef public bint _is_adaptive, _keeps_order_by_waiting, _is_transactional

    @cython.locals(queue=PartitionQueue, batch=ProducerBatch, is_sticky=bint, is_begun=bint, room_before=double,
                   delivery=Delivery)
    cpdef tuple append(self, TopicQueues queues, Py_ssize_t partition, long long timestamp, bytes key, bytes value,
                       headers, Py_ssize_t size_bound)
    cdef ProducerBatch _new_batch(self, PartitionQueue queue)
    cdef _enqueue(self, PartitionQueue queue, ProducerBatch batch)
    cdef _seal_open(self, PartitionQueue queue)
    @cython.locals(saved=Py_ssize_t)
    cdef _seal(self, PartitionQueue queue, ProducerBatch batch)
    @cython.locals(batch=ProducerBatch, queue=PartitionQueue, growth=double, partition=Py_ssize_t,
                   fits_open_batch=bint)
    cdef Py_ssize_t _sticky_partition(self, TopicQueues queues, Py_ssize_t size_bound) except -1
    cpdef node_answered(self, node, double seconds)
    cpdef node_blocked(self, node, double now)
    cpdef list nodes_left_out(self)
    cpdef node_took(self, node)
    @cython.locals(readiness=Readiness, hurry=bint, queue=PartitionQueue, head=ProducerBatch, due_at=double)
    cpdef Readiness ready(self, double now)
    cdef double _due_at(self, PartitionQueue queue, ProducerBatch head, bint hurry) except? -1
    @cython.locals(queue=PartitionQueue, batch=ProducerBatch, size=Py_ssize_t, is_backing_off=bint)
    cpdef list drain(self, node, double now, Py_ssize_t max_bytes, may_send)
    cpdef requeue(self, PartitionQueue queue, ProducerBatch batch, double retry_at)
    cdef bint _needs_split(self, ProducerBatch batch) except -1
    cpdef complete(self, PartitionQueue queue, ProducerBatch batch)
    cpdef PartitionQueue queue_of(self, ProducerBatch batch)
    @cython.locals(batch=ProducerBatch)
    cpdef list expired(self, double now, double delivery_timeout)

cdef bint _has_new_leader(PartitionQueue queue, ProducerBatch batch) except -1
