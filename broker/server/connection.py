"""A client's connection: it reads frames and sends answers, strictly in order.

Two tasks can serve a connection. As long as its requests can be answered at once, `answering_cy.Answering` serves them
in the task of `readiness.py`, and the connection's own task sleeps. A coroutine, an answer of many bytes, and bytes
that the socket does not accept wake the connection's task, whose steps are here; until it sleeps again no other task
uses the connection.

An answer may also be pending (`pending.py`). The task that completes it sends it, with the complete answers behind it.
Meanwhile later requests are handled only if their API is pipelined, as Produce is; others wait, as in Kafka.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine

import trio

from ...protocol.errors import DecodeError
from .admission import Admission, ListenerGuard
from .answering_cy import Answering
from .bulk_lane import BulkLane
from .bulk_sending import BulkSending, LargeAnswers
from .client_connection import ClientConnection, ClientGoneError, UnanswerableError, not_connected
from .client_hello import reason_to_close
from .connection_views import Responder, Transport
from .need import ASLEEP, Need
from .outcome import result_of
from .parts import BUFFERS, Answer, BrokenPromiseError, Sink, total_size
from .readiness import Readiness
from .receive_buffer_cy import LENGTH, InvalidFrameError, ReceiveBuffer
from .request_times import ConnectionTimes, RequestTimes
from .sleeping import Sleep

logger = logging.getLogger(__name__)


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
        self._large = None if lane is None else LargeAnswers(transport, lane, readiness.call_soon)
        self._guard = guard
        self._admitted = admitted
        self._grown = grown
        self._frame_limit_bytes = frame_limit_bytes
        self._responder = responder
        self._readiness = readiness
        self._buffer = ReceiveBuffer(frame_limit_bytes)
        self._life = trio.CancelScope()
        self._ended_by_drain: trio.CancelScope | None = None
        """The scope of the admission, or of the latest wait for a quota."""
        self._sleep = Sleep()
        self._draining = False
        own_times = None if times is None else ConnectionTimes(times, client)
        self._answering = Answering(transport, responder, client, self._buffer, self._sleep, own_times, self._large)
        self.client = client
        client.disconnect = self.disconnect

    @property
    def buffer_bytes(self) -> int:
        """The size of the receive buffer."""
        return self._buffer.capacity_bytes

    @property
    def waits_for_input(self) -> bool:
        """Whether no request is in progress."""
        return self._sleep.task is not None and not self._answering.has_pending

    @property
    def last_active(self) -> float:
        """The time in trio's clock at which the client sent bytes or was answered last."""
        return self._answering.last_active

    @property
    def has_unhandled(self) -> bool:
        """Whether a request is received, at least in part, and not handled yet."""
        return self._answering.has_unhandled

    @property
    def unsent_count(self) -> int:
        """The number of complete answers that are not sent yet."""
        return self._answering.unsent_count

    async def run(self) -> None:
        """Serve the client until the connection ends, then close the transport; never raise for a client's fault."""
        try:
            with self._life:
                if self._guard is None or await self._admit(self._guard):
                    self._readiness.watch(self._transport.descriptor, self._answering.on_ready)
                    await self._serve_and_flush()
        except REFUSALS as error:
            level = error.log_level if isinstance(error, UnanswerableError) else logging.INFO
            logger.log(level, "closing %s: %s", self._description(), reason_to_close(error, self._buffer, self.client))
        except DEPARTURES as error:
            logger.debug("%s has disconnected: %s", self._description(), error)
        except (BrokenPromiseError, EOFError) as error:
            logger.error("closing %s: %s", self._description(), error)
        except Exception:
            logger.exception("closing %s after an unexpected error", self._description())
        finally:
            sending = self._answering.abandon()
            if sending is not None:
                await sending.stop()
            self._sleep.failure = None
            # The two would form a reference cycle.
            self.client.disconnect = not_connected
            self._readiness.forget(self._transport.descriptor)
            self._transport.close()

    def drain(self) -> None:
        """Stop after the requests that have been received completely."""
        self._draining = True
        self._answering.drain()
        if self._ended_by_drain is not None:
            self._ended_by_drain.cancel()
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
        with trio.CancelScope() as self._ended_by_drain:
            if self._draining:
                self._ended_by_drain.cancel()
            if not await admission.run(self._respond_before_admission, self._send_at_once):
                return False
        if self._ended_by_drain.cancelled_caught:
            return False
        self._buffer.limit_frames(self._frame_limit_bytes)
        self._answering.note_activity()
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
            need = self._answering.work()
            if need in ASLEEP:
                # `Answering.on_ready` and `Answering.on_complete` act for this task meanwhile.
                await self._sleep.until_woken()
            elif need is Need.TURN:
                await trio.lowlevel.checkpoint()
            elif need is Need.OUTPUT:
                await self._transport.flush()
                self._answering.note_sent()
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
        in_hand = self._answering.take_in_hand()
        if isinstance(in_hand, BulkSending):
            await in_hand.finish()
        else:
            answer = await in_hand if isinstance(in_hand, Coroutine) else in_hand
            if answer is not None:
                await self._send(answer)
        if self.client.is_refused and self._guard is not None:
            await trio.sleep(self._guard.failure_delay_s)
            await self._transport.flush()
            raise UnanswerableError("the client failed to authenticate again")
        self._answering.note_activity()

    async def _wait_for_quota(self) -> None:
        """Read nothing from this client during its throttle time, which the answer contains (KIP-219)."""
        await self._transport.flush()
        throttle_s, self.client.throttle_ms = self.client.throttle_ms / 1000, 0
        with trio.move_on_after(throttle_s) as self._ended_by_drain:
            if self._draining:
                self._ended_by_drain.cancel()
            await trio.sleep_forever()

    async def _send(self, answer: Answer) -> None:
        sending = None if self._large is None else self._large.sending(answer)
        if sending is not None:
            await sending.finish()
            return
        size_bytes = total_size(answer)
        sink = Sink(self._transport, size_bytes)
        await self._transport.send(LENGTH.pack(size_bytes))
        for part in answer:
            if isinstance(part, BUFFERS):
                await sink.write(part)
            else:
                await part.send_to(sink)
        sink.finish()

    def _description(self) -> str:
        return "connection {} from {}:{}".format(self.client.connection_id, *self.client.peer)
