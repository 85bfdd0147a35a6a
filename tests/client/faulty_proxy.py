"""A TCP proxy in front of a broker that can delay answers, cut them in the middle, and refuse connections.

Metadata would lead clients around it, so the broker behind it has the proxy's address as its `advertised.listeners`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import trio

from tests.broker_process import BrokerProcess, running_broker
from tests.free_ports import free_address


@contextmanager
def broker_for_proxy(directory: Path, *overrides: str) -> Iterator[tuple[BrokerProcess, int]]:
    """Provide a broker, and the port that it advertises instead of its own."""
    port = free_address()[1]
    with running_broker(directory, f"advertised.listeners=PLAINTEXT://127.0.0.1:{port}", *overrides) as broker:
        yield broker, port


@asynccontextmanager
async def faulty_proxy(broker: BrokerProcess, port: int) -> AsyncIterator[FaultyProxy]:
    """Provide a proxy on `port` for the length of a block."""
    async with trio.open_nursery() as nursery:
        yield await nursery.start(FaultyProxy(broker.address).run, port)
        nursery.cancel_scope.cancel()


class FaultyProxy:
    """A proxy that passes bytes on in both directions until a test disturbs it."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self.cut_after_bytes: int | None = None
        """Answers are passed on up to so many more bytes, then every connection is cut, once."""
        self.answer_delay_s = 0.0
        self.refuses = False
        self.cuts = 0
        self._streams: set[trio.SocketStream] = set()

    async def run(self, port: int, *, task_status: trio.TaskStatus[FaultyProxy] = trio.TASK_STATUS_IGNORED) -> None:
        listeners = await trio.open_tcp_listeners(port, host="127.0.0.1")
        async with trio.open_nursery() as nursery:
            await nursery.start(trio.serve_listeners, self._serve, listeners)
            task_status.started(self)

    async def _serve(self, client: trio.SocketStream) -> None:
        if self.refuses:
            return
        try:
            broker = await trio.open_tcp_stream(*self._target)
        except OSError:
            return
        self._streams |= {client, broker}
        async with broker, trio.open_nursery() as nursery:
            nursery.start_soon(self._requests, client, broker, nursery.cancel_scope)
            nursery.start_soon(self._answers, broker, client, nursery.cancel_scope)
        self._streams -= {client, broker}

    async def _requests(self, source: trio.SocketStream, sink: trio.SocketStream, end: trio.CancelScope) -> None:
        await self._pass(source, sink)
        end.cancel()

    async def _pass(self, source: trio.SocketStream, sink: trio.SocketStream) -> None:
        try:
            async for data in source:
                await sink.send_all(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass

    async def _answers(self, source: trio.SocketStream, sink: trio.SocketStream, end: trio.CancelScope) -> None:
        try:
            async for data in source:
                if self.answer_delay_s:
                    await trio.sleep(self.answer_delay_s)
                if self.cut_after_bytes is not None:
                    data = data[: self.cut_after_bytes]
                    self.cut_after_bytes -= len(data)
                await sink.send_all(data)
                if self.cut_after_bytes == 0:
                    self.cut_after_bytes = None
                    self.cuts += 1
                    await self.cut_all()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        end.cancel()

    async def cut_all(self) -> None:
        """End every connection now."""
        for stream in list(self._streams):
            await trio.aclose_forcefully(stream)
