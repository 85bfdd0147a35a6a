"""The part of a connection that never waits: it reads frames, has them answered and sends the answers, in order.

It runs in the task that serves all sockets (`readiness.py`), in a task that completes a pending answer, and in the
connection's own task; in one of them at a time, as it does not wait. What it cannot do without a wait it leaves to the
connection's own task, as a `Need`.

This is ordinary Python that is also compiled: ``answering_cy.pxd`` has the C types.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Coroutine
from contextlib import suppress
from time import perf_counter
from typing import TYPE_CHECKING, Any

import trio

from ...protocol.apis import ApiKey
from .bulk_sending import close
from .byte_transport_cy import GATHERED_BYTES
from .client_connection import ClientConnection, ClientGoneError, UnanswerableError
from .need import Need
from .parts import BUFFERS, Answer, FileSlice, Sink, total_size
from .pending import Pending, completed
from .readiness import HANGUP
from .receive_buffer_cy import LENGTH, WOULD_BLOCK
from .transport import COPIED_BYTES

if TYPE_CHECKING:
    from .bulk_sending import BulkSending, LargeAnswers
    from .connection_views import PlainLane, Responder, Transport
    from .outcome import Outcome
    from .receive_buffer_cy import ReceiveBuffer
    from .request_times import ConnectionTimes
    from .sleeping import Sleep


TURN_S = 0.005
"""The time for which one connection may be served before other connections and tasks get their turn."""
MOST_PENDING = 64
"""Most pending answers of a connection; with more it serves no further requests."""
LOGIN_KEYS = tuple(key.to_bytes(2, "big") for key in (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE))
"""The first bytes of the requests that an expired session may send."""
PRODUCE = ApiKey.PRODUCE
# An attribute of the module takes less time than a member of an enum.
INPUT, TURN, ANSWER, TASK = Need.INPUT, Need.TURN, Need.ANSWER, Need.TASK
OUTPUT, QUOTA, END = Need.OUTPUT, Need.QUOTA, Need.END
_HANGUP = HANGUP
_WOULD_BLOCK = WOULD_BLOCK


class Answering:
    """The frames of one client, its answers that are not sent yet, and the next condition to continue."""

    def __init__(
        self,
        transport: Transport,
        responder: Responder,
        client: ClientConnection,
        buffer: ReceiveBuffer,
        sleep: Sleep,
        times: ConnectionTimes | None,
        large: LargeAnswers | None,
    ) -> None:
        """Take the connection's parts; its task sleeps in ``sleep`` while it has no work; no ``large``: no threads."""
        self._transport = transport
        self._responder = responder
        self._client = client
        self._buffer = buffer
        self._sleep = sleep
        self._times = times
        self._large = large
        self._clock = trio.lowlevel.current_clock()
        self._pending: deque[Pending[Any]] = deque()
        """Answers that are not sent yet, in order."""
        self._waits_for_all = False
        """Whether the next request is not handled before all pending answers are sent."""
        self._frame: memoryview | None = None
        """A request that is not handled before the pending answers are sent."""
        self._in_hand: Answer | BulkSending | Coroutine[Any, Any, Answer | None] | None = None
        """The present answer, or the coroutine for it, if the connection's own task must send it."""
        self._sending: BulkSending | None = None
        """The present answer while threads send it: no request is handled, and no other answer sent."""
        self._is_working = False
        self._may_have_input = True
        self._has_hung_up = False
        """Whether the kernel has told that the client has closed its side."""
        self._is_at_end = False
        """Whether the client has closed its side and all its bytes are read."""
        self._is_draining = False
        self.last_active = self._clock.current_time()
        """The time in trio's clock at which bytes were read last or `note_activity` was called."""

    @property
    def has_pending(self) -> bool:
        """Whether there are pending answers, or one that threads are sending."""
        return bool(self._pending) or self._sending is not None

    @property
    def has_unhandled(self) -> bool:
        """Whether a request is received, at least in part, and not handled yet."""
        return self._frame is not None or not self._buffer.is_empty()

    @property
    def unsent_count(self) -> int:
        """The number of complete answers that are not sent yet."""
        return sum(pending.is_complete for pending in self._pending) + self._has_present()

    def drain(self) -> None:
        """Let `work` end after the requests that have been received completely."""
        self._is_draining = True

    def note_activity(self) -> None:
        """Set `last_active` to the present time."""
        self.last_active = self._clock.current_time()

    def note_sent(self) -> None:
        """Note that the socket has accepted all answers."""
        if self._times is not None:
            self._times.sent()

    def take_in_hand(self) -> Answer | BulkSending | Coroutine[Any, Any, Answer | None] | None:
        """Return the answer, or the coroutine for it, that the caller must send now."""
        in_hand, self._in_hand = self._in_hand, None
        return in_hand

    def abandon(self) -> BulkSending | None:
        """Give up all answers that are not sent, as the connection ends; return that which threads are sending."""
        while self._pending:
            pending = self._pending.popleft()
            pending.cancel()
            if pending.is_complete:
                with suppress(Exception):
                    close(pending.result())
        close(self.take_in_hand())
        sending, self._sending = self._sending, None
        return sending

    # --- requests

    def work(self) -> Need:
        """Answer the requests that can be answered at once, reading at most once; return the condition to continue.

        Raises InvalidFrameError, OSError, ClientGoneError, and what the responder raises.
        """
        self._is_working = True
        try:
            if self._client.hangup.is_set():
                self._check_client_is_here()
            need = self._answer_received()
            return self._read_and_answer() if need is None else need
        finally:
            self._is_working = False

    def on_ready(self, events: int) -> bool:
        """Handle input or a disconnect, here or in the connection's own task; return whether to call it again soon."""
        self._may_have_input = True
        if events & _HANGUP:
            self._has_hung_up = True
            self._client.hangup.set()
        if self._sleep.task is None:
            return False
        try:
            if events & _HANGUP or self._has_rest():
                need = self.work()
            else:
                self._is_working = True
                try:
                    need = self._read_and_answer()
                finally:
                    self._is_working = False
        except Exception as failure:
            self._sleep.failure = failure
            need = END
        if need is INPUT or need is ANSWER:
            return False
        if need is TURN:
            return True
        self._sleep.wake()
        return False

    def on_sending_stopped(self) -> None:
        """Continue where threads have sent an answer, or leave the rest of it to the connection's own task."""
        sending, self._sending = self._sending, None
        if sending is None:
            # The connection has ended.
            return
        try:
            if sending.is_sent():
                sending.end()
                self.note_activity()
            else:
                self._in_hand = sending
            need = TURN if self._sleep.task is None else self.work()
        except Exception as failure:
            self._sleep.failure = failure
            need = END
        if need is not INPUT and need is not ANSWER:
            self._sleep.wake()

    def _has_rest(self) -> bool:
        """Return whether anything that was received earlier is left to be answered."""
        if self._pending or self._has_present() or self._frame is not None:
            return True
        return not self._buffer.is_empty() or self._client.throttle_ms > 0

    def _has_present(self) -> bool:
        return self._in_hand is not None or self._sending is not None

    def _check_client_is_here(self) -> None:
        """Raise ClientGoneError if the client has gone without which a pending request ends."""
        for pending in self._pending:
            if pending.ends_with_client:
                raise ClientGoneError("disconnected while its request was pending")

    def _read_and_answer(self) -> Need:
        if self._is_draining or self._is_at_end:
            return ANSWER if self._pending else END
        if not self._may_have_input:
            return INPUT
        if self._transport.plain_descriptor >= 0:
            count = self._buffer.receive(self._transport.plain_descriptor)
        else:
            count = self._transport.receive_now(self._buffer.space())
            self._buffer.received(max(count, 0))
        if count == _WOULD_BLOCK:
            self._may_have_input = False
            return INPUT
        if count == 0:
            self._is_at_end = True
            return ANSWER if self._pending else END
        if self._times is not None:
            self._times.received()
        self.last_active = self._clock.current_time()
        # Fewer bytes than fit: the socket is empty, and the next bytes, except for the end, cause an event.
        self._may_have_input = self._buffer.is_full() or self._transport.has_ended or self._has_hung_up
        need = self._answer_received()
        if need is None:
            return TURN if self._may_have_input else INPUT
        return need

    def _answer_received(self) -> Need | None:
        """Answer the complete frames and send the answers; return the condition to continue, None if done."""
        transport, pending, client, times = self._transport, self._pending, self._client, self._times
        responder = self._responder
        turn_end = 0.0
        while True:
            # Without pending answers, which is usual, the next frame is handled at once.
            if pending or self._frame is not None or client.throttle_ms or self._has_present():
                need = self._send_completed()
                if need is not None:
                    return need
                frame = None if self._is_blocked() else self._next_frame()
            else:
                lane = responder.plain_lane
                if lane is not None:
                    self._answer_plain(lane)
                frame = self._buffer.next_frame()
            if frame is None:
                break
            if client.session_expires_at is not None:
                self._check_session(frame, client.session_expires_at)
            if not turn_end:
                turn_end = perf_counter() + TURN_S
            if times is not None:
                times.begin(frame)
            outcome = responder.answer(frame, client)
            if times is not None:
                outcome = times.handled(outcome)
            if pending or isinstance(outcome, Pending):
                self._queue(outcome, frame)
            elif outcome is not None:
                self._deliver(outcome)
            if transport.is_full and not transport.flush_now():
                return OUTPUT
            if perf_counter() >= turn_end:
                return TURN if transport.flush_now() else OUTPUT
        if not transport.flush_now():
            return OUTPUT
        if times is not None:
            times.sent()
        return ANSWER if pending and self._is_blocked() else None

    def _answer_plain(self, lane: PlainLane) -> None:
        """Gather the answers to the plain requests that come next."""
        expires_at = self._client.session_expires_at
        if expires_at is not None and self._clock.current_time() > expires_at:
            return
        begun_s = 0.0 if self._times is None else perf_counter()
        answers = lane.answer(self._buffer, self._client)
        if answers:
            self._transport.gather(answers[0] if len(answers) == 1 else b"".join(answers))
            if self._times is not None:
                self._times.answered(PRODUCE, len(answers), begun_s)

    def _check_session(self, frame: memoryview, expires_at: float) -> None:
        """Raise UnanswerableError for a request of an expired session that does not authenticate again (KIP-368)."""
        if self._clock.current_time() > expires_at and bytes(frame[:2]) not in LOGIN_KEYS:
            self._client.activity.expired_connections_killed_count += 1
            raise UnanswerableError("its SASL session has expired, and the client has not authenticated again")

    def _next_frame(self) -> memoryview | None:
        """Return the next request that may be handled now."""
        frame, self._frame = self._buffer.next_frame() if self._frame is None else self._frame, None
        if frame is not None and self._pending and not self._responder.is_pipelined(frame, self._client):
            self._frame, self._waits_for_all = frame, True
            return None
        return frame

    # --- answers

    def _deliver(self, outcome: Answer | Coroutine[Any, Any, Answer | None]) -> None:
        """Gather an answer, or leave it to the connection's own task."""
        if self._times is not None:
            self._times.delivering()
        if (not isinstance(outcome, list) and isinstance(outcome, Coroutine)) or not self._send_now(outcome):
            self._in_hand = outcome

    def _send_now(self, answer: Answer) -> bool:
        """Gather a small answer, or begin one that threads send; return False, with nothing done, for any other."""
        if self._client.is_refused:
            return False
        if len(answer) == 1 and isinstance(only := answer[0], bytes) and len(only) <= GATHERED_BYTES:
            # The promised size is that of the bytes, so no sink has to enforce it.
            self._transport.gather(LENGTH.pack(len(only)) + only)
            return True
        for part in answer:
            if not isinstance(part, BUFFERS) and not (isinstance(part, FileSlice) and part.size <= COPIED_BYTES):
                return self._begin_large(answer)
        size_bytes = total_size(answer)
        if size_bytes > GATHERED_BYTES:
            return self._begin_large(answer)
        sink = Sink(self._transport, size_bytes)
        self._transport.gather(LENGTH.pack(size_bytes))
        for part in answer:
            if isinstance(part, BUFFERS):
                sink.write_now(part)
            elif isinstance(part, FileSlice):
                part.send_now(sink)
        sink.finish()
        return True

    def _begin_large(self, answer: Answer) -> bool:
        sending = None if self._large is None else self._large.sending(answer)
        if sending is None:
            return False
        # The connection's own task ends it unless threads do.
        self._in_hand = sending
        if sending.begin(self.on_sending_stopped):
            self._in_hand, self._sending = None, sending
        return True

    # --- pending answers

    def _is_blocked(self) -> bool:
        """Return whether no request may be handled before a pending answer is sent."""
        return bool(self._pending) and (self._waits_for_all or len(self._pending) >= MOST_PENDING)

    def _queue(self, outcome: Outcome[Answer | None], frame: memoryview) -> None:
        """Queue an answer behind the pending ones. Raises ClientGoneError if the client has gone."""
        pending: Pending[Any] = outcome if isinstance(outcome, Pending) else completed(outcome)
        self._pending.append(pending)
        # A coroutine begins only when it is the first in the queue: no later request may overtake it.
        self._waits_for_all = isinstance(outcome, Coroutine) or not self._responder.is_pipelined(frame, self._client)
        if pending.ends_with_client and self._client.hangup.is_set():
            self._transport.flush_now()
            raise ClientGoneError("disconnected while its request was pending")
        if not pending.is_complete:
            on_complete = self.on_complete
            pending.when_complete(on_complete if self._times is None else self._times.pending(on_complete))

    def _send_completed(self) -> Need | None:
        """Send the answers that are complete up to the first pending one; return the condition to continue if any."""
        pending = self._pending
        while not self._has_present() and pending and pending[0].is_complete:
            outcome = pending.popleft().result()
            if outcome is not None:
                self._deliver(outcome)
        if not pending:
            self._waits_for_all = False
        if self._in_hand is not None:
            return TASK
        if self._sending is not None:
            return ANSWER
        return QUOTA if self._client.throttle_ms and not pending else None

    def on_complete(self) -> None:
        """Send answers, in the task that has completed one of them."""
        is_first = bool(self._pending) and self._pending[0].is_complete
        if self._sleep.task is None or self._is_working or not is_first or self._sending is not None:
            return
        try:
            need = self._send_completed()
            if need is None and not self._transport.flush_now():
                need = OUTPUT
            if need is None:
                self.note_sent()
        except Exception as failure:
            self._sleep.failure = failure
            need = END
        has_more = not self._is_blocked() and (
            self._frame is not None or not self._buffer.is_empty() or self._may_have_input
        )
        if need is not ANSWER and (need is not None or has_more or self._is_draining or self._is_at_end):
            self._sleep.wake()
