"""A client's connection: it reads frames and sends answers, strictly in order.

Two tasks can serve a connection. As long as its requests can be answered at once, `_work` serves them in the task of
`readiness.py`, and the connection's own task sleeps. A coroutine, an answer of many bytes, and bytes that the socket
does not accept wake the connection's task; until it sleeps again no other task uses the connection.

An answer may also be pending (`pending.py`). The task that completes it sends it, with the complete answers behind it.
Meanwhile later requests are handled only if their API is pipelined, as Produce is; others wait, as in Kafka.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from time import perf_counter
from typing import Any

import trio

from ...protocol.apis import ApiKey
from ...protocol.errors import DecodeError
from .admission import Admission, ListenerGuard
from .bulk_lane import BulkLane
from .bulk_sending import LEAST_BULK_BYTES, bulk_answer, send_in_bulk
from .client_connection import ClientConnection, ClientGoneError, not_connected
from .connection_views import PlainLane, Responder, Transport
from .need import ASLEEP, INPUT, TURN, Need
from .outcome import Outcome, result_of
from .parts import BUFFERS, Answer, BrokenPromiseError, FileSlice, Sink, total_size
from .pending import Pending, completed
from .readiness import HANGUP, Readiness
from .receive_buffer_cy import LENGTH, InvalidFrameError, ReceiveBuffer
from .request_times import ConnectionTimes, RequestTimes
from .sleeping import Sleep
from .transport import COPIED_BYTES, GATHERED_BYTES, WOULD_BLOCK

logger = logging.getLogger(__name__)


class UnanswerableError(Exception):
    """An error for a request that Kafka answers by closing the connection; its text is the one line in the log."""


TURN_S = 0.005
"""The time for which one connection may be served before other connections and tasks get their turn."""
MOST_PENDING = 64
"""Most pending answers of a connection; with more it serves no further requests."""
LOGIN_KEYS = tuple(key.to_bytes(2, "big") for key in (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE))
"""The first bytes of the requests that an expired session may send."""
REFUSALS = (InvalidFrameError, DecodeError, UnanswerableError)
DEPARTURES = (OSError, trio.ClosedResourceError, trio.BrokenResourceError, ClientGoneError)


class Connection:
    """A connection that answers a client's requests in order until it disconnects, fails, or `drain` is called.

    All complete frames in the buffer are answered before the next read, and their small answers leave with one call.
    """

    def __init__(
        self,
        transport: Transport,
        responder: Responder,
        client: ClientConnection,
        readiness: Readiness,
        *,
        frame_limit_bytes: int,
        guard: ListenerGuard | None = None,
        admitted: Callable[[Connection], None] = lambda _: None,
        times: RequestTimes | None = None,
        lane: BulkLane | None = None,
        grown: Callable[[Connection], None] = lambda _: None,
    ) -> None:
        """Take the parts; with a guard nothing is served before `admitted` is called, and `grown` with the buffer.

        With a ``lane`` its threads send large answers.
        """
        self._transport = transport
        self._lane = lane
        self._guard = guard
        self._admitted = admitted
        self._grown = grown
        self._admission = trio.CancelScope()
        self._frame_limit_bytes = frame_limit_bytes
        self._responder = responder
        self._readiness = readiness
        self._buffer = ReceiveBuffer(frame_limit_bytes)
        self._frame: memoryview | None = None
        """A request that is not handled before the pending answers are sent."""
        self._in_hand: Answer | Coroutine[Any, Any, Answer | None] | None = None
        """The present answer, or the coroutine for it, if the connection's own task must send it."""
        self._life = trio.CancelScope()
        self._muted = trio.CancelScope()
        self._sleep = Sleep()
        self._pending: deque[Pending[Any]] = deque()
        """Answers that are not sent yet, in order."""
        self._waits_for_all = False
        """Whether the next request is not handled before all pending answers are sent."""
        self._is_working = False
        self._may_have_input = True
        self._is_at_end = False
        """Whether the client has closed its side and all its bytes are read."""
        self._draining = False
        self._times = None if times is None else ConnectionTimes(times, client)
        self.client = client
        client.disconnect = self.disconnect
        self.last_active = trio.current_time()

    @property
    def buffer_bytes(self) -> int:
        """The size of the receive buffer."""
        return self._buffer.capacity_bytes

    @property
    def waits_for_input(self) -> bool:
        """Whether no request is in progress."""
        return self._sleep.task is not None and not self._pending

    @property
    def has_unhandled(self) -> bool:
        """Whether a request is received, at least in part, and not handled yet."""
        return self._frame is not None or not self._buffer.is_empty

    @property
    def unsent_count(self) -> int:
        """The number of complete answers that are not sent yet."""
        return sum(pending.is_complete for pending in self._pending) + (self._in_hand is not None)

    async def run(self) -> None:
        """Serve the client until the connection ends, then close the transport; never raise for a client's fault."""
        try:
            with self._life:
                if self._guard is None or await self._admit(self._guard):
                    self._readiness.watch(self._transport.descriptor, self._on_ready)
                    await self._serve_and_flush()
        except REFUSALS as error:
            logger.info("closing %s: %s", self._description(), error)
        except DEPARTURES as error:
            logger.debug("%s has disconnected: %s", self._description(), error)
        except (BrokenPromiseError, EOFError) as error:
            logger.error("closing %s: %s", self._description(), error)
        except Exception:
            logger.exception("closing %s after an unexpected error", self._description())
        finally:
            self._abandon()
            self._sleep.failure = None
            # The two would form a reference cycle.
            self.client.disconnect = not_connected
            close(self._in_hand)
            self._readiness.forget(self._transport.descriptor)
            self._transport.close()

    def drain(self) -> None:
        """Stop after the requests that have been received completely."""
        self._draining = True
        self._muted.cancel()
        self._admission.cancel()
        self._sleep.wake()

    def disconnect(self) -> None:
        """Stop at once."""
        self._life.cancel()

    def give_back_memory(self) -> None:
        """Release memory that an idle connection does not need."""
        if self.waits_for_input:
            self._buffer.shrink()

    # --- in the connection's own task

    async def _admit(self, guard: ListenerGuard) -> bool:
        """Authenticate the client; return whether the connection may serve it."""
        self._buffer.limit_frames(guard.login_frame_limit_bytes)
        admission = Admission(guard, self.client, self._transport, self._buffer, lambda: self._grown(self))
        with self._admission:
            if not await admission.run(self._respond_before_admission, self._send_at_once):
                return False
        if self._admission.cancelled_caught:
            return False
        self._buffer.limit_frames(self._frame_limit_bytes)
        self.last_active = trio.current_time()
        self._admitted(self)
        return True

    async def _respond_before_admission(self, frame: memoryview) -> Answer | None:
        return await result_of(self._responder.answer(frame, self.client))

    async def _send_at_once(self, answer: Answer) -> None:
        await self._send(answer)
        await self._transport.flush()

    async def _serve_and_flush(self) -> None:
        try:
            await self._serve()
        except REFUSALS:
            # Requests before the refused one get their answers.
            await self._transport.flush()
            raise

    async def _serve(self) -> None:
        while True:
            need = self._work()
            if need in ASLEEP:
                # `_on_ready` and `_on_complete` act for this task meanwhile.
                await self._sleep.until_woken()
            elif need is Need.TURN:
                await trio.lowlevel.checkpoint()
            elif need is Need.OUTPUT:
                await self._transport.flush()
                self._note_sent()
            elif need is Need.TASK:
                await self._answer_in_hand()
            elif need is Need.QUOTA:
                await self._wait_for_quota()
            else:
                await self._transport.flush()
                return

    async def _answer_in_hand(self) -> None:
        # The coroutine may wait long; answers that are ready must not wait with it.
        await self._transport.flush()
        answer, self._in_hand = self._in_hand, None
        if isinstance(answer, Coroutine):
            answer = await answer
        if answer is not None:
            await self._send(answer)
        if self.client.is_refused and self._guard is not None:
            await trio.sleep(self._guard.failure_delay_s)
            await self._transport.flush()
            raise UnanswerableError("the client failed to authenticate again")
        self.last_active = trio.current_time()

    async def _wait_for_quota(self) -> None:
        """Read nothing from this client during its throttle time, which the answer contains (KIP-219)."""
        await self._transport.flush()
        throttle_s, self.client.throttle_ms = self.client.throttle_ms / 1000, 0
        with trio.move_on_after(throttle_s) as self._muted:
            if self._draining:
                self._muted.cancel()
            await trio.sleep_forever()

    async def _send(self, answer: Answer) -> None:
        size_bytes = total_size(answer)
        if self._lane is not None and size_bytes >= LEAST_BULK_BYTES:
            bulk = bulk_answer(answer, size_bytes, self._transport, self._lane)
            if bulk is not None:
                await send_in_bulk(bulk, answer, self._transport, self._lane)
                return
        sink = Sink(self._transport, size_bytes)
        await self._transport.send(LENGTH.pack(size_bytes))
        for part in answer:
            if isinstance(part, BUFFERS):
                await sink.write(part)
            else:
                await part.send_to(sink)
        sink.finish()

    # --- in the task that serves the connection

    def _work(self, *, has_rest: bool = True) -> Need:
        """Answer the requests that can be answered at once, reading at most once; return the condition to continue.

        Without ``has_rest`` no earlier request is left. Raises REFUSALS, DEPARTURES, and what no handler should raise.
        """
        self._is_working = True
        try:
            if has_rest:
                if self.client.hangup.is_set() and any(pending.ends_with_client for pending in self._pending):
                    raise ClientGoneError("disconnected while its request was pending")
                need = self._answer_received()
                if need is not None:
                    return need
            return self._read_and_answer()
        finally:
            self._is_working = False

    def _read_and_answer(self) -> Need:
        if self._draining or self._is_at_end:
            return Need.ANSWER if self._pending else Need.END
        if not self._may_have_input:
            return INPUT
        space = self._buffer.space()
        count = self._transport.receive_now(space)
        if count == WOULD_BLOCK:
            self._may_have_input = False
            return INPUT
        if count == 0:
            self._is_at_end = True
            return Need.ANSWER if self._pending else Need.END
        self._buffer.received(count)
        if self._times is not None:
            self._times.received()
        self.last_active = trio.current_time()
        # Fewer bytes than fit: the socket is empty, and the next bytes, except for the end, cause an event.
        self._may_have_input = count == len(space) or self.client.hangup.is_set() or self._transport.has_ended
        return self._answer_received() or (TURN if self._may_have_input else INPUT)

    def _answer_received(self) -> Need | None:
        """Answer the complete frames and send the answers; return the condition to continue, None if done."""
        transport, pending, client, times = self._transport, self._pending, self.client, self._times
        answer, next_frame = self._responder.answer, self._buffer.next_frame
        turn_end = perf_counter() + TURN_S
        while True:
            # Without pending answers, which is usual, the next frame is handled at once.
            if pending or self._in_hand is not None or client.throttle_ms or self._frame is not None:
                need = self._send_completed()
                if need is not None:
                    return need
                frame = None if self._is_blocked else self._next_frame()
            else:
                lane = self._responder.plain_lane
                if lane is not None:
                    self._answer_plain(lane)
                frame = next_frame()
            if frame is None:
                break
            if client.session_expires_at is not None:
                self._check_session(frame, client.session_expires_at)
            if times is not None:
                times.begin(frame)
            outcome = answer(frame, client)
            if times is not None:
                outcome = times.handled(outcome)
            if pending or isinstance(outcome, Pending):
                self._queue(outcome, frame)
            elif outcome is not None:
                self._deliver(outcome)
            if transport.is_full and not transport.flush_now():
                return Need.OUTPUT
            if perf_counter() >= turn_end:
                return Need.TURN if transport.flush_now() else Need.OUTPUT
        if not transport.flush_now():
            return Need.OUTPUT
        self._note_sent()
        return Need.ANSWER if pending and self._is_blocked else None

    def _answer_plain(self, lane: PlainLane) -> None:
        """Gather the answers to the plain requests that come next."""
        expires_at, times = self.client.session_expires_at, self._times
        if expires_at is not None and trio.current_time() > expires_at:
            return
        begun_s = 0.0 if times is None else perf_counter()
        answers = lane.answer(self._buffer, self.client)
        if answers:
            self._transport.gather(answers[0] if len(answers) == 1 else b"".join(answers))
            if times is not None:
                times.answered(ApiKey.PRODUCE, len(answers), begun_s)

    def _note_sent(self) -> None:
        if self._times is not None:
            self._times.sent()

    def _check_session(self, frame: memoryview, expires_at: float) -> None:
        """Raise UnanswerableError for a request of an expired session that does not authenticate again (KIP-368)."""
        if trio.current_time() > expires_at and bytes(frame[:2]) not in LOGIN_KEYS:
            self.client.activity.expired_connections_killed_count += 1
            raise UnanswerableError("its SASL session has expired, and the client has not authenticated again")

    def _next_frame(self) -> memoryview | None:
        """Return the next request that may be handled now."""
        frame, self._frame = self._buffer.next_frame() if self._frame is None else self._frame, None
        if frame is not None and self._pending and not self._responder.is_pipelined(frame, self.client):
            self._frame, self._waits_for_all = frame, True
            return None
        return frame

    def _deliver(self, outcome: Answer | Coroutine[Any, Any, Answer | None]) -> None:
        """Gather an answer, or leave it to the connection's own task."""
        if self._times is not None:
            self._times.delivering()
        if (not isinstance(outcome, list) and isinstance(outcome, Coroutine)) or not self._send_now(outcome):
            self._in_hand = outcome

    def _send_now(self, answer: Answer) -> bool:
        """Gather an answer of few bytes that needs no wait; return False, with nothing done, for any other answer."""
        if self.client.is_refused:
            return False
        if len(answer) == 1 and isinstance(only := answer[0], bytes) and len(only) <= GATHERED_BYTES:
            # The promised size is that of the bytes, so no sink has to enforce it.
            self._transport.gather(LENGTH.pack(len(only)) + only)
            return True
        size_bytes = 0
        for part in answer:
            if isinstance(part, BUFFERS):
                size_bytes += len(part)
            elif isinstance(part, FileSlice) and part.size <= COPIED_BYTES:
                size_bytes += part.size
            else:
                return False
        if size_bytes > GATHERED_BYTES:
            return False
        sink = Sink(self._transport, size_bytes)
        self._transport.gather(LENGTH.pack(size_bytes))
        for part in answer:
            if isinstance(part, BUFFERS):
                sink.write_now(part)
            elif isinstance(part, FileSlice):
                part.send_now(sink)
        sink.finish()
        return True

    # --- pending answers

    @property
    def _is_blocked(self) -> bool:
        """Whether no request may be handled before a pending answer is sent."""
        return bool(self._pending) and (self._waits_for_all or len(self._pending) >= MOST_PENDING)

    def _queue(self, outcome: Outcome[Answer | None], frame: memoryview) -> None:
        """Queue an answer behind the pending ones. Raises ClientGoneError if the client has gone."""
        pending = outcome if isinstance(outcome, Pending) else completed(outcome)
        self._pending.append(pending)
        # A coroutine begins only when it is the first in the queue: no later request may overtake it.
        self._waits_for_all = isinstance(outcome, Coroutine) or not self._responder.is_pipelined(frame, self.client)
        if pending.ends_with_client and self.client.hangup.is_set():
            self._transport.flush_now()
            raise ClientGoneError("disconnected while its request was pending")
        if not pending.is_complete:
            on_complete = self._on_complete
            pending.when_complete(on_complete if self._times is None else self._times.pending(on_complete))

    def _send_completed(self) -> Need | None:
        """Send the answers that are complete up to the first pending one; return the condition to continue if any."""
        pending = self._pending
        while self._in_hand is None and pending and pending[0].is_complete:
            outcome = pending.popleft().result()
            if outcome is not None:
                self._deliver(outcome)
        if not pending:
            self._waits_for_all = False
        if self._in_hand is not None:
            return Need.TASK
        return Need.QUOTA if self.client.throttle_ms and not pending else None

    def _on_complete(self) -> None:
        """Send answers, in the task that has completed one of them."""
        is_first = bool(self._pending) and self._pending[0].is_complete
        if self._sleep.task is None or self._is_working or not is_first:
            return
        try:
            need = self._send_completed()
            if need is None and not self._transport.flush_now():
                need = Need.OUTPUT
            if need is None:
                self._note_sent()
        except Exception as failure:
            self._sleep.failure = failure
            need = Need.END
        has_more = not self._is_blocked and (
            self._frame is not None or not self._buffer.is_empty or self._may_have_input
        )
        if need is not None or has_more or self._draining or self._is_at_end:
            self._sleep.wake()

    def _abandon(self) -> None:
        """Give up the pending answers, as the connection ends."""
        while self._pending:
            pending = self._pending.popleft()
            pending.cancel()
            if pending.is_complete:
                with suppress(Exception):
                    close(pending.result())

    # --- in the task of `Readiness`

    def _on_ready(self, events: int) -> bool:
        """Handle input or a disconnect, here or in the connection's own task; return whether to call it again soon."""
        self._may_have_input = True
        if events & HANGUP:
            self.client.hangup.set()
        if self._sleep.task is None:
            return False
        has_rest = bool(self._pending) or self._in_hand is not None or self._frame is not None
        has_rest = has_rest or not self._buffer.is_empty or self.client.throttle_ms > 0 or events & HANGUP != 0
        try:
            need = self._work(has_rest=has_rest)
        except Exception as failure:
            self._sleep.failure = failure
            need = Need.END
        if need is TURN:
            return True
        if need not in ASLEEP:
            self._sleep.wake()
        return False

    def _description(self) -> str:
        return "connection {} from {}:{}".format(self.client.connection_id, *self.client.peer)


def close(outcome: object) -> None:
    """Close a coroutine that is never awaited; do nothing with anything else."""
    if isinstance(outcome, Coroutine):
        outcome.close()
