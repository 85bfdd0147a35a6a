"""A client's connection: it reads frames and sends answers, strictly in order.

Two tasks can serve a connection. As long as its requests can be answered at once, `_work` serves them in the task of
`readiness.py`, and the connection's own task sleeps. A request that must wait, or an answer that the socket does not
accept, wakes the connection's task; until it sleeps again no other task uses the connection.

An answer may also be pending (`LateAnswer`): later requests are served meanwhile, as far as they need no handler, and
their answers are queued. The task that completes the pending answer sends the queued ones.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from enum import Enum, auto
from typing import Protocol

import trio

from ...protocol.errors import DecodeError
from .client_connection import ClientConnection, ClientGoneError
from .late_answer import LateAnswer
from .parts import BUFFERS, Answer, BrokenPromiseError, Buffer, Sink, total_size
from .readiness import HANGUP, Readiness
from .receive_buffer import LENGTH, InvalidFrameError, ReceiveBuffer
from .transport import WOULD_BLOCK

logger = logging.getLogger(__name__)


class UnanswerableError(Exception):
    """An error for a request that Kafka answers by closing the connection; its text is the one line in the log."""


MOST_LATE_ANSWERS = 64
"""Most pending answers of a connection; with more it serves no further requests."""
REFUSALS = (InvalidFrameError, DecodeError, UnanswerableError)
DEPARTURES = (OSError, trio.ClosedResourceError, trio.BrokenResourceError, ClientGoneError)


class Transport(Protocol):
    """A transport of bytes; `SocketTransport` is the one for plain sockets."""

    descriptor: int

    def receive_now(self, space: memoryview) -> int: ...
    def gather(self, data: Buffer) -> bool: ...
    def flush_now(self) -> bool: ...
    async def flush(self) -> None: ...
    async def send(self, data: Buffer, *, before_wait: Callable[[], None] | None = None) -> None: ...
    async def send_file(self, descriptor: int, position: int, size_bytes: int) -> None: ...
    def close(self) -> None: ...


class Responder(Protocol):
    """A responder that turns a request frame into an answer (`dispatch.Dispatcher`)."""

    def answer_now(self, frame: memoryview, client: ClientConnection) -> Buffer | LateAnswer | None:
        """Return the answer with its length if it needs no task, else None; empty bytes if none is expected."""

    async def answer(self, frame: memoryview, client: ClientConnection) -> Answer | None:
        """Return the answer, or None if the client expects none.

        Raises UnanswerableError, DecodeError or ClientGoneError.
        """


class Need(Enum):
    """A condition without which a connection cannot continue."""

    INPUT = auto()
    TURN = auto()
    """A turn: other connections are served first."""
    HANDLER = auto()
    """The present frame needs its handler."""
    LATE_ANSWERS = auto()
    """Too many answers are pending."""
    OUTPUT = auto()
    """The socket accepts no more of the gathered bytes."""
    END = auto()
    """The client has closed its side, or the broker drains: all received requests are answered."""


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
    ) -> None:
        self._transport = transport
        self._responder = responder
        self._readiness = readiness
        self._buffer = ReceiveBuffer(frame_limit_bytes)
        self._frame: memoryview | None = None
        self._life = trio.CancelScope()
        self._muted = trio.CancelScope()
        self._sleeper: trio.lowlevel.Task | None = None
        self._failure: Exception | None = None
        self._late: deque[LateAnswer] = deque()
        """Answers that are not sent yet, in order; the first of them is pending."""
        self._none_late = trio.Event()
        self._may_have_input = True
        self._draining = False
        self.client = client
        self.last_active = trio.current_time()

    @property
    def waits_for_input(self) -> bool:
        """Whether no request is in progress."""
        return self._sleeper is not None and not self._late

    async def run(self) -> None:
        """Serve the client until the connection ends, then close the transport; never raise for a client's fault."""
        self._readiness.watch(self._transport.descriptor, self._on_ready)
        try:
            with self._life:
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
            self._late.clear()
            self._failure = None
            self._readiness.forget(self._transport.descriptor)
            self._transport.close()

    def drain(self) -> None:
        """Stop after the requests that have been received completely."""
        self._draining = True
        self._muted.cancel()
        self._wake()

    def disconnect(self) -> None:
        """Stop at once."""
        self._life.cancel()

    def give_back_memory(self) -> None:
        """Release memory that an idle connection does not need."""
        if self.waits_for_input:
            self._buffer.shrink()

    # --- in the connection's own task

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
            if need is Need.INPUT:
                await self._sleep()
            elif need is Need.TURN:
                await trio.lowlevel.checkpoint()
            elif need is Need.OUTPUT:
                await self._transport.flush()
            elif need is Need.LATE_ANSWERS:
                await self._wait_for_late_answers()
            elif need is Need.HANDLER:
                await self._answer_in_hand()
            else:
                await self._wait_for_late_answers()
                await self._transport.flush()
                return

    async def _sleep(self) -> None:
        """Leave the connection to `_on_ready` until it needs this task. Raises the exception that occurred there."""
        self._sleeper = trio.lowlevel.current_task()

        def stop_sleeping(_: object) -> trio.lowlevel.Abort:
            self._sleeper = None
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(stop_sleeping)
        failure, self._failure = self._failure, None
        if failure is not None:
            try:
                raise failure
            finally:
                # The exception's traceback has this frame: the two would form a reference cycle.
                del failure

    async def _answer_in_hand(self) -> None:
        await self._wait_for_late_answers()
        frame, self._frame = self._frame, None
        assert frame is not None
        # The handler may wait long; answers that are ready must not wait with it.
        await self._transport.flush()
        answer = await self._responder.answer(frame, self.client)
        if answer is not None:
            await self._send(answer)
        if self.client.throttle_ms:
            await self._wait_for_quota()
        self.last_active = trio.current_time()

    async def _wait_for_late_answers(self) -> None:
        while self._late:
            self._none_late = trio.Event()
            await self._none_late.wait()

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
        sink = Sink(self._transport, size_bytes)
        await self._transport.send(LENGTH.pack(size_bytes))
        for part in answer:
            if isinstance(part, BUFFERS):
                await sink.write(part)
            else:
                await part.send_to(sink)
        sink.finish()

    # --- in the task that serves the connection

    def _work(self) -> Need:
        """Answer the requests that can be answered at once, reading at most once; return the condition to continue.

        Raises REFUSALS, OSError.
        """
        need = self._answer_received()
        if need is not None:
            return need
        if self._draining:
            return Need.END
        if not self._may_have_input:
            return Need.INPUT
        space = self._buffer.space()
        count = self._transport.receive_now(space)
        if count == WOULD_BLOCK:
            self._may_have_input = False
            return Need.INPUT
        if count == 0:
            return Need.END
        self._buffer.received(count)
        self.last_active = trio.current_time()
        # Fewer bytes than fit: the socket is empty, and the next bytes, except for the end, cause an event.
        self._may_have_input = count == len(space) or self.client.hangup.is_set()
        return self._answer_received() or (Need.TURN if self._may_have_input else Need.INPUT)

    def _answer_received(self) -> Need | None:
        """Answer the complete frames and send the answers; return the condition to continue, None if done."""
        if self._frame is not None:
            return Need.HANDLER
        if len(self._late) >= MOST_LATE_ANSWERS:
            return Need.LATE_ANSWERS
        transport, client, next_frame = self._transport, self.client, self._buffer.next_frame
        answer_now, late = self._responder.answer_now, self._late
        while (frame := next_frame()) is not None:
            answer = answer_now(frame, client)
            if answer is None:
                self._frame = frame
                return Need.HANDLER
            if isinstance(answer, LateAnswer) or late:
                self._queue(answer)
                if len(late) >= MOST_LATE_ANSWERS:
                    return Need.LATE_ANSWERS
            elif transport.gather(answer) and not transport.flush_now():
                return Need.OUTPUT
        return None if transport.flush_now() else Need.OUTPUT

    def _queue(self, answer: Buffer | LateAnswer) -> None:
        """Queue an answer behind the pending ones, unless it is empty."""
        if not isinstance(answer, LateAnswer):
            if not answer:
                return
            answer = LateAnswer(bytes(answer))
        self._late.append(answer)
        answer.then(self._answered_late)

    # --- in the task that completes a pending answer

    def _answered_late(self) -> None:
        """Send the answers that are complete up to the first pending one."""
        late, transport = self._late, self._transport
        if not late or late[0].frame is None:
            return
        while late and (frame := late[0].frame) is not None:
            transport.gather(frame)
            late.popleft()
        if not late:
            self._none_late.set()
        try:
            is_sent = transport.flush_now()
        except OSError as failure:
            self._failure, is_sent = failure, False
        if not is_sent:
            self._wake()

    # --- in the task of `Readiness`

    def _on_ready(self, events: int) -> bool:
        """Handle input or a disconnect, here or in the connection's own task; return whether to call it again soon."""
        self._may_have_input = True
        if events & HANGUP:
            self.client.hangup.set()
        if self._sleeper is None:
            return False
        try:
            need = self._work()
        except Exception as failure:
            self._failure = failure
            need = Need.END
        if need in (Need.INPUT, Need.TURN):
            return need is Need.TURN
        self._wake()
        return False

    def _wake(self) -> None:
        if self._sleeper is not None:
            task, self._sleeper = self._sleeper, None
            trio.lowlevel.reschedule(task)

    def _description(self) -> str:
        host, port = self.client.peer
        return f"connection {self.client.connection_id} from {host}:{port}"
