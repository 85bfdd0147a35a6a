# C types for answering_cy.py, which stays ordinary Python.

cimport cython

from .byte_transport_cy cimport ByteTransport
from .receive_buffer_cy cimport ReceiveBuffer

cdef int _HANGUP, _WOULD_BLOCK


@cython.final
cdef class Answering:
    cdef ByteTransport _transport
    cdef object _responder, _client, _sleep, _times, _clock, _pending, _frame, _in_hand, _large, _sending
    cdef ReceiveBuffer _buffer
    cdef bint _waits_for_all, _is_working, _may_have_input, _has_hung_up, _is_at_end, _is_draining
    cdef readonly object last_active

    cpdef work(self)
    cpdef on_ready(self, int events)
    cpdef on_complete(self)
    cpdef note_sent(self)
    cpdef take_in_hand(self)
    cpdef on_sending_stopped(self)

    cdef bint _has_present(self) except -1
    cdef _check_client_is_here(self)
    cdef bint _has_rest(self) except -1

    @cython.locals(count=Py_ssize_t)
    cdef _read_and_answer(self)

    @cython.locals(turn_end=double, transport=ByteTransport)
    cdef _answer_received(self)

    @cython.locals(answers=list)
    cdef _answer_plain(self, lane)
    cdef _check_session(self, frame, expires_at)
    cdef _next_frame(self)
    cdef _deliver(self, outcome)
    cdef bint _send_now(self, answer) except -1
    cdef bint _begin_large(self, answer) except -1
    cdef bint _is_blocked(self) except -1
    cdef _queue(self, outcome, frame)
    cdef _send_completed(self)
