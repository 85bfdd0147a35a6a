"""A connection to one upstream broker, for the requests of one client connection.

Requests leave in the order in which they are given, with the correlation ids of the client, so answers can be passed
back as they are. While all answers are small, the task of `Readiness` reads them and gives each to the receiver of its
request. An answer of any size is read as a stream by the task that asked for it (`begin_stream`).
"""

from __future__ import annotations

import contextlib
import logging
import select
from collections import deque
from collections.abc import Callable, Mapping
from struct import Struct

import trio

from ..broker.server.client_connection import ClientGoneError, Hangup
from ..broker.server.parts import Buffer
from ..broker.server.pending import Pending
from ..broker.server.readiness import HANGUP, Readiness
from ..broker.server.receive_buffer_cy import LENGTH, InvalidFrameError, ReceiveBuffer
from ..broker.server.transport import WOULD_BLOCK, SocketTransport
from ..protocol.errors import BrokerError, DecodeError
from ..security.errors import SaslAuthenticationError
from .upstream_session import UpstreamSession

logger = logging.getLogger(__name__)

GATHERED_BYTES = 64 * 1024
"""Largest request that is copied and sent without a task."""
UNWATCHED_S = 1.0
"""The time for which the first byte of a stream is awaited before the client's disconnect is awaited as well."""
DISCARDED_BYTES = 64 * 1024
"""Bytes of an answer that is of no use which are read at a time."""
CORRELATION_ID = Struct(">i")
STREAM_HEAD = Struct(">ii")
"""Size and correlation id of an answer."""

Receiver = Callable[[memoryview | None], None]
"""Takes the frame of an answer, without its length and valid during the call, or None if the link was lost."""


class LinkLostError(Exception):
    """An error for an upstream connection that ended before the answer, which the broker may or may not have made."""


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
        self._renewing = trio.Lock()
        self._transport = transport
        self._readiness = readiness
        self._nursery = nursery
        self._limit_bytes = limit_bytes
        self._on_lost = on_lost
        self._buffer = ReceiveBuffer(limit_bytes)
        self._receivers: deque[Receiver] = deque()
        self._is_streaming = False
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
        """Whether `pass_on` may be called."""
        return (
            self._flushed is None
            and not self._is_streaming
            and not self.is_closed
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
        await self._keep_session()
        await self._send(frame)

    async def exchange(self, frame: Buffer, hangup: Hangup) -> bytes:
        """Send a request and return the frame of its answer.

        Raises LinkLostError, and ClientGoneError if the client disconnects first.
        """
        await self._keep_session()
        return await self._exchange(frame, hangup)

    async def _exchange(self, frame: Buffer, hangup: Hangup | None) -> bytes:
        pending: Pending[bytes | None] = Pending(ends_with_client=True)
        self._receivers.append(lambda answer: pending.complete(None if answer is None else bytes(answer)))
        await self._send(frame)
        answer = await pending.wait(hangup)
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
        await self._keep_session()
        assert self.is_idle
        self._is_streaming = True
        # Each piece of the answer would wake the task of `Readiness` as well.
        self._readiness.forget(self._transport.descriptor)
        try:
            await self._send(frame)
        except BaseException:
            self.close()
            raise
        return Stream(self, self._transport, self._limit_bytes, self._readiness.wait_alone)

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

    async def _keep_session(self) -> None:
        """Authenticate again if the SASL session ends soon; other requests wait meanwhile. Raises LinkLostError."""
        session = self._session
        if session is None or not session.ends_soon:
            return
        async with self._renewing:
            if not session.ends_soon:
                return
            try:
                await session.renew(lambda frame: self._exchange(frame, None))
            except (SaslAuthenticationError, BrokerError, DecodeError) as error:
                logger.warning("broker %d: cannot authenticate again: %s", self.node, error)
                self.lose()
                raise LinkLostError(f"broker {self.node}: cannot authenticate again: {error}") from error
            except BaseException:
                # The broker accepts only the rest of the login now.
                self.close()
                raise

    async def _send(self, frame: Buffer) -> None:
        if self._flushed is not None:
            # Two tasks cannot wait for the same socket.
            await self._flushed.wait()
        if self.is_closed:
            raise LinkLostError(f"broker {self.node} closed the connection")
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
                    self._receivers.popleft()(frame)
                    if self.is_closed:
                        return False
                # The socket is empty; the end of the stream may have come with these bytes, in the same event.
                if count < len(space) and not events & HANGUP:
                    return False
        except (OSError, InvalidFrameError) as error:
            logger.info("closing the connection to broker %d: %s", self.node, error)
            self.lose()
            return False

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


class Stream:
    """An answer that is read from the socket as its bytes arrive; `size` is that of its frame."""

    __slots__ = ("_limit_bytes", "_link", "_transport", "correlation_id", "remaining", "size", "wait_alone")

    def __init__(
        self, link: Link, transport: SocketTransport, limit_bytes: int, wait_alone: Callable[[int, int], bool]
    ) -> None:
        self._link = link
        self._transport = transport
        self._limit_bytes = limit_bytes
        self.wait_alone = wait_alone
        """Waits for a socket without a pass of trio's loop (`Readiness.wait_alone`)."""
        self.size = 0
        self.correlation_id = 0
        self.remaining = 0
        """Bytes that `read_into` has not returned yet, the correlation id left out."""

    @property
    def node(self) -> int:
        """The node id of the broker."""
        return self._link.node

    async def read_head(self, hangup: Hangup) -> None:
        """Read the size and the correlation id. Raises as `Link.begin_stream`."""
        try:
            await self._read_head(hangup)
        except BaseException:
            self._link.close()
            raise

    async def read_all(self) -> bytearray:
        """Return the frame of the answer, read to its end. Raises LinkLostError."""
        frame = bytearray(self.size)
        CORRELATION_ID.pack_into(frame, 0, self.correlation_id)
        with memoryview(frame) as view:
            position = CORRELATION_ID.size
            while count := await self.read_into(view[position:]):
                position += count
        return frame

    async def discard(self) -> None:
        """Read the answer to its end and drop it. Raises LinkLostError."""
        with memoryview(bytearray(DISCARDED_BYTES)) as space:
            while await self.read_into(space):
                pass

    async def _read_head(self, hangup: Hangup) -> None:
        head = memoryview(bytearray(STREAM_HEAD.size))
        count = await self._first_bytes(head, hangup)
        while count < STREAM_HEAD.size:
            count += await self._some(head[count:])
        self.size, self.correlation_id = STREAM_HEAD.unpack(head)
        self.remaining = self.size - LENGTH.size
        if not 0 <= self.remaining <= self._limit_bytes:
            self._link.lose()
            raise LinkLostError(f"broker {self.node} announced an answer of {self.size} bytes")

    async def read_into(self, space: memoryview) -> int:
        """Read up to ``len(space)`` bytes of the answer and return their number, 0 at its end. Raises LinkLostError."""
        if self.remaining == 0:
            return 0
        count = await self._some(space[: self.remaining])
        self.remaining -= count
        return count

    @property
    def is_plain(self) -> bool:
        """Whether `move_now` may be called."""
        return self._transport.is_plain

    def move_now(self, pipe: int, most_bytes: int) -> int:
        """Move up to ``most_bytes``, of which as many must be left, into an empty pipe, without waiting.

        Returns their number, `WOULD_BLOCK`, or `HAS_NO_PIPES` if the system cannot do so. Raises LinkLostError.
        """
        try:
            count = self._transport.receive_into_pipe(pipe, most_bytes)
        except OSError as error:
            raise self._lost(error) from error
        if count == 0:
            raise self._lost("closed the connection")
        if count > 0:
            self.remaining -= count
        return count

    async def wait_readable(self, most_bytes: int) -> None:
        """Wait until ``most_bytes`` have arrived, which must be on their way. Raises LinkLostError."""
        try:
            self._transport.wake_at(most_bytes)
            if not self.wait_alone(self._transport.descriptor, select.POLLIN):
                await trio.lowlevel.wait_readable(self._transport.descriptor)
        except (OSError, trio.ClosedResourceError) as error:
            raise self._lost(error) from error

    def end(self) -> None:
        """Give the link back; a link whose answer was not read completely is closed."""
        if self.remaining:
            self._link.close()
        self._link.end_stream()

    async def _first_bytes(self, space: memoryview, hangup: Hangup) -> int:
        with trio.move_on_after(UNWATCHED_S):
            return await self._some(space)
        is_readable = False
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_cancel_at_hangup, hangup, nursery.cancel_scope)
            with contextlib.suppress(trio.ClosedResourceError):
                await trio.lowlevel.wait_readable(self._transport.descriptor)
                is_readable = True
            nursery.cancel_scope.cancel()
        if not is_readable:
            raise ClientGoneError("disconnected while its request was pending")
        return await self._some(space)

    async def _some(self, space: memoryview) -> int:
        try:
            while (count := self._transport.receive_now(space)) == WOULD_BLOCK:
                await self.wait_readable(len(space))
        except OSError as error:
            raise self._lost(error) from error
        if count == 0:
            raise self._lost("closed the connection")
        return count

    def _lost(self, reason: object) -> LinkLostError:
        """End the link, whose socket has failed, and return the error."""
        self._link.lose()
        return LinkLostError(f"broker {self.node}: {reason}")


async def _cancel_at_hangup(hangup: Hangup, scope: trio.CancelScope) -> None:
    await hangup.wait()
    scope.cancel()
