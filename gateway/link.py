"""A connection to one upstream broker, for the requests of one client connection.

Requests leave in the order in which they are given, with the correlation ids of the client, so answers can be passed
back as they are. While all answers are small, the task of `Readiness` reads them and gives each to the receiver of its
request. An answer of any size is read as a stream: by the task that asked for it (`begin_stream`), or by one that
takes it over once it turns out to be large (`pass_on_fetch`).
"""

from __future__ import annotations

import contextlib
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial

import trio

from ..broker.server.client_connection import Hangup
from ..broker.server.parts import Buffer
from ..broker.server.pending import Pending
from ..broker.server.readiness import HANGUP, Readiness
from ..broker.server.receive_buffer_cy import LENGTH, InvalidFrameError, ReceiveBuffer
from ..broker.server.transport import WOULD_BLOCK, SocketTransport
from ..protocol.errors import BrokerError, DecodeError
from ..security.errors import SaslAuthenticationError
from .stream import STREAM_HEAD, LinkLostError, Stream
from .upstream_session import UpstreamSession

logger = logging.getLogger(__name__)

GATHERED_BYTES = 64 * 1024
"""Largest request that is copied and sent without a task."""
Receiver = Callable[[memoryview | None], None]
"""Takes the frame of an answer, without its length and valid during the call, or None if the link was lost."""
StreamReceiver = Callable[[Stream], None]
"""Takes an answer of more than `MOST_WHOLE_BYTES`, whose first bytes have been received."""
MOST_WHOLE_BYTES = 64 * 1024
"""The largest answer that a receiver takes whole if there is a receiver for streams."""
BEGINNING_BYTES = 4 * 1024
"""Bytes that are read first of an answer that may be a stream."""


class Link:
    """A connection to a broker upstream. Invariant: `_receivers` are those of the requests without an answer, in order.

    ``on_lost`` is called once, when the broker ends the connection or sends malformed bytes.
    """

    def __init__(
        self,
        transport: SocketTransport,
        node: int,
        offered: Mapping[int, tuple[int, int]],
        readiness: Readiness,
        nursery: trio.Nursery,
        *,
        limit_bytes: int,
        on_lost: Callable[[Link], None],
        session: UpstreamSession | None = None,
    ) -> None:
        self.node = node
        self.offered = offered
        """The oldest and newest version of each API that the broker serves, by the number of the API."""
        self._session = session
        """The SASL session of the link if it has an end."""
        self._sending = trio.Lock()
        """Held while a task sends a request, and during a login, in the middle of which brokers accept nothing else."""
        self._transport = transport
        self._readiness = readiness
        self._nursery = nursery
        self._limit_bytes = limit_bytes
        self._on_lost = on_lost
        self._buffer = ReceiveBuffer(limit_bytes)
        self._receivers: deque[Receiver] = deque()
        self._is_streaming = False
        self._take_stream: StreamReceiver | None = None
        """Takes the pending answer if it turns out to be large; no other answer is pending then."""
        self._begun_bytes = 0
        """The bytes of that answer which have been received."""
        self._flushed: trio.Event | None = None
        """Set once what `pass_on` could not send at once is sent; None if nothing waits."""
        self.is_closed = False
        readiness.watch(self._transport.descriptor, self._on_ready)

    @property
    def is_idle(self) -> bool:
        """Whether no answer is pending."""
        return not self._receivers and not self._is_streaming

    @property
    def takes_requests_now(self) -> bool:
        """Whether `pass_on` may be called, and `pass_on_fetch` on a link that is idle."""
        return (
            self._flushed is None
            and not self._is_streaming
            and not self.is_closed
            and not self._sending.locked()
            and (self._session is None or not self._session.ends_soon)
        )

    def pass_on(self, frame: Buffer, receiver: Receiver | None) -> None:
        """Send a request of at most `GATHERED_BYTES` without waiting; ``receiver`` is None if it has no answer."""
        transport = self._transport
        transport.gather(LENGTH.pack(len(frame)))
        transport.gather(frame)
        if receiver is not None:
            self._receivers.append(receiver)
        try:
            is_sent = transport.flush_now()
        except OSError:
            self.lose()
            return
        if not is_sent:
            self._flushed = trio.Event()
            self._nursery.start_soon(self._flush, self._flushed)

    def pass_on_fetch(self, frame: Buffer, receiver: Receiver, take_stream: StreamReceiver) -> None:
        """Send a request as `pass_on` does; a large answer is given to ``take_stream`` instead.

        No other answer may be pending, and no other request may be sent before the receiver is called.
        """
        assert self.is_idle
        self._take_stream = take_stream
        self._begun_bytes = 0
        self.pass_on(frame, receiver)

    async def _flush(self, flushed: trio.Event) -> None:
        try:
            await self._transport.flush()
        except (OSError, trio.ClosedResourceError):
            self.lose()
        finally:
            self._flushed = None
            flushed.set()

    async def send(self, frame: Buffer) -> None:
        """Send a request of any size that gets no answer. Raises LinkLostError."""
        async with self._turn():
            await self._send(frame, None)

    async def exchange(self, frame: Buffer, hangup: Hangup) -> bytes:
        """Send a request and return the frame of its answer.

        Raises LinkLostError, and ClientGoneError if the client disconnects first.
        """
        pending: Pending[bytes | None] = Pending(ends_with_client=True)
        async with self._turn():
            await self._send(frame, partial(_complete, pending))
        return self._answered(await pending.wait(hangup))

    async def _ask(self, frame: Buffer) -> bytes:
        """Send a request of a login, during `_turn`, and return the frame of its answer. Raises LinkLostError."""
        pending: Pending[bytes | None] = Pending(ends_with_client=True)
        await self._send(frame, partial(_complete, pending))
        return self._answered(await pending.wait(None))

    def _answered(self, answer: bytes | None) -> bytes:
        if answer is None:
            raise LinkLostError(f"broker {self.node} closed the connection")
        return answer

    async def begin_stream(self, frame: Buffer, hangup: Hangup) -> Stream:
        """Send a request and return its answer as a stream, once its size is known; no other answer may be pending.

        Raises LinkLostError, and ClientGoneError if the client disconnects first. A cancelled stream ends the link.
        """
        stream = await self.start_stream(frame)
        await stream.read_head(hangup)
        return stream

    async def start_stream(self, frame: Buffer) -> Stream:
        """Send a request and return its answer as a stream, of which nothing has been read; see `Stream.read_head`.

        No other answer may be pending. Raises LinkLostError.
        """
        async with self._turn():
            assert self.is_idle
            stream = self._new_stream()
            try:
                await self._send(frame, None)
            except BaseException:
                self.close()
                raise
        return stream

    def end_stream(self) -> None:
        """Read further answers in the task of `Readiness` again; a second call does nothing."""
        if not self._is_streaming:
            return
        self._is_streaming = False
        if not self.is_closed:
            self._transport.wake_at(1)
            # Bytes that have arrived already, or the end of the connection, are an event too.
            self._readiness.watch(self._transport.descriptor, self._on_ready)
            if not self._transport.is_plain:
                # OpenSSL may have read them from the socket.
                self._on_ready(HANGUP)

    @contextlib.asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        """Let one task send, once the requests before its own are sent and the SASL session lasts.

        Raises LinkLostError.
        """
        if self._sending.locked():
            await self._sending.acquire()
        else:
            self._sending.acquire_nowait()
        try:
            if self._flushed is not None:
                # Two tasks cannot wait for the same socket.
                await self._flushed.wait()
            # Only now: the session may have come near its end meanwhile.
            await self._keep_session()
            yield
        finally:
            self._sending.release()

    async def _keep_session(self) -> None:
        """Authenticate again if the SASL session ends soon. Raises LinkLostError."""
        session = self._session
        if session is None or not session.ends_soon or self.is_closed:
            return
        try:
            await session.renew(self._ask)
        except (SaslAuthenticationError, BrokerError, DecodeError) as error:
            logger.warning("broker %d: cannot authenticate again: %s", self.node, error)
            self.lose()
            raise LinkLostError(f"broker {self.node}: cannot authenticate again: {error}") from error
        except BaseException:
            # The broker accepts only the rest of the login now.
            self.close()
            raise

    async def _send(self, frame: Buffer, receiver: Receiver | None) -> None:
        """Send a request during `_turn`. Raises LinkLostError."""
        if self.is_closed:
            raise LinkLostError(f"broker {self.node} closed the connection")
        if receiver is not None:
            self._receivers.append(receiver)
        try:
            await self._transport.send(LENGTH.pack(len(frame)))
            await self._transport.send(frame)
            await self._transport.flush()
        except (OSError, trio.ClosedResourceError, trio.BrokenResourceError) as error:
            self.lose()
            raise LinkLostError(f"broker {self.node} closed the connection") from error
        except BaseException:
            # Part of a request may have been sent.
            self.close()
            raise

    def _on_ready(self, events: int) -> bool:
        """Read what has arrived, and give each complete answer to its receiver."""
        if self._is_streaming or self.is_closed:
            return False
        try:
            while True:
                space = self._buffer.space()
                if self._take_stream is not None and not self._begun_bytes:
                    space = space[:BEGINNING_BYTES]
                count = self._transport.receive_now(space)
                if count == WOULD_BLOCK:
                    return False
                if count == 0:
                    self.lose()
                    return False
                self._buffer.received(count)
                while (frame := self._buffer.next_frame()) is not None:
                    if not self._receivers:
                        raise InvalidFrameError("an answer without a request")
                    self._take_stream = None
                    self._receivers.popleft()(frame)
                    if self.is_closed:
                        return False
                if self._take_stream is not None and self._begin_stream_now(count, self._take_stream):
                    return False
                # The socket is empty; the end of the stream may have come with these bytes, in the same event.
                if count < len(space) and not events & HANGUP:
                    return False
        except (OSError, InvalidFrameError) as error:
            logger.info("closing the connection to broker %d: %s", self.node, error)
            self.lose()
            return False

    def _begin_stream_now(self, count: int, take_stream: StreamReceiver) -> bool:
        """Give the pending answer, of which ``count`` bytes were received now, away as a stream if it is large."""
        self._begun_bytes += count
        if self._begun_bytes < STREAM_HEAD.size:
            return False
        begin = self._buffer.consumed
        size_bytes, _ = STREAM_HEAD.unpack_from(self._buffer.view, begin)
        if size_bytes <= MOST_WHOLE_BYTES:
            return False
        end = begin + self._begun_bytes
        stream = self._new_stream()
        stream.begin(bytes(self._buffer.view[begin:end]))
        self._buffer.consume(end)
        self._receivers.clear()
        self._take_stream = None
        take_stream(stream)
        return True

    def _new_stream(self) -> Stream:
        self._is_streaming = True
        # Each piece of the answer would wake the task of `Readiness` as well.
        self._readiness.forget(self._transport.descriptor)
        return Stream(self, self._transport, self._limit_bytes, self._readiness)

    def lose(self) -> None:
        """End the link as the broker does, and say so."""
        if not self.is_closed:
            self.close()
            self._on_lost(self)

    def close(self) -> None:
        """End the link; pending requests get no answer."""
        if self.is_closed:
            return
        self.is_closed = True
        self._readiness.forget(self._transport.descriptor)
        self._transport.close()
        while self._receivers:
            self._receivers.popleft()(None)


def _complete(pending: Pending[bytes | None], answer: memoryview | None) -> None:
    """Complete with a copy of the frame of an answer, None if the link was lost."""
    pending.complete(None if answer is None else bytes(answer))
