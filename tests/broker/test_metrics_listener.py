"""The metrics listener serves whoever asks, however many connect and say nothing."""

from __future__ import annotations

from http import HTTPStatus

import trio

from gregor.broker.reporting.http_listener import MAX_CLIENTS, Page, Pages, serve_pages


async def hello() -> Page:
    return Page(HTTPStatus.OK, b"x" * 4_000_000)


PAGES: Pages = {"/": hello}
REQUEST = b"GET / HTTP/1.1\r\n\r\n"


async def test_silent_clients_and_slow_readers_keep_nobody_out(nursery: trio.Nursery) -> None:
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listener.socket.getsockname()[1]
    nursery.start_soon(serve_pages, [listener], PAGES)

    async def dial() -> trio.SocketStream:
        return await trio.open_tcp_stream("127.0.0.1", port)

    async def ask() -> bytes:
        answer = b""
        async with await dial() as stream:
            await stream.send_all(REQUEST)
            async for data in stream:
                answer += data
        return answer

    silent = [await dial() for _ in range(2 * MAX_CLIENTS)]
    assert (await ask()).startswith(b"HTTP/1.1 200")
    slow = [await dial() for _ in range(2 * MAX_CLIENTS)]
    for stream in slow:
        try:
            await stream.send_all(REQUEST)
        except trio.BrokenResourceError:
            continue
    assert (await ask()).endswith(b"x" * 4_000_000)
    for stream in [*silent, *slow]:
        await stream.aclose()
    nursery.cancel_scope.cancel()
