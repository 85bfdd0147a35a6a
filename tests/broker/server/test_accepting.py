"""Acceptors of listening sockets, and many clients that connect before the server accepts the first of them."""

from __future__ import annotations

import errno
import logging
import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import cast

import pytest
import trio

from gregor.broker.config.listeners import Endpoint, SocketOptions, open_sockets
from gregor.broker.server.accepting import Acceptor
from gregor.broker.server.server import ACCEPTED_IN_A_TURN
from tests.broker.server.test_server import Limits, Running
from tests.waiting import PATIENCE_S, eventually

MANY_CLIENTS = 2 * ACCEPTED_IN_A_TURN + 5


@contextmanager
def listening_on(host: str) -> Iterator[socket.socket]:
    """Open a listening socket on a free port of a host during the context."""
    (listening,) = open_sockets(Endpoint("PLAINTEXT", host, 0), SocketOptions())
    with listening:
        yield listening


@pytest.mark.parametrize(
    ("host", "dialled"),
    [("127.0.0.1", "127.0.0.1"), ("0.0.0.0", "127.0.0.2"), ("", "127.0.0.3")],
)
async def test_a_client_is_accepted_with_both_addresses_and_the_listeners_options(host: str, dialled: str) -> None:
    with listening_on(host) as listening:
        port = listening.getsockname()[1]
        acceptor = Acceptor(listening)
        with socket.create_connection((dialled, port)) as client, trio.fail_after(PATIENCE_S):
            while (accepted := await acceptor.next_client()) is None:
                pass
            with accepted.socket as ours:
                assert accepted.peer == client.getsockname()
                assert accepted.local == (dialled, port)
                assert ours.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


async def test_an_ipv6_client_is_accepted_with_both_addresses() -> None:
    if not socket.has_dualstack_ipv6():
        pytest.skip("this machine has no IPv6")
    with listening_on("") as listening:
        try:
            client = socket.create_connection(("::1", listening.getsockname()[1]))
        except OSError as error:
            pytest.skip(f"this machine has no address ::1: {error.strerror}")
        with client, trio.fail_after(PATIENCE_S):
            acceptor = Acceptor(listening)
            while (accepted := await acceptor.next_client()) is None:
                pass
            accepted.socket.close()
            assert accepted.local == ("::1", listening.getsockname()[1])
            assert accepted.peer == client.getsockname()[:2]


class Failing:
    """A listening socket that accepts nothing, for one reason."""

    def __init__(self, reason: int) -> None:
        self._reason = reason

    def setsockopt(self, *_: int) -> None: ...

    def getsockname(self) -> tuple[str, int]:
        return "127.0.0.1", 1

    def accept(self) -> None:
        raise OSError(self._reason, "no")


@pytest.mark.parametrize(("reason", "is_told"), [(errno.EMFILE, True), (errno.ECONNABORTED, False)])
async def test_after_an_error_the_acceptor_waits_and_tells_what_the_operator_can_change(
    reason: int, is_told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    acceptor = Acceptor(cast(socket.socket, Failing(reason)))
    with caplog.at_level(logging.WARNING):
        assert await acceptor.next_client() is None
    assert ("cannot accept connections now" in caplog.text) == is_told


@pytest.mark.parametrize("most", [MANY_CLIENTS, 7])
async def test_many_clients_that_connect_at_once_are_served_within_the_limits(nursery: trio.Nursery, most: int) -> None:
    limits = Limits(max_connections=most)
    running = Running(limits, options=SocketOptions(backlog=MANY_CLIENTS))
    with ExitStack() as opened:
        clients = [
            opened.enter_context(socket.create_connection(("127.0.0.1", running.port))) for _ in range(MANY_CLIENTS)
        ]
        for client in clients:
            client.sendall(struct.pack(">i", 1) + b"?")
            client.setblocking(False)
        nursery.start_soon(running.run)
        counts = []
        for client in clients:
            with trio.fail_after(PATIENCE_S):
                await trio.lowlevel.wait_readable(client)
            counts.append(running.server.connection_count)
            assert client.recv(100)[4:].startswith(b"127.0.0.1")
            client.close()
        assert max(counts) <= most
        await eventually(lambda: running.server.connection_count == 0)
    running.stop.set()
