"""Answers that pass through a gateway while they arrive: through a pipe, or copied where there is none."""

from __future__ import annotations

import errno
import fcntl
import os
import random
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trio
import trio.testing

from gregor.broker.server import relay_cy
from gregor.broker.server.client_connection import UnanswerableError
from gregor.broker.server.parts import Sink
from gregor.broker.server.readiness import Readiness
from gregor.broker.server.transport import SocketTransport
from gregor.gateway.fetching import streamed
from gregor.gateway.fetching.leader_hints import HintScanner
from gregor.gateway.fetching.streamed import StreamedAnswer, StreamMemory
from gregor.gateway.link import Link
from gregor.protocol.codec import decode, encode
from gregor.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, NodeEndpoint, PartitionData
from tests.conftest import pure_twin
from tests.gateway.test_leader_hints import CLIENT, Shown

CORRELATION_ID = (77).to_bytes(4, "big")
SHOWN = Shown("gateway", changes_node_ids=True)


def answer_body(*sizes: int) -> bytes:
    """Return the body of an answer to Fetch v16 with partitions of these sizes, without a hint."""
    chance = random.Random(len(sizes))
    parts = [PartitionData(partition_index=n, records=chance.randbytes(size)) for n, size in enumerate(sizes)]
    response = FetchResponse(responses=[FetchableTopicResponse(partitions=parts)])
    return b"\0" + encode(response, 16)


class Relay:
    """A client and a broker with a gateway's link between them."""

    def __init__(self, nursery: trio.Nursery) -> None:
        client, self.client = socket.socketpair()
        upstream, self.broker = socket.socketpair()
        self.transport = SocketTransport(client)
        self.lost: list[Link] = []
        self.link = Link(
            SocketTransport(upstream), 1, {}, Readiness(), nursery, limit_bytes=1 << 26, on_lost=self.lost.append
        )

    def close(self) -> None:
        """Close all sockets."""
        self.transport.close()
        self.link.close()
        self.client.close()
        self.broker.close()

    async def pass_on(self, memory: StreamMemory, *, reads_hints: bool) -> None:
        """Pass one answer on, as a connection does."""
        stream = await self.link.begin_stream(b"a request", trio.Event())
        part = StreamedAnswer(stream, memory, HintScanner(stream.remaining, 16, SHOWN, CLIENT) if reads_hints else None)
        sink = Sink(self.transport, part.size)
        await part.send_to(sink)
        sink.finish()
        await self.transport.flush()


@pytest.fixture
def new_relay(nursery: trio.Nursery) -> Iterator[Callable[[], Relay]]:
    """Provide relays, and close their sockets at the end."""
    relays: list[Relay] = []

    def new() -> Relay:
        relays.append(Relay(nursery))
        return relays[-1]

    yield new
    for relay in relays:
        relay.close()


async def send_in_steps(to: socket.socket, data: bytes, steps: Callable[[], int]) -> None:
    """Send data a little at a time."""
    to.setblocking(False)
    while data:
        size = steps()
        rest, data = data[:size], data[size:]
        while rest:
            await trio.lowlevel.wait_writable(to)
            rest = rest[to.send(rest) :]
        await trio.sleep(0.001)


async def read_slowly(from_: socket.socket, size_bytes: int, received: bytearray) -> None:
    """Read what a client gets, with pauses in which the socket is full."""
    from_.setblocking(False)
    while len(received) < size_bytes:
        await trio.testing.wait_all_tasks_blocked()
        await trio.lowlevel.wait_readable(from_)
        received += from_.recv(70_000)


async def until(is_so: Callable[[], bool]) -> None:
    """Wait until something is so."""
    while not is_so():  # noqa: ASYNC110
        await trio.sleep(0.001)


@pytest.mark.parametrize("has_pipe", [True, False])
@pytest.mark.parametrize("reads_hints", [True, False])
@pytest.mark.parametrize("sizes", [(2_000_000,), (100, 300_000, 0, 31_000, 700_000), (10,) * 200])
@pytest.mark.parametrize("step_bytes", [1_000_000, 50_001])
async def test_an_answer_arrives_as_it_was_sent(
    nursery: trio.Nursery,
    new_relay: Callable[[], Relay],
    has_pipe: bool,
    reads_hints: bool,
    sizes: tuple[int, ...],
    step_bytes: int,
) -> None:
    relay, memory = new_relay(), StreamMemory()
    memory.pipes.are_usable = has_pipe
    body = answer_body(*sizes)
    frame = (len(body) + 4).to_bytes(4, "big") + CORRELATION_ID + body
    received = bytearray()
    nursery.start_soon(send_in_steps, relay.broker, frame, lambda: step_bytes)
    nursery.start_soon(read_slowly, relay.client, len(body) + 4, received)
    await relay.pass_on(memory, reads_hints=reads_hints)
    await until(lambda: len(received) == len(body) + 4)
    assert received == CORRELATION_ID + body
    assert relay.link.is_idle
    relay.link.close()
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize("has_pipe", [True, False])
async def test_two_clients_at_once_get_their_own_bytes(
    nursery: trio.Nursery, new_relay: Callable[[], Relay], has_pipe: bool
) -> None:
    memory, relays = StreamMemory(), [new_relay() for _ in range(2)]
    memory.pipes.are_usable = has_pipe
    bodies = [bytes([number]) * 3_000_000 for number in range(2)]
    received = [bytearray() for _ in relays]
    for relay, body, found in zip(relays, bodies, received, strict=True):
        frame = (len(body) + 4).to_bytes(4, "big") + CORRELATION_ID + body
        nursery.start_soon(send_in_steps, relay.broker, frame, lambda: 90_000)
        nursery.start_soon(read_slowly, relay.client, len(body) + 4, found)
    async with trio.open_nursery() as passing:
        for relay in relays:
            passing.start_soon(lambda relay: relay.pass_on(memory, reads_hints=False), relay)
    await until(lambda: all(len(found) == 3_000_004 for found in received))
    assert received == [CORRELATION_ID + body for body in bodies]
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize("has_moved", [False, True])
async def test_a_system_without_splice_gets_copies(
    nursery: trio.Nursery, new_relay: Callable[[], Relay], monkeypatch: pytest.MonkeyPatch, has_moved: bool
) -> None:
    """The bytes that a pipe holds when the client's socket turns out to take none from pipes are copied too."""
    relay, memory = new_relay(), StreamMemory()
    splice, client = os.splice, relay.transport.descriptor

    def fail(source: int, target: int, size_bytes: int, flags: int) -> int:
        if target == client or not has_moved:
            raise OSError(errno.EINVAL, "")
        return splice(source, target, size_bytes, flags=flags)

    monkeypatch.setattr(streamed, "Relay", pure_twin(Path(relay_cy.__file__).with_name("relay_cy.py")).Relay)
    monkeypatch.setattr(os, "splice", fail)
    body = answer_body(500_000)
    received = bytearray()
    frame = (len(body) + 4).to_bytes(4, "big") + CORRELATION_ID + body
    nursery.start_soon(send_in_steps, relay.broker, frame, lambda: 1_000_000)
    nursery.start_soon(read_slowly, relay.client, len(body) + 4, received)
    await relay.pass_on(memory, reads_hints=True)
    await until(lambda: len(received) == len(body) + 4)
    assert received == CORRELATION_ID + body
    assert not memory.pipes.are_usable
    nursery.cancel_scope.cancel()


async def test_a_broker_that_ends_within_piped_records_leaves_no_complete_answer(
    nursery: trio.Nursery, new_relay: Callable[[], Relay]
) -> None:
    relay, memory = new_relay(), StreamMemory()
    body = answer_body(900_000)
    frame = (len(body) + 4).to_bytes(4, "big") + CORRELATION_ID + body
    received = bytearray()

    async def break_off() -> None:
        await send_in_steps(relay.broker, frame[:400_000], lambda: 100_000)
        relay.broker.close()

    nursery.start_soon(break_off)
    nursery.start_soon(read_slowly, relay.client, len(body) + 4, received)
    with pytest.raises(UnanswerableError, match="incomplete"):
        await relay.pass_on(memory, reads_hints=False)
    assert relay.lost == [relay.link]
    nursery.cancel_scope.cancel()


async def test_a_client_that_leaves_ends_its_answer_and_no_other_client_gets_its_bytes(
    nursery: trio.Nursery, new_relay: Callable[[], Relay]
) -> None:
    gone, other, memory = new_relay(), new_relay(), StreamMemory()
    body = bytes(3_000_000)
    frame = (len(body) + 4).to_bytes(4, "big") + CORRELATION_ID + body

    async def send_until_closed() -> None:
        with pytest.raises(OSError):
            await send_in_steps(gone.broker, frame, lambda: 1_000_000)

    nursery.start_soon(send_until_closed)
    with trio.CancelScope() as scope:
        nursery.start_soon(cancel_when_blocked, scope)
        await gone.pass_on(memory, reads_hints=False)
    assert scope.cancelled_caught
    assert gone.link.is_closed
    received = bytearray()
    frame = (500_004).to_bytes(4, "big") + CORRELATION_ID + b"\1" * 500_000
    nursery.start_soon(send_in_steps, other.broker, frame, lambda: 100_000)
    nursery.start_soon(read_slowly, other.client, 500_004, received)
    await other.pass_on(memory, reads_hints=False)
    await until(lambda: len(received) == 500_004)
    assert received == frame[4:]
    nursery.cancel_scope.cancel()


async def cancel_when_blocked(scope: trio.CancelScope) -> None:
    """Cancel once everything waits: the client's socket and the pipe are full."""
    await trio.testing.wait_all_tasks_blocked(0.01)
    scope.cancel()


@pytest.mark.parametrize("fault", ["no pipes are left", "the user's pipes have reached their limit"])
async def test_without_a_pipe_an_answer_is_copied(
    nursery: trio.Nursery, new_relay: Callable[[], Relay], monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    relay, memory, received = new_relay(), StreamMemory(), bytearray()

    def fail(*_: object) -> tuple[int, int]:
        raise OSError(errno.EMFILE if fault == "no pipes are left" else errno.EPERM, fault)

    place = (os, "pipe2") if fault == "no pipes are left" else (fcntl, "fcntl")
    monkeypatch.setattr(*place, fail)
    frame = (500_004).to_bytes(4, "big") + CORRELATION_ID + b"\1" * 500_000
    nursery.start_soon(send_in_steps, relay.broker, frame, lambda: 100_000)
    nursery.start_soon(read_slowly, relay.client, 500_004, received)
    await relay.pass_on(memory, reads_hints=False)
    await until(lambda: len(received) == 500_004)
    assert received == frame[4:]
    assert memory.pipes.are_usable
    nursery.cancel_scope.cancel()


async def test_hints_behind_piped_records_have_known_addresses(
    nursery: trio.Nursery, new_relay: Callable[[], Relay]
) -> None:
    relay, memory = new_relay(), StreamMemory()
    parts = [PartitionData(partition_index=0, records=bytes(800_000))]
    endpoints = [NodeEndpoint(node_id=2, host="kafka-2.internal", port=9092)]
    response = FetchResponse(responses=[FetchableTopicResponse(partitions=parts)], node_endpoints=endpoints)
    body = b"\0" + encode(response, 16)
    frame = (len(body) + 4).to_bytes(4, "big") + CORRELATION_ID + body
    received = bytearray()
    nursery.start_soon(send_in_steps, relay.broker, frame, lambda: 1_000_000)
    nursery.start_soon(read_slowly, relay.client, len(body) + 4, received)
    await relay.pass_on(memory, reads_hints=True)
    await until(lambda: len(received) == len(body) + 4)
    found = decode(FetchResponse, memoryview(received)[5:], 16).node_endpoints
    assert [endpoint.host for endpoint in found] == [SHOWN.host]
    assert b"kafka-2" not in received
    assert received[:-60] == frame[4:-60]
    nursery.cancel_scope.cancel()
