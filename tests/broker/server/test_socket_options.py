"""The send buffers of clients on this machine and of others."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping

import pytest
import trio

from gregor.broker.config import BrokerConfig
from gregor.broker.server.socket_options import LOCAL_SEND_BUFFER_BYTES, SEND_BUFFER_BYTES, socket_options
from tests.broker.server.test_server import Limits, Running, ask


def send_buffer_of_the_other_end(client: socket.socket) -> int:
    """Return SO_SNDBUF of the connection's other end, which is in this process, as it was set."""
    for name in os.listdir("/proc/self/fd"):
        try:
            end = socket.socket(fileno=os.dup(int(name)))
        except OSError:
            continue
        with end:
            try:
                if end.getpeername() == client.getsockname():
                    # Linux doubles the value, for its own book-keeping (socket(7)).
                    return end.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) // 2
            except OSError:
                continue
    raise AssertionError("no such connection")


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs /proc, and addresses of loopback as on Linux")
@pytest.mark.parametrize(
    ("properties", "address", "expected_bytes"),
    [
        ({}, "127.0.0.1", LOCAL_SEND_BUFFER_BYTES),
        ({}, "127.0.0.2", SEND_BUFFER_BYTES),
        ({"socket.send.buffer.bytes": "65536"}, "127.0.0.1", 65536),
        ({"socket.send.buffer.bytes": "65536"}, "127.0.0.2", 65536),
    ],
)
async def test_the_send_buffer_is_kafkas_for_clients_on_this_machine_and_larger_for_others(
    properties: Mapping[str, str], address: str, expected_bytes: int, nursery: trio.Nursery
) -> None:
    running = Running(Limits(), options=socket_options(BrokerConfig(properties)))
    nursery.start_soon(running.run)
    with trio.socket.socket() as client:
        await client.bind((address, 0))
        await client.connect(("127.0.0.1", running.port))
        assert await ask(trio.SocketStream(client), b"?")
        with socket.socket(fileno=os.dup(client.fileno())) as ours:
            assert send_buffer_of_the_other_end(ours) == expected_bytes
    running.stop.set()
