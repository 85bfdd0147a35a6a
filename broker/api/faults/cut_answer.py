"""A truncated answer: its header announces the full length, but the bytes and the connection end early."""

from __future__ import annotations

from collections.abc import Callable

from ...server.client_connection import UnanswerableError
from ...server.parts import BUFFERS, Answer, Buffer, Sink, total_size


class CutAnswer:
    """A part that replaces all other parts of an answer that is to be truncated."""

    def __init__(self, answer: Answer, kept_bytes: int, reason: str) -> None:
        self._answer = answer
        self._kept_bytes = kept_bytes
        self._reason = reason
        self.size = total_size(answer)
        """The size that the frame announces, as if the answer were complete."""

    async def send_to(self, sink: Sink) -> None:
        """Send the first bytes, then raise UnanswerableError, which closes the connection."""
        shortened = Sink(_ShortOutlet(sink, self._kept_bytes, self._reason), self.size)
        for part in self._answer:
            if isinstance(part, BUFFERS):
                await shortened.write(part)
            else:
                await part.send_to(shortened)
        raise UnanswerableError(self._reason)


class _ShortOutlet:
    """An outlet that passes a limited number of bytes on to the client; see `parts.Outlet`."""

    def __init__(self, sink: Sink, kept_bytes: int, reason: str) -> None:
        self._sink = sink
        self._left_bytes = kept_bytes
        self._reason = reason

    def gather(self, data: Buffer) -> None:
        size_bytes = self._take(len(data))
        self._sink.write_now(bytes(memoryview(data)[:size_bytes]))

    async def send(self, data: Buffer, *, before_wait: Callable[[], None] | None = None) -> None:
        size_bytes = self._take(len(data))
        # The owner of the buffer may change it while this task waits.
        await self._sink.write(bytes(memoryview(data)[:size_bytes]))
        self._check_end()

    async def send_file(self, descriptor: int, position: int, size_bytes: int) -> None:
        await self._sink.send_file(descriptor, position, self._take(size_bytes))
        self._check_end()

    def _take(self, size_bytes: int) -> int:
        taken_bytes = min(size_bytes, self._left_bytes)
        self._left_bytes -= taken_bytes
        return taken_bytes

    def _check_end(self) -> None:
        if not self._left_bytes:
            raise UnanswerableError(self._reason)
