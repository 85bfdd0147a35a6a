"""A full socket: borrowed memory is copied and pipes are emptied before the first wait of any kind."""

from __future__ import annotations

import os
import socket
from functools import partial

import pytest
import trio
import trio.testing

from gregor.broker.server.transport import GATHERED_BYTES, SocketTransport


@pytest.mark.parametrize("gathered_bytes", [0, 100])
async def test_borrowed_memory_is_copied_before_a_send_waits_for_a_full_socket(
    nursery: trio.Nursery, gathered_bytes: int
) -> None:
    broker_side, client_side = socket.socketpair()
    with client_side:
        transport = SocketTransport(broker_side)
        filling = b"\1" * 65536
        filled = 0
        try:
            while True:
                filled += broker_side.send(filling)
        except BlockingIOError:
            pass
        transport.gather(b"\2" * gathered_bytes)
        buffer = bytearray(b"\3" * (GATHERED_BYTES + 1))
        lent_back: list[bool] = []
        nursery.start_soon(partial(transport.send, buffer, before_wait=lambda: lent_back.append(True)))
        await trio.testing.wait_all_tasks_blocked()
        assert lent_back == [True]
        buffer[:] = b"\4" * len(buffer)
        received = bytearray()
        client_side.setblocking(False)
        while len(received) < filled + gathered_bytes + len(buffer):
            await trio.lowlevel.wait_readable(client_side)
            received += client_side.recv(1 << 20)
        assert received[filled:] == b"\2" * gathered_bytes + b"\3" * len(buffer)
        transport.close()


def filled_pipe(data: bytes) -> tuple[int, int]:
    """Return a pipe with these bytes in it."""
    read_end, write_end = os.pipe2(os.O_NONBLOCK)
    assert os.write(write_end, data) == len(data)
    return read_end, write_end


async def received_by(client_side: socket.socket, size_bytes: int) -> bytes:
    """Return what a client receives."""
    client_side.setblocking(False)
    received = bytearray()
    while len(received) < size_bytes:
        await trio.lowlevel.wait_readable(client_side)
        received += client_side.recv(1 << 20)
    return bytes(received)


async def test_a_closed_transport_does_not_use_the_next_socket_with_its_descriptor() -> None:
    broker_side, client_side = socket.socketpair()
    transport = SocketTransport(broker_side)
    descriptor = transport.descriptor
    transport.gather(b"for the first client")
    transport.close()
    client_side.close()
    others = [end for _ in range(2) for end in socket.socketpair()]
    try:
        assert descriptor in [end.fileno() for end in others]
        with pytest.raises(OSError, match="Bad file descriptor"):
            transport.flush_now()
        for end in others:
            end.setblocking(False)
            with pytest.raises(BlockingIOError):
                end.recv(1)
    finally:
        for end in others:
            end.close()


async def test_a_disconnected_client_raises_the_error_of_the_system_call() -> None:
    broker_side, client_side = socket.socketpair()
    transport = SocketTransport(broker_side)
    client_side.close()
    transport.gather(b"an answer")
    with pytest.raises(BrokenPipeError):
        transport.flush_now()
    transport.close()


async def test_a_full_socket_keeps_the_gathered_bytes_that_it_has_not_accepted() -> None:
    broker_side, client_side = socket.socketpair()
    with client_side:
        transport = SocketTransport(broker_side)
        sent = bytes(range(256)) * 8192
        transport.gather(sent)
        assert not transport.flush_now()
        received = bytearray(client_side.recv(1 << 20))
        while not transport.flush_now():
            received += client_side.recv(1 << 20)
        transport.close()
        while piece := client_side.recv(1 << 20):
            received += piece
    assert received == sent
