"""Bytes that go from one socket to another through a pipe, in both builds."""

from __future__ import annotations

import errno
import os
import select
import socket
import threading
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from gregor.broker.server.relay_cy import Relay, RelayStop

PIPE_BYTES = 65536
PATIENCE_MS = 30_000


@pytest.fixture(autouse=True)
def _both_builds(record_build: str) -> None:
    """Run each test with both builds."""


class Ends(NamedTuple):
    """The sockets of a relay, and those of its peers."""

    sender: socket.socket
    source: socket.socket
    target: socket.socket
    receiver: socket.socket
    pipe: tuple[int, int]

    def relay(self, size_bytes: int) -> Relay:
        """Return a relay of ``size_bytes``."""
        return Relay(self.source.fileno(), self.target.fileno(), self.pipe, PIPE_BYTES, size_bytes)


@pytest.fixture
def ends() -> Iterator[Ends]:
    """Provide two connections and a pipe."""
    sender, source = socket.socketpair()
    target, receiver = socket.socketpair()
    source.setblocking(False)
    target.setblocking(False)
    pipe = os.pipe2(os.O_NONBLOCK)
    yield Ends(sender, source, target, receiver, pipe)
    for each in (sender, source, target, receiver):
        each.close()
    for descriptor in pipe:
        os.close(descriptor)


def received_by(receiver: socket.socket, size_bytes: int) -> bytes:
    """Return the next bytes that arrive."""
    found = b""
    while len(found) < size_bytes:
        piece = receiver.recv(size_bytes - len(found))
        assert piece
        found += piece
    return found


def test_bytes_arrive_while_the_relay_waits_for_both_sides(ends: Ends) -> None:
    data = os.urandom(900_000)
    found: list[bytes] = []
    threads = [
        threading.Thread(target=ends.sender.sendall, args=(data + b"the next answer",)),
        threading.Thread(target=lambda: found.append(received_by(ends.receiver, len(data)))),
    ]
    for thread in threads:
        thread.start()
    relay = ends.relay(len(data))
    while (stop := relay.run(PATIENCE_MS, -1, -1)) != RelayStop.MOVED:
        # A single wait is short, and the threads of a busy machine are slow.
        assert stop in (RelayStop.NEEDS_INPUT, RelayStop.FULL)
    for thread in threads:
        thread.join()
    assert found == [data]
    assert ends.source.recv(100) == b"the next answer"


def test_without_patience_nothing_is_awaited(ends: Ends) -> None:
    relay = ends.relay(3_000_000)
    assert relay.run(0, -1, -1) == RelayStop.NEEDS_INPUT
    assert (relay.left_bytes, relay.held_bytes) == (3_000_000, 0)
    ends.sender.setblocking(False)
    sent = 0
    while (stop := relay.run(0, -1, -1)) == RelayStop.NEEDS_INPUT:
        sent += ends.sender.send(bytes([sent % 251]) * 10_000)
    assert stop == RelayStop.FULL
    # All that was sent is at the receiver, in the pipe, or in the source's socket.
    waiting = ends.source.recv(1 << 20) if select.select([ends.source], [], [], 0)[0] else b""
    accepted = sent - len(waiting) - relay.held_bytes
    assert relay.left_bytes + relay.held_bytes == 3_000_000 - accepted
    assert relay.held_bytes > 0


@pytest.mark.parametrize("which", [0, 1])
def test_a_wait_ends_with_the_need_of_others(ends: Ends, which: int) -> None:
    other, waker = socket.socketpair()
    with other, waker, select.epoll() as epoll:
        epoll.register(other, select.EPOLLIN)
        others = [-1, -1]
        others[which] = epoll.fileno()
        waker.send(b"x")
        relay = ends.relay(100)
        assert relay.run(PATIENCE_MS, *others) == RelayStop.NEEDS_INPUT
        # Bytes that are there need no wait.
        ends.sender.send(b"y" * 100)
        assert relay.run(PATIENCE_MS, *others) == RelayStop.MOVED
        assert ends.receiver.recv(1000) == b"y" * 100


def test_others_get_their_turn_within_bytes_that_need_no_wait(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    relay = ends.relay(10_000_000)
    feeding = threading.Thread(target=feed, args=(ends.sender,), daemon=True)
    draining = threading.Thread(target=drain, args=(ends.receiver,), daemon=True)
    feeding.start()
    draining.start()
    stops = set()
    while (stop := relay.run(0, -1, -1)) != RelayStop.MOVED:
        stops.add(stop)
    assert relay.left_bytes == relay.held_bytes == 0
    ends.sender.close()
    ends.target.close()
    feeding.join()
    draining.join()


def feed(sender: socket.socket) -> None:
    """Send 10 MB."""
    sender.sendall(bytes(10_000_000))


def drain(receiver: socket.socket) -> None:
    """Read all."""
    while receiver.recv(1 << 20):
        pass


def test_an_end_of_the_source_is_told_from_an_error_of_the_target(ends: Ends) -> None:
    relay = ends.relay(100)
    ends.sender.send(b"z" * 60)
    ends.sender.close()
    assert relay.run(PATIENCE_MS, -1, -1) == RelayStop.SOURCE_HAS_FAILED
    assert (relay.error, relay.left_bytes, relay.held_bytes) == (0, 40, 0)
    assert ends.receiver.recv(1000) == b"z" * 60


def test_a_client_that_has_gone_leaves_the_bytes_in_the_pipe(ends: Ends) -> None:
    relay = ends.relay(100)
    ends.sender.send(b"z" * 60)
    ends.receiver.close()
    assert relay.run(PATIENCE_MS, -1, -1) == RelayStop.TARGET_HAS_FAILED
    assert (relay.error, relay.left_bytes, relay.held_bytes) == (errno.EPIPE, 40, 60)
