"""The server over real sockets: limits on connections, answers to clients, idle connections, shutdown."""

from __future__ import annotations

import socket
import struct
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from gregor.broker.config.listeners import (
    Endpoint,
    ListenerError,
    SocketOptions,
    parse_counts,
    parse_endpoints,
    plain_address,
    security_protocol,
)
from gregor.broker.server.client_census import ClientCensus
from gregor.broker.server.client_connection import ClientConnection
from gregor.broker.server.parts import Answer
from gregor.broker.server.server import Server
from gregor.storage.clock import ManualClock
from tests.waiting import PATIENCE_S, eventually

MANY = 2**31 - 1
DRAIN_S = 3_600.0
IN_FLIGHT_S = 0.1
"""A busy kernel may hold bytes on loopback for so long; time jumps only when none can be on their way."""


@dataclass
class Limits:
    """Limits that are Kafka's defaults, which tests change."""

    socket_request_max_bytes: int = 1000
    max_connections: int = MANY
    max_connections_per_ip: int = MANY
    max_connections_per_ip_overrides: str = ""
    connections_max_idle_ms: int = 600_000
    gregor_max_unauthenticated_connections: int = MANY
    gregor_unauthenticated_buffer_bytes: int = MANY
    gregor_network_busy_poll_max_us: int = 0
    of_listeners: dict[str, int] = field(default_factory=dict)

    def listener_limit(self, name: str, listener: str) -> int:
        assert name == "max.connections"
        return self.of_listeners.get(listener, MANY)


@dataclass
class Throttle:
    """A throttle with an answer in milliseconds that a test sets."""

    wait_ms: int = 0
    refuse_ms: int = 0

    def connected(self, listener: str, *, is_protected: bool) -> int:
        return self.wait_ms

    def connected_from(self, address: str) -> int:
        assert address.startswith("127.0.0.")
        return self.refuse_ms


class WhereAmI:
    """A responder that answers with the address that the client dialled; `wait` delays the answer until `release`."""

    plain_lane = None

    def __init__(self) -> None:
        self.has_begun = trio.Event()
        self.release = trio.Event()

    def is_pipelined(self, frame: memoryview, client: ClientConnection) -> bool:
        return False

    async def answer(self, frame: memoryview, client: ClientConnection) -> Answer | None:
        if bytes(frame) == b"wait":
            self.has_begun.set()
            await self.release.wait()
        host, port = client.local_address
        return [f"{host}:{port} {client.listener_name} {client.peer[0]}".encode()]


class Running:
    """A server on a free port of loopback."""

    def __init__(
        self,
        limits: Limits,
        *listeners: str,
        protected: str | None = None,
        options: SocketOptions = SocketOptions(),  # noqa: B008 (it cannot change)
    ) -> None:
        self.limits = limits
        self.throttle = Throttle()
        self.responder = WhereAmI()
        self.stop = trio.Event()
        self.stopped = trio.Event()
        census = ClientCensus(ManualClock(), 100)
        endpoints = [Endpoint(name, "127.0.0.1", 0) for name in listeners or ("PLAINTEXT",)]
        self.server = Server(
            endpoints,
            self.responder,
            census,
            limits,
            throttle=self.throttle,
            options=options,
            drain_s=DRAIN_S,
            protected=protected,
        )
        self.port = self.server.bound[0].port

    async def run(self) -> None:
        await self.server.run(self.stop)
        self.stopped.set()

    async def connect(self, listener: int = 0) -> trio.SocketStream:
        return await trio.open_tcp_stream("127.0.0.1", self.server.bound[listener].port)


async def ask(stream: trio.SocketStream, request: bytes) -> bytes:
    """Send one request and read its answer; empty if the server closes instead."""
    await stream.send_all(struct.pack(">i", len(request)) + request)
    return await answer_on(stream)


async def answer_on(stream: trio.SocketStream) -> bytes:
    with trio.fail_after(PATIENCE_S):
        try:
            return bytes(await stream.receive_some(4096))[4:]
        except trio.BrokenResourceError:
            return b""


async def is_closed(stream: trio.SocketStream) -> bool:
    return await answer_on(stream) == b""


@pytest.fixture
def limits() -> Limits:
    return Limits()


@pytest.fixture
async def running(limits: Limits, nursery: trio.Nursery) -> AsyncIterator[Running]:
    running = Running(limits)
    nursery.start_soon(running.run)
    yield running
    running.stop.set()


async def test_the_responder_knows_the_local_address_and_the_listener_of_a_connection(running: Running) -> None:
    async with await running.connect() as stream:
        assert await ask(stream, b"where") == f"127.0.0.1:{running.port} PLAINTEXT 127.0.0.1".encode()


async def test_connections_per_ip_are_limited(running: Running, limits: Limits) -> None:
    limits.max_connections_per_ip = 2
    async with await running.connect() as first, await running.connect() as second:
        assert await ask(first, b"?")
        assert await ask(second, b"?")
        async with await running.connect() as third:
            assert await is_closed(third)
    await eventually(lambda: running.server.connection_count == 0)
    async with await running.connect() as fourth:
        assert await ask(fourth, b"?")


async def test_an_address_may_have_its_own_limit(running: Running, limits: Limits) -> None:
    limits.max_connections_per_ip = 0
    limits.max_connections_per_ip_overrides = "10.0.0.1:5, 127.0.0.1:1"
    async with await running.connect() as first, await running.connect() as second:
        assert await ask(first, b"?")
        assert await is_closed(second)


async def test_beyond_max_connections_the_next_one_waits_for_a_slot(running: Running, limits: Limits) -> None:
    limits.max_connections = 1
    async with await running.connect() as first, await running.connect() as second:
        assert await ask(first, b"?")
        await second.send_all(struct.pack(">i", 1) + b"?")
        await wait_all_tasks_blocked(0.01)
        assert running.server.connection_count == 1
        await first.aclose()
        assert await answer_on(second)


async def test_max_connections_can_be_set_for_one_listener(limits: Limits, nursery: trio.Nursery) -> None:
    limits.of_listeners["A"] = 1
    running = Running(limits, "A", "B")
    nursery.start_soon(running.run)
    async with await running.connect() as first, await running.connect() as second, await running.connect(1) as other:
        assert await ask(first, b"?")
        await second.send_all(struct.pack(">i", 1) + b"?")
        assert await ask(other, b"?")
        await wait_all_tasks_blocked(0.01)
        assert running.server.connection_count == 2
        await first.aclose()
        assert await answer_on(second)
    running.stop.set()


async def test_at_max_connections_a_broker_replaces_the_longest_idle_client(
    limits: Limits, nursery: trio.Nursery
) -> None:
    limits.max_connections = 2
    running = Running(limits, "CLIENTS", "BROKERS", protected="BROKERS")
    nursery.start_soon(running.run)
    async with await running.connect() as idle, await running.connect() as busy:
        assert await ask(idle, b"?")
        assert await ask(busy, b"?")
        async with await running.connect(1) as broker:
            assert await ask(broker, b"?")
            assert await is_closed(idle)
            assert await ask(busy, b"?")
            async with await running.connect(1) as second, await running.connect(1) as third:
                assert await ask(second, b"?")
                assert await is_closed(busy)
                assert await ask(third, b"?"), "brokers never close each other's connections"
                assert await ask(broker, b"?")
    running.stop.set()


@pytest.mark.parametrize("of_listener", [False, True])
async def test_a_higher_limit_lets_waiting_clients_in(limits: Limits, nursery: trio.Nursery, of_listener: bool) -> None:
    """Kafka: `ConnectionQuotas.updateBrokerMaxConnections` notifies the acceptors; no connection has to end first."""
    limits.of_listeners["PLAINTEXT"] = 1 if of_listener else MANY
    limits.max_connections = MANY if of_listener else 1
    running = Running(limits)
    nursery.start_soon(running.run)
    async with await running.connect() as first, await running.connect() as second:
        assert await ask(first, b"?")
        await second.send_all(struct.pack(">i", 1) + b"?")
        await wait_all_tasks_blocked(0.01)
        assert running.server.connection_count == 1
        limits.of_listeners["PLAINTEXT"] = limits.max_connections = 2
        running.server.take_changes()
        assert await answer_on(second)
        assert await ask(first, b"?")
    running.stop.set()


@pytest.mark.parametrize("idle_ms", [600_000, -1])
async def test_a_lower_limit_applies_to_open_connections(
    limits: Limits, nursery: trio.Nursery, autojump_clock: MockClock, idle_ms: int
) -> None:
    autojump_clock.autojump_threshold = IN_FLIGHT_S
    limits.connections_max_idle_ms = idle_ms
    running = Running(limits)
    nursery.start_soon(running.run)
    async with await running.connect() as idle, await running.connect() as busy:
        assert await ask(idle, b"?")
        autojump_clock.jump(1)
        assert await ask(busy, b"?")
        limits.max_connections = 1
        running.server.take_changes()
        assert await is_closed(idle)
        assert await ask(busy, b"?")
    running.stop.set()


async def test_idle_connections_are_closed(limits: Limits, nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    autojump_clock.autojump_threshold = IN_FLIGHT_S
    limits.connections_max_idle_ms = 60_000
    running = Running(limits)
    nursery.start_soon(running.run)
    async with await running.connect() as stream:
        assert await ask(stream, b"?")
        began = trio.current_time()
        assert await stream.receive_some(1) == b""
        assert 60 <= trio.current_time() - began < 70
    running.stop.set()


async def test_a_frame_over_socket_request_max_bytes_closes_the_connection(running: Running, limits: Limits) -> None:
    async with await running.connect() as stream:
        await stream.send_all(struct.pack(">i", limits.socket_request_max_bytes + 1))
        assert await is_closed(stream)


async def test_shutdown_answers_requests_in_flight_and_closes_idle_connections(running: Running) -> None:
    async with await running.connect() as idle, await running.connect() as busy:
        assert await ask(idle, b"?")
        await busy.send_all(struct.pack(">i", 4) + b"wait")
        await running.responder.has_begun.wait()
        running.stop.set()
        assert await is_closed(idle)
        with pytest.raises(OSError, match="all attempts"):
            await running.connect()
        running.responder.release.set()
        assert await answer_on(busy)
    with trio.fail_after(PATIENCE_S):
        await running.stopped.wait()


async def test_shutdown_ends_after_the_drain_timeout(
    limits: Limits, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    autojump_clock.autojump_threshold = IN_FLIGHT_S
    running = Running(limits)
    nursery.start_soon(running.run)
    async with await running.connect() as busy:
        await busy.send_all(struct.pack(">i", 4) + b"wait")
        await running.responder.has_begun.wait()
        running.stop.set()
        began = trio.current_time()
        await running.stopped.wait()
        assert trio.current_time() - began == pytest.approx(DRAIN_S)


async def test_a_connection_over_the_brokers_rate_is_served_later(running: Running) -> None:
    """KIP-612: the waiting connection is closed if the broker stops first."""
    running.throttle.wait_ms = 1
    async with await running.connect() as stream:
        assert await ask(stream, b"x")
    running.throttle.wait_ms = 3_600_000
    async with await running.connect() as stream:
        await wait_all_tasks_blocked(0.01)
        running.stop.set()
        assert await is_closed(stream)


async def test_a_connection_over_the_rate_of_its_ip_address_is_closed_after_a_delay(running: Running) -> None:
    running.throttle.refuse_ms = 20
    began = trio.current_time()
    async with await running.connect() as stream:
        assert await ask(stream, b"x") == b""
    assert trio.current_time() - began >= 0.02
    running.throttle.refuse_ms = 0
    async with await running.connect() as stream:
        assert await ask(stream, b"x")
        assert running.server.connection_count == 1


async def test_a_port_in_use_is_a_listener_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        endpoint = Endpoint("PLAINTEXT", "127.0.0.1", taken.getsockname()[1])
        census = ClientCensus(ManualClock(), 1)
        with pytest.raises(ListenerError, match=r"cannot listen on PLAINTEXT://127.0.0.1:.*in use; change listeners"):
            Server(
                [endpoint],
                WhereAmI(),
                census,
                Limits(),
                throttle=Throttle(),
                options=SocketOptions(),
                drain_s=1,
            )


@pytest.mark.parametrize(
    ("text", "endpoint"),
    [
        ("PLAINTEXT://localhost:9092", Endpoint("PLAINTEXT", "localhost", 9092)),
        ("plaintext://:9092", Endpoint("PLAINTEXT", "", 9092)),
        (" SSL://[::1]:1 ", Endpoint("SSL", "::1", 1)),
        ("A://0.0.0.0:0", Endpoint("A", "0.0.0.0", 0)),
    ],
)
def test_endpoints_are_parsed_and_printed(text: str, endpoint: Endpoint) -> None:
    assert parse_endpoints("listeners", [text]) == [endpoint]
    assert parse_endpoints("listeners", [str(endpoint)]) == [endpoint]


@pytest.mark.parametrize(
    "items", [["localhost:9092"], ["A://x"], ["A://x:99999"], ["A://x:-1"], ["A://x:1", "A://y:2"]]
)
def test_malformed_or_duplicate_endpoints_are_refused(items: list[str]) -> None:
    with pytest.raises(ListenerError, match="listeners"):
        parse_endpoints("listeners", items)


def test_the_security_protocol_comes_from_the_listener_name_or_the_protocol_map() -> None:
    assert security_protocol("PLAINTEXT", {}) == "PLAINTEXT"
    assert security_protocol("INSIDE", {"INSIDE": "PLAINTEXT"}) == "PLAINTEXT"
    with pytest.raises(ListenerError, match=r"listener\.security\.protocol\.map"):
        security_protocol("INSIDE", {})


def test_ipv4_mapped_addresses_become_ipv4_addresses() -> None:
    assert plain_address(("::ffff:10.0.0.1", 5, 0, 0)) == ("10.0.0.1", 5)
    assert plain_address(("::1", 5, 0, 0)) == ("::1", 5)


def test_max_connections_per_ip_overrides_are_parsed() -> None:
    assert parse_counts("") == {}
    assert parse_counts("127.0.0.1:3,[::1]:4") == {"127.0.0.1": 3, "::1": 4}
    for text in ("127.0.0.1", "127.0.0.1:x", "127.0.0.1:-1", "no.such.host.invalid:1"):
        with pytest.raises(ListenerError, match=r"max\.connections\.per\.ip\.overrides"):
            parse_counts(text)
