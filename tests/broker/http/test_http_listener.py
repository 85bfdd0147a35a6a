"""An HTTP listener answers all its clients, however many connect, send nothing, read nothing or send too much."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncGenerator
from http import HTTPStatus

import pytest
import trio
import trio.testing

from gregor.broker.config.listeners import ListenerError
from gregor.broker.http.limits import HttpLimits
from gregor.broker.http.listener import HttpListener
from gregor.broker.http.messages import HttpHandler, HttpRequest, HttpResponse, plain_text

LIMITS = HttpLimits(max_connections=4, max_header_bytes=1024, max_body_bytes=5000, timeout_s=10)
LARGE = b"x" * 4_000_000


async def pages(request: HttpRequest) -> HttpResponse:
    """Answer with the request itself, or with a body of the kind that the path names."""
    if request.path == "/large":
        return HttpResponse(HTTPStatus.OK, LARGE)
    if request.path == "/pieces":
        return HttpResponse(HTTPStatus.OK, many_pieces())
    if request.path == "/broken":
        raise RuntimeError("a fault of the handler")
    if request.path == "/late-fault":
        return HttpResponse(HTTPStatus.OK, pieces_then_fault())
    if request.method == "POST":
        return plain_text(HTTPStatus.OK, repr(request.form()))
    return plain_text(HTTPStatus.OK, f"{request.method} {request.segments} {request.query()}")


async def many_pieces() -> AsyncGenerator[bytes, None]:
    for _ in range(100):
        yield b"y" * 1000


async def pieces_then_fault() -> AsyncGenerator[bytes, None]:
    yield b"the beginning"
    raise RuntimeError("a fault of the body")


@pytest.fixture
def port(nursery: trio.Nursery) -> int:
    """Return the port of a listener that answers with `pages`."""
    return start(nursery, pages, LIMITS)


def start(nursery: trio.Nursery, handler: HttpHandler, limits: HttpLimits) -> int:
    listener = HttpListener("a.key", ["http://127.0.0.1:0"], handler, limits)
    nursery.start_soon(listener.run)
    return listener.bound[0].port


async def exchange(port: int, *sent: bytes) -> bytes:
    """Send pieces and return all that is answered until the listener closes."""
    async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
        for piece in sent:
            await stream.send_all(piece)
            await trio.testing.wait_all_tasks_blocked()
        return b"".join([data async for data in stream])


def get(path: str, *headers: str, version: str = "1.1") -> bytes:
    lines = [f"GET {path} HTTP/{version}", "Host: localhost", *headers]
    return "\r\n".join([*lines, "", ""]).encode()


async def test_several_requests_are_answered_on_one_connection(port: int) -> None:
    answer = await exchange(port, get("/a%2Fb/c?x=1&x=2&y="), get("/", "Connection: close"))
    assert answer.count(b"HTTP/1.1 200 OK") == 2
    assert b"GET ('a/b', 'c') {'x': '2', 'y': ''}" in answer


async def test_requests_that_arrive_together_are_answered_in_order(port: int) -> None:
    answer = await exchange(port, get("/1") + get("/2") + get("/3", "Connection: close"))
    assert [line for line in answer.splitlines() if line.startswith(b"GET")] == [
        b"GET ('1',) {}",
        b"GET ('2',) {}",
        b"GET ('3',) {}",
    ]


async def test_a_request_that_arrives_byte_by_byte_is_answered(port: int) -> None:
    assert b"200 OK" in await exchange(port, *(bytes([byte]) for byte in get("/", "Connection: close")))


async def test_head_has_the_length_and_no_body(port: int) -> None:
    head = await exchange(port, get("/large", "Connection: close").replace(b"GET", b"HEAD"))
    assert head.lower().endswith(b"content-length: 4000000\r\nconnection: close\r\n\r\n")
    assert (await exchange(port, get("/pieces", "Connection: close").replace(b"GET", b"HEAD"))).endswith(b"\r\n\r\n")


async def test_a_streamed_body_is_chunked_in_http_1_1_and_whole_in_http_1_0(port: int) -> None:
    chunked = await exchange(port, get("/pieces", "Connection: close"))
    assert b"transfer-encoding: chunked" in chunked.lower()
    assert chunked.count(b"y" * 1000) == 100
    assert chunked.endswith(b"0\r\n\r\n")
    whole = await exchange(port, get("/pieces", version="1.0"))
    assert whole.endswith(b"\r\n\r\n" + b"y" * 100_000)


async def test_a_posted_form_is_parsed_and_invalid_forms_get_400(port: int) -> None:
    head = b"POST / HTTP/1.1\r\nHost: h\r\nConnection: close\r\nExpect: 100-continue\r\n"
    form = head + b"Content-Type: application/x-www-form-urlencoded; charset=utf-8\r\nContent-Length: 13\r\n\r\n"
    answer = await exchange(port, form, b"a=%C3%A9&b=1+2")
    assert answer.startswith(b"HTTP/1.1 100")
    assert answer.decode().endswith("{'a': 'é', 'b': '1 '}\n")
    assert b" 400 " in await exchange(port, head + b"Content-Type: text/plain\r\nContent-Length: 1\r\n\r\na")
    fields = b"&".join(b"f%d=" % number for number in range(201))
    many = form.replace(b"Length: 13", b"Length: %d" % len(fields)) + fields
    assert b" 400 " in await exchange(port, many)


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"GET /" + b"a" * 2000, 431),
        (get("/", *(f"X-{number}: {number}" for number in range(400))), 431),
        (b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: -1\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 99999999999\r\n\r\n" + b"z" * 6000, 413),
        (b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nffff\r\n" + b"z" * 6000, 413),
        (b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nnot a length\r\n", 400),
        (get("/broken", "Connection: close"), 500),
    ],
)
async def test_malformed_oversized_and_failing_requests_get_their_http_status(
    port: int, request_bytes: bytes, status: int
) -> None:
    answer = await exchange(port, request_bytes)
    assert answer.startswith(b"HTTP/1.1 %d " % status)
    assert b"a fault of the handler" not in answer, "faults are for the log"


async def test_a_streamed_body_that_fails_has_no_final_chunk(port: int) -> None:
    answer = await exchange(port, get("/late-fault"))
    assert b"the beginning" in answer
    assert not answer.endswith(b"0\r\n\r\n")


async def test_silent_clients_and_slow_readers_do_not_block_other_clients(port: int) -> None:
    async def dial() -> trio.SocketStream:
        return await trio.open_tcp_stream("127.0.0.1", port)

    silent = [await dial() for _ in range(2 * LIMITS.max_connections)]
    assert b"200 OK" in await exchange(port, get("/", "Connection: close"))
    slow = [await dial() for _ in range(2 * LIMITS.max_connections)]
    for stream in slow:
        try:
            await stream.send_all(get("/large"))
        except trio.BrokenResourceError:
            continue
    assert (await exchange(port, get("/large", "Connection: close"))).endswith(LARGE)
    for stream in [*silent, *slow]:
        await stream.aclose()


async def test_idle_and_slow_clients_are_disconnected(port: int, autojump_clock: trio.testing.MockClock) -> None:
    started = trio.current_time()
    assert await exchange(port) == b""
    assert await exchange(port, b"GET / HT") == b""
    assert (await exchange(port, get("/"))).startswith(b"HTTP/1.1 200 OK")
    assert trio.current_time() - started == pytest.approx(3 * LIMITS.timeout_s)
    async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
        await stream.send_all(get("/large"))
        await trio.sleep(LIMITS.timeout_s + 1)
        received = b"".join([data async for data in stream])
    assert 0 < len(received) < len(LARGE)


def test_a_broker_without_http_listeners_does_not_load_the_http_library() -> None:
    code = "import sys, gregor.broker.app.broker; print([name for name in sys.modules if name.startswith('h11')])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout == b"[]\n"


async def test_a_listener_with_names_refuses_pages_of_other_sites(nursery: trio.Nursery) -> None:
    listener = HttpListener("a.key", ["http://127.0.0.1:0"], pages, LIMITS, names=["kafka.example"])
    nursery.start_soon(listener.run)
    port = listener.bound[0].port
    for host, status in (("kafka.example", 200), (f"127.0.0.1:{port}", 200), ("evil.example", 421)):
        request = get("/", "Connection: close").replace(b"localhost", host.encode())
        assert (await exchange(port, request)).startswith(b"HTTP/1.1 %d " % status)
    foreign = get("/", "Connection: close", "Origin: http://evil.example").replace(b"GET", b"POST")
    assert (await exchange(port, foreign)).startswith(b"HTTP/1.1 403 ")


@pytest.mark.parametrize(
    "address", ["https://127.0.0.1:0", "127.0.0.1:0", "http://127.0.0.1:99999", "http://127.0.0.1"]
)
def test_malformed_addresses_are_refused(address: str) -> None:
    with pytest.raises(ListenerError, match=r"a\.key: .* is not of the form"):
        HttpListener("a.key", [address], pages, LIMITS)


def test_an_address_in_use_closes_the_sockets_opened_before() -> None:
    first = HttpListener("a.key", ["http://127.0.0.1:0"], pages, LIMITS)
    taken = first.bound[0].port
    with pytest.raises(ListenerError):
        HttpListener("a.key", ["http://127.0.0.1:0", f"http://127.0.0.1:{taken}"], pages, LIMITS)
    first.close()
    HttpListener("a.key", [f"http://127.0.0.1:{taken}"], pages, LIMITS).close()
