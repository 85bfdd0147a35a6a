"""One client's connection: frames in, answers out, strictly in order."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

import trio

from ..protocol.errors import DecodeError
from .parts import BUFFERS, Answer, BrokenPromiseError, Buffer, Sink, total_size
from .receive_buffer import LENGTH, InvalidFrameError, ReceiveBuffer
from .requests import ClientConnection, ClientGoneError

logger = logging.getLogger(__name__)


class UnanswerableError(Exception):
    """A request that Kafka answers by closing the connection; its text is the one line in the log."""


REFUSALS = (InvalidFrameError, DecodeError, UnanswerableError)


class Transport(Protocol):
    """Bytes in and out; `SocketTransport` is the one for plain sockets."""

    async def receive_into(self, space: memoryview) -> int: ...
    async def take_turns(self) -> None: ...
    async def send(self, data: Buffer, *, before_wait: Callable[[], None] | None = None) -> None: ...
    async def send_file(self, descriptor: int, position: int, size_bytes: int) -> None: ...
    async def flush(self) -> None: ...
    def close(self) -> None: ...


class Responder(Protocol):
    """What turns a request frame into an answer (`dispatch.Dispatcher`)."""

    def answer_now(self, frame: memoryview, client: ClientConnection) -> Answer | None:
        """The answer if it can be given without waiting and without typed objects, else None."""

    async def answer(self, frame: memoryview, client: ClientConnection) -> Answer | None:
        """The answer, or None where the client expects none.

        Raises UnanswerableError, DecodeError or ClientGoneError.
        """


class Connection:
    """Reads requests and answers them one after the other until the client goes, errs, or `drain` is called.

    All complete frames in the buffer are answered before the next read, and their small answers leave with one call.
    """

    def __init__(
        self, transport: Transport, responder: Responder, client: ClientConnection, *, frame_limit_bytes: int
    ) -> None:
        self._transport = transport
        self._responder = responder
        self._buffer = ReceiveBuffer(frame_limit_bytes)
        self._reading = trio.CancelScope()
        self._muted = trio.CancelScope()
        self._waits_for_input = False
        self._draining = False
        self.client = client
        self.last_active = trio.current_time()

    @property
    def waits_for_input(self) -> bool:
        """No request is being worked on."""
        return self._waits_for_input

    async def run(self) -> None:
        """Serve the client to the end. Never raises for what the client does; closes the transport."""
        try:
            with self._reading:
                await self._serve()
        except REFUSALS as error:
            logger.info("closing %s: %s", self._description(), error)
        except (OSError, trio.ClosedResourceError, trio.BrokenResourceError, ClientGoneError) as error:
            logger.debug("%s is gone: %s", self._description(), error)
        except (BrokenPromiseError, EOFError) as error:
            logger.error("closing %s: %s", self._description(), error)
        except Exception:
            logger.exception("closing %s after an unforeseen error", self._description())
        finally:
            self._transport.close()

    def drain(self) -> None:
        """Stop after the requests that have been received completely."""
        self._draining = True
        self._muted.cancel()
        if self._waits_for_input:
            self._reading.cancel()

    def disconnect(self) -> None:
        """Stop at once."""
        self._reading.cancel()

    def give_back_memory(self) -> None:
        """Release what an idle connection does not need."""
        if self._waits_for_input:
            self._buffer.shrink()

    async def _serve(self) -> None:
        while not self._draining:
            self._waits_for_input = True
            count = await self._transport.receive_into(self._buffer.space())
            self._waits_for_input = False
            if count == 0:
                return
            self._buffer.received(count)
            self.last_active = trio.current_time()
            await self._answer_received()

    async def _answer_received(self) -> None:
        try:
            while (frame := self._buffer.next_frame()) is not None:
                answer = self._responder.answer_now(frame, self.client)
                if answer is None:
                    # The handler may wait for long; what is answered must not wait with it.
                    await self._transport.flush()
                    answer = await self._responder.answer(frame, self.client)
                if answer is not None:
                    await self._send(answer)
                if self.client.throttle_ms:
                    await self._wait_for_quota()
        except REFUSALS:
            await self._transport.flush()
            raise
        await self._transport.flush()
        await self._transport.take_turns()

    async def _wait_for_quota(self) -> None:
        """Read nothing more from this client for a while; it has been told why (KIP-219)."""
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

    def _description(self) -> str:
        host, port = self.client.peer
        return f"connection {self.client.connection_id} from {host}:{port}"
