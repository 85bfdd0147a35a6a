"""A full socket: borrowed memory is copied and pipes are emptied before the first wait of any kind."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from functools import partial

import pytest
import trio
import trio.testing

from gregor.broker.server.transport import GATHERED_BYTES, HAS_NO_PIPES, WOULD_BLOCK, SocketTransport


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


@pytest.mark.parametrize("gathered_bytes", [0, 100])
@pytest.mark.parametrize("is_full", [False, True])
@pytest.mark.parametrize("has_splice", [False, True])
async def test_bytes_leave_a_pipe_behind_the_gathered_ones_and_stay_in_it_while_the_socket_is_full(
    monkeypatch: pytest.MonkeyPatch, gathered_bytes: int, is_full: bool, has_splice: bool
) -> None:
    def fail(*_: object, **__: object) -> int:
        raise OSError(errno.EINVAL, "")

    broker_side, client_side = socket.socketpair()
    with client_side:
        transport = SocketTransport(broker_side)
        filled = 0
        if is_full:
            with contextlib.suppress(BlockingIOError):
                while True:
                    filled += broker_side.send(b"\1" * 65536)
        transport.gather(b"\2" * gathered_bytes)
        read_end, write_end = filled_pipe(b"\3" * 50_000)
        if not has_splice:
            monkeypatch.setattr(os, "splice", fail)
        received, left = b"", 50_000
        while left or not transport.flush_now():
            sent = transport.send_pipe_now(read_end, left) if left else 0
            assert sent != 0 or not left
            if sent > 0:
                left -= sent
            else:
                client_side.settimeout(10)
                received += client_side.recv(30_000)
        received += await received_by(client_side, filled + gathered_bytes + 50_000 - len(received))
        assert received[filled:] == b"\2" * gathered_bytes + b"\3" * 50_000
        transport.close()
        os.close(read_end)
        os.close(write_end)


async def test_a_pipe_to_a_socket_that_has_failed_raises() -> None:
    broker_side, client_side = socket.socketpair()
    client_side.close()
    transport = SocketTransport(broker_side)
    read_end, write_end = filled_pipe(b"\3" * 50_000)
    with pytest.raises(OSError, match="Broken pipe"):
        transport.send_pipe_now(read_end, 50_000)
    transport.close()
    os.close(read_end)
    os.close(write_end)


@pytest.mark.parametrize("code", [errno.EINVAL, errno.ENOSYS, errno.EPERM])
async def test_a_system_without_splice_for_sockets_is_told_from_a_lost_connection(
    monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    broker_side, client_side = socket.socketpair()
    read_end, write_end = filled_pipe(b"")
    transport = SocketTransport(broker_side)
    with client_side:
        assert transport.receive_into_pipe(write_end, 100) == WOULD_BLOCK
        client_side.sendall(b"some bytes")
        assert transport.receive_into_pipe(write_end, 4) == 4
        assert os.read(read_end, 100) == b"some"

        def fail(*_: object, **__: object) -> int:
            raise OSError(code, "")

        monkeypatch.setattr(os, "splice", fail)
        assert transport.receive_into_pipe(write_end, 100) == HAS_NO_PIPES
        monkeypatch.undo()
        os.read(read_end, transport.receive_into_pipe(write_end, 100))
    assert transport.receive_into_pipe(write_end, 100) == 0
    transport.close()
    os.close(read_end)
    os.close(write_end)
