# C types for partition_queue_cy.py, which stays ordinary Python.

from .batch_cy cimport ProducerBatch
from .sequences_cy cimport PartitionSequence


cdef class PartitionQueue:
    cdef public object topic, leader, batches
    cdef public Py_ssize_t partition
    cdef public ProducerBatch open_batch
    cdef public PartitionSequence sequence
    cdef public list under_way


cdef class TopicQueues:
    cdef public object topic, sticky
    cdef public list queues, available
