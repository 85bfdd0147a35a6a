"""The send buffers of clients, and the congestion control of those on this machine and of others."""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from gregor.broker.config import BrokerConfig
from gregor.broker.config.listeners import SocketOptions
from gregor.broker.server.pacing import LONGEST_NAME, PACING_PREFIX, UNPACED, pace, stop_pacing
from gregor.broker.server.socket_options import LISTEN_BACKLOG, SEND_BUFFER_BYTES, socket_options
from tests.broker.server.test_server import Limits, Running, ask


def other_end(client: socket.socket) -> socket.socket:
    """Return the connection's other end, which is in this process."""
    for name in os.listdir("/proc/self/fd"):
        try:
            end = socket.socket(fileno=os.dup(int(name)))
        except OSError:
            continue
        try:
            if end.getpeername() == client.getsockname():
                return end
        except OSError:
            pass
        end.close()
    raise AssertionError("no such connection")


@asynccontextmanager
async def accepted_from(address: str, options: SocketOptions) -> AsyncIterator[socket.socket]:
    """Yield the server's end of a connection from an address of this machine."""
    running = Running(Limits(), options=options)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(running.run)
        with trio.socket.socket() as client:
            await client.bind((address, 0))
            await client.connect(("127.0.0.1", running.port))
            assert await ask(trio.SocketStream(client), b"?")
            with socket.socket(fileno=os.dup(client.fileno())) as ours, other_end(ours) as end:
                yield end
        running.stop.set()


@pytest.mark.parametrize(("properties", "expected"), [({}, LISTEN_BACKLOG), ({"socket.listen.backlog.size": "7"}, 7)])
def test_hundreds_of_clients_may_wait_to_be_accepted_unless_the_operator_says_otherwise(
    properties: dict[str, str], expected: int
) -> None:
    assert socket_options(BrokerConfig(properties)).backlog == expected


needs_linux = pytest.mark.skipif(
    not os.path.isdir("/proc/self/fd"), reason="needs /proc, and addresses of loopback as on Linux"
)


@needs_linux
@pytest.mark.parametrize(
    ("properties", "address", "expected_bytes"),
    [
        ({}, "127.0.0.1", SEND_BUFFER_BYTES),
        ({}, "127.0.0.2", SEND_BUFFER_BYTES),
        ({"socket.send.buffer.bytes": "65536"}, "127.0.0.1", 65536),
        ({"socket.send.buffer.bytes": "65536"}, "127.0.0.2", 65536),
    ],
)
async def test_the_send_buffer_is_larger_than_kafkas_unless_it_is_set(
    properties: Mapping[str, str], address: str, expected_bytes: int
) -> None:
    async with accepted_from(address, socket_options(BrokerConfig(properties))) as end:
        # Linux doubles the value, for its own book-keeping (socket(7)).
        assert end.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) // 2 == expected_bytes


def congestion_control(connected: socket.socket) -> bytes:
    return connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, LONGEST_NAME).rstrip(b"\0")


@needs_linux
@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.2"])
async def test_only_clients_on_this_machine_are_not_paced_by_bbr(address: str) -> None:
    with socket.socket() as untouched:
        of_system = congestion_control(untouched)
    is_replaced = of_system.startswith(PACING_PREFIX) and address == "127.0.0.1"
    async with accepted_from(address, SocketOptions()) as end:
        assert congestion_control(end) == (UNPACED if is_replaced else of_system)


class FakeSocket(socket.socket):
    """A socket of a system with this congestion control, which may allow no other."""

    def __init__(self, name: bytes, *, may_choose: bool = True) -> None:
        super().__init__()
        self.chosen = name
        self._may_choose = may_choose

    def getsockopt(self, level: int, option: int, size: int = 0) -> Any:
        return self.chosen.ljust(size, b"\0") if option == socket.TCP_CONGESTION else super().getsockopt(level, option)

    def setsockopt(self, level: int, option: int, value: Any, length: int = 0) -> None:
        if not self._may_choose:
            raise PermissionError
        self.chosen = value


@pytest.mark.skipif(not hasattr(socket, "TCP_CONGESTION"), reason="needs TCP_CONGESTION")
@pytest.mark.parametrize(
    ("of_system", "may_choose", "returned", "of_listener"),
    [
        (b"bbr", True, b"bbr", UNPACED),
        (b"bbr3", True, b"bbr3", UNPACED),
        (b"bbr", False, b"", b"bbr"),
        (b"cubic", True, b"", b"cubic"),
        (b"dctcp", True, b"", b"dctcp"),
    ],
)
def test_only_bbr_is_replaced_in_listening_sockets_where_the_system_allows_a_choice(
    of_system: bytes, may_choose: bool, returned: bytes, of_listener: bytes
) -> None:
    with FakeSocket(of_system, may_choose=may_choose) as listening, FakeSocket(UNPACED) as remote:
        assert stop_pacing(listening) == returned
        assert listening.chosen == of_listener
        pace(remote, returned)
        assert remote.chosen == (returned or UNPACED)
