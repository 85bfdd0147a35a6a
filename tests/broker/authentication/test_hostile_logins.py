"""Clients that never log in, or send anything but a login: what each costs is bounded, and nobody else notices them."""

from __future__ import annotations

import logging
import random
import socket
import ssl
from collections.abc import Iterator
from contextlib import suppress

import pytest
import trio

from gregor.broker.server.accepting import Accepted, Acceptor
from gregor.broker.server.admission import Admission, printable
from gregor.broker.server.receive_buffer_cy import INITIAL_BYTES, ReceiveBuffer
from gregor.broker.server.server import ACCEPTED_IN_A_TURN, Server
from gregor.protocol.framing import LENGTH
from gregor.security.password import Password
from gregor.security.scram import ScramCredential, ScramServer
from tests.asking import a_client
from tests.broker.authentication.secured_broker import OAUTH_MODULE, SecuredBroker
from tests.broker.authentication.test_listeners import HANDSHAKE, header
from tests.waiting import PATIENCE_S, eventually

SECURED = ("SSL", "SASL_PLAINTEXT", "SASL_SSL")
PATIENT_TURNS = 2_000
UNSUPPORTED_VERSIONS = header(18, 999)


async def is_served(secured: SecuredBroker, listener: str) -> bool:
    async with secured.admin(listener, **secured.client(listener)) as admin:
        return (await admin.describe_cluster()).controller_id == 1


def connections(secured: SecuredBroker, listener: str) -> int:
    return secured.broker.services.serving.activity[listener].connection_count


# --- no client keeps the event loop


class EndlessInput:
    """A client that always has sent one more request already."""

    descriptor = -1

    def __init__(self) -> None:
        self.reads = 0

    def receive_now(self, space: memoryview) -> int:
        self.reads += 1
        assert self.reads < PATIENT_TURNS, "no other task had a turn"
        frame = LENGTH.pack(len(UNSUPPORTED_VERSIONS)) + UNSUPPORTED_VERSIONS
        space[: len(frame)] = frame
        return len(frame)


class NeverDone:
    is_complete = False

    async def answer(self, frame: memoryview, respond: object) -> list[bytes]:
        return [b""]


class Guard:
    timeout_s = 1000.0
    failure_delay_s = 0.0

    def identify(self, client: object, certificate: object) -> None:
        raise AssertionError("a client without TLS")

    def authenticator(self, client: object) -> NeverDone:
        return NeverDone()


async def test_endless_requests_before_a_login_do_not_block_the_event_loop() -> None:
    """A client may ask for versions again and again: its requests are answered without a wait for the socket."""

    async def respond(frame: memoryview) -> None:
        raise AssertionError

    async def send(answer: object) -> None:
        return

    source = EndlessInput()
    admission = Admission(Guard(), a_client(), source, ReceiveBuffer(1000), lambda: None)  # type: ignore[arg-type]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(admission.run, respond, send)
        for _ in range(100):
            await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    assert 10 < source.reads < PATIENT_TURNS


async def test_endless_connections_do_not_block_the_event_loop(
    secured: SecuredBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    accepted = 0
    turns = 100

    async def next_client(_: Acceptor) -> Accepted:
        nonlocal accepted
        accepted += 1
        assert accepted <= 2 * turns * ACCEPTED_IN_A_TURN * len(SECURED), "no other task had a turn"
        return Accepted(socket.socket(), ("127.0.0.1", 1), ("127.0.0.1", 2))

    monkeypatch.setattr(Acceptor, "next_client", next_client)
    monkeypatch.setattr(Server, "_admit", lambda self, accepted, endpoint, serving: accepted.socket.close())
    # Each listener takes up the flood after one more client of its own.
    (await trio.open_tcp_stream("127.0.0.1", secured.port("SSL"))).socket.close()
    for _ in range(turns):
        await trio.lowlevel.checkpoint()
    assert accepted > ACCEPTED_IN_A_TURN


# --- memory


@pytest.mark.parametrize("properties", [{"gregor.unauthenticated.buffer.bytes": "1048576"}])
async def test_long_requests_before_a_login_share_a_limit(secured: SecuredBroker) -> None:
    """Of 20 clients that send half a request each, few keep what they have sent; one that logs in is served."""
    listener = "SASL_PLAINTEXT"
    server = _server(secured, listener)
    half = LENGTH.pack(500_000) + bytes(300_000)
    streams = [await trio.open_tcp_stream("127.0.0.1", secured.port(listener)) for _ in range(20)]
    most = 0
    async with trio.open_nursery() as nursery:

        async def pour(stream: trio.SocketStream) -> None:
            with suppress(trio.BrokenResourceError):
                await stream.send_all(half)

        for stream in streams:
            nursery.start_soon(pour, stream)
        with trio.fail_after(PATIENCE_S):
            while most <= INITIAL_BYTES:
                await trio.lowlevel.checkpoint()
                most = _large_buffers(server)
        for _ in range(500):
            await trio.lowlevel.checkpoint()
            most = max(most, _large_buffers(server))
    assert most <= 1048576
    assert await is_served(secured, listener)
    await eventually(lambda: _large_buffers(server) <= 1048576)
    for stream in streams:
        await trio.aclose_forcefully(stream)


def _server(secured: SecuredBroker, listener: str) -> Server:
    """Return the server of a listener; servers of tests that have ended may wait for the garbage collector."""
    import gc

    activity = secured.broker.services.serving.activity[listener]
    servers = (found for found in gc.get_objects() if isinstance(found, Server))
    return next(server for server in servers if server.activity.get(listener) is activity)


def _large_buffers(server: Server) -> int:
    sizes = (connection.buffer_bytes for connection in server._unauthenticated)
    return sum(size for size in sizes if size > INITIAL_BYTES)


@pytest.mark.parametrize("listener", SECURED)
@pytest.mark.parametrize("properties", [{"gregor.max.unauthenticated.connections": "50"}])
async def test_the_number_of_unauthenticated_connections_is_limited(secured: SecuredBroker, listener: str) -> None:
    """300 clients that begin a login and stop are never more than 50 connections, and one that logs in is served."""
    begin = LENGTH.pack(100) + b"\0" if listener == "SASL_PLAINTEXT" else client_hello()[:50]
    streams: list[trio.SocketStream] = []
    server = _server(secured, listener)
    for _ in range(300):
        stream = await trio.open_tcp_stream("127.0.0.1", secured.port(listener))
        with suppress(trio.BrokenResourceError):
            await stream.send_all(begin)
        streams.append(stream)
        assert len(server._unauthenticated) <= 50
    await eventually(lambda: connections(secured, listener) <= 50)
    assert await is_served(secured, listener)
    for stream in streams:
        await trio.aclose_forcefully(stream)


# --- malformed handshakes


def client_hello() -> bytes:
    """Return the first bytes that a TLS client sends."""
    hello = ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), hello, server_hostname="localhost").do_handshake()
    return hello.read()


def malformed_hellos() -> Iterator[bytes]:
    """Yield handshakes that end early, have other bytes in places, or claim other lengths; the same ones each time."""
    hello, chosen = client_hello(), random.Random(1)
    for end in (1, 4, 5, 6, 9, 43, len(hello) // 2, len(hello) - 1):
        yield hello[:end]
    for _ in range(40):
        changed = bytearray(hello)
        for _ in range(chosen.randint(1, 8)):
            changed[chosen.randrange(len(changed))] = chosen.randrange(256)
        yield bytes(changed)
    yield hello[:3] + b"\xff\xff" + hello[5:]
    yield hello[:3] + b"\0\0"
    yield b"\x17" + hello[1:]
    yield b"\x15\x03\x01\0\x02\x02\x28"
    yield b"\x14\x03\x03\0\x01\x01" * 1000
    yield b"\x16\x03\x01\0\0" * 5000
    yield b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
    yield b"\x80\x2e\x01\0\x02" + bytes(60)
    yield bytes(20_000)


def malformed_logins() -> Iterator[bytes]:
    """Yield requests that are no logins, and logins with malformed tokens."""
    chosen = random.Random(2)
    for size in (-1, -(2**31), 2**31 - 1, 524_289, 0x16030100):
        yield LENGTH.pack(size) + bytes(100)
    begun = LENGTH.pack(len(HANDSHAKE)) + HANDSHAKE
    for _ in range(30):
        garbage = chosen.randbytes(chosen.randint(0, 300))
        frame = LENGTH.pack(len(garbage)) + garbage
        yield frame
        yield begun + frame
        token = header(36, 0) + LENGTH.pack(len(garbage)) + garbage
        yield begun + LENGTH.pack(len(token)) + token
    token = header(36, 0) + LENGTH.pack(2**31 - 1) + b"x"
    yield begun + LENGTH.pack(len(token)) + token
    name = header(17, 1) + b"\x7f\xff" + b"P" * 32767
    yield LENGTH.pack(len(name)) + name


@pytest.mark.parametrize("listener", ["PLAINTEXT", *SECURED])
@pytest.mark.parametrize("properties", [{"gregor.authentication.timeout.ms": "2000"}])
async def test_malformed_handshakes_log_no_error_and_other_clients_stay_connected(
    secured: SecuredBroker, listener: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Each is one line in the log at most, never a traceback; a client that is served meanwhile stays connected."""
    sent = [*malformed_hellos(), *malformed_logins()]
    async with secured.admin(listener, **secured.client(listener)) as admin:
        await admin.describe_cluster()
        before = connections(secured, listener)
        for data in sent:
            stream = await trio.open_tcp_stream("127.0.0.1", secured.port(listener))
            with suppress(trio.BrokenResourceError):
                await stream.send_all(data)
                await stream.send_eof()
                while await stream.receive_some():
                    pass
            await trio.aclose_forcefully(stream)
        assert (await admin.describe_cluster()).controller_id == 1
        await eventually(lambda: connections(secured, listener) == before)
    wrong = [record for record in caplog.records if record.levelno >= logging.ERROR or record.exc_info]
    assert not wrong, wrong[0].getMessage()
    assert all(len(record.getMessage()) < 1000 for record in caplog.records)


# --- what a client learns, and what it leaves


async def test_names_of_clients_that_do_not_log_in_are_not_recorded(secured: SecuredBroker) -> None:
    """Otherwise anybody could fill the census, and push known clients out of it."""
    software = b"\x08planted\x041.0\0"
    request = header(18, 3).replace(b"\0\1c", b"\0\7planted") + b"\0" + software
    stream = await trio.open_tcp_stream("127.0.0.1", secured.port("SASL_PLAINTEXT"))
    async with stream:
        await stream.send_all(LENGTH.pack(len(request)) + request)
        assert await stream.receive_some()
        assert "planted" not in str(secured.broker.services.clients.usages())
    await eventually(lambda: connections(secured, "SASL_PLAINTEXT") == 0)
    assert "planted" not in str(secured.broker.services.clients.usages())
    assert await is_served(secured, "SASL_PLAINTEXT")
    assert len(secured.broker.services.clients.usages()) == 1


def test_the_scram_challenge_of_an_unknown_user_is_the_same_on_each_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    """The salt and the iterations are as those of a user who exists, whatever process answers."""
    model = ScramCredential.of_password("SCRAM-SHA-256", Password("secret"), 8192, bytes(40))

    def challenge(name: str, process: int) -> list[str]:
        monkeypatch.setattr("gregor.security.scram._DECOY_KEY", bytes([process]) * 32)
        server = ScramServer("SCRAM-SHA-256", lambda name, is_token: None, lambda: model)
        return server.respond(f"n,,n={name},r=nonce".encode()).decode().split(",")[1:]

    first = challenge("mallory", 1)
    assert challenge("mallory", 2) == first
    assert challenge("other", 1) != first
    assert len(first[0]) == len("s=") + 56
    assert first[1] == "i=8192"


async def test_a_long_name_is_cut_in_the_log(secured: SecuredBroker, caplog: pytest.LogCaptureFixture) -> None:
    """A client chooses a part of the reason: it can neither fill the log nor begin a line in it."""
    login = f'{OAUTH_MODULE} required unsecuredLoginStringClaim_sub="olga";'
    config = secured.config("SASL_PLAINTEXT", sasl_mechanism="OAUTHBEARER", sasl_jaas_config=login)
    assert config.security is not None
    token = bytes(config.security.exchange().first())
    forged = b"n,a=" + b"x" * 100_000 + b"\nERROR forged," + token.partition(b",,")[2]
    request = header(36, 0) + LENGTH.pack(len(forged)) + forged
    handshake = header(17, 1) + b"\0\x0bOAUTHBEARER"
    stream = await trio.open_tcp_stream("127.0.0.1", secured.port("SASL_PLAINTEXT"))
    with caplog.at_level(logging.INFO):
        async with stream:
            await stream.send_all(b"".join(LENGTH.pack(len(frame)) + frame for frame in (handshake, request)))
            with suppress(trio.BrokenResourceError):
                while await stream.receive_some():
                    pass
    assert "Failed authentication with /127.0.0.1" in caplog.text
    assert all("\n" not in record.getMessage() and len(record.getMessage()) < 1000 for record in caplog.records)
    assert printable("a\nb\x1b[31m" + "x" * 1000) == "a?b?[31m" + "x" * 492 + "..."
