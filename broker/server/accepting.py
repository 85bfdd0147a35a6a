"""Accepting of clients: what all connections of a listening socket share is found and set once."""

from __future__ import annotations

import errno
import logging
import socket
from typing import NamedTuple

import trio

from ..config.listeners import plain_address
from .client_connection import Address

logger = logging.getLogger(__name__)

OUT_OF_DESCRIPTORS = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
RETRY_ACCEPT_S = 0.1
ALL_INTERFACES = ("0.0.0.0", "::")  # noqa: S104 (the names that sockets have for them)


class Accepted(NamedTuple):
    """A client's socket with the addresses of both of its ends."""

    socket: socket.socket
    peer: Address
    local: Address


class Acceptor:
    """An acceptor of the clients of one listening, non-blocking socket (Kafka `Acceptor`)."""

    def __init__(self, listening: socket.socket) -> None:
        """Let the sockets of all clients send small answers at once (TCP_NODELAY): they inherit it."""
        self._listening = listening
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        local = plain_address(listening.getsockname())
        self._local = None if local[0] in ALL_INTERFACES else local
        """The address that each client dials; None if each may dial another one."""

    async def next_client(self) -> Accepted | None:
        """Accept a client, without a wait if one has connected; return None after a wait, or if it has gone again."""
        try:
            client_socket, peer = self._listening.accept()
        except BlockingIOError:
            await trio.lowlevel.wait_readable(self._listening)
            return None
        except OSError as error:
            if error.errno in OUT_OF_DESCRIPTORS:
                logger.warning("cannot accept connections now: %s", error.strerror)
            await trio.sleep(RETRY_ACCEPT_S)
            return None
        try:
            local = self._local or plain_address(client_socket.getsockname())
        except OSError:
            client_socket.close()
            return None
        return Accepted(client_socket, plain_address(peer), local)
