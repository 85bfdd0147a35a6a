"""Listeners and the connections that they accept.

Accepting and serving run in two nurseries: a shutdown cancels the first at once and gives the second a deadline.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import logging
import socket
from collections import Counter
from collections.abc import Iterator
from typing import Protocol

import trio

from ..config.listeners import Endpoint, SocketOptions, known_counts, open_sockets, plain_address
from .client_census import ClientCensus
from .client_connection import ClientConnection
from .connection import Connection, Responder
from .readiness import Readiness
from .transport import SocketTransport

logger = logging.getLogger(__name__)

OUT_OF_DESCRIPTORS = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
RETRY_ACCEPT_S = 0.1
MAX_THROTTLED = 1000
"""Most throttled connections that are held open; further ones are closed at once."""
IDLE_SWEEPS = 10
"""The number of checks for idle connections within ``connections.max.idle.ms``."""


class ConnectionLimits(Protocol):
    """A view of Kafka's limits on connections, by Kafka's names (a `BrokerConfig`); they may change at any time."""

    socket_request_max_bytes: int
    max_connections: int
    max_connections_per_ip: int
    max_connections_per_ip_overrides: str
    connections_max_idle_ms: int


class ConnectionThrottle(Protocol):
    """A throttle of new connections (`quotas.connection_rates.ConnectionRates`), in milliseconds."""

    def connected(self) -> int:
        """Count a connection; return how long it must wait."""

    def connected_from(self, address: str) -> int:
        """Count a connection from an address; return the time after which to close it, 0 to keep it."""


class Server:
    """A server that opens the listeners, accepts clients within the limits and ends their connections in order."""

    def __init__(
        self,
        endpoints: list[Endpoint],
        responder: Responder,
        census: ClientCensus,
        limits: ConnectionLimits,
        *,
        throttle: ConnectionThrottle,
        options: SocketOptions,
        drain_s: float,
    ) -> None:
        """Open the listeners; ``drain_s`` limits the time of requests in flight after the broker starts to stop.

        Raises ListenerError.
        """
        self._responder = responder
        self._census = census
        self._limits = limits
        self._throttle = throttle
        self._throttled_count = 0
        self._drain_s = drain_s
        self._readiness = Readiness()
        self._connections: set[Connection] = set()
        self._clients_per_ip: Counter[str] = Counter()
        self._waiting_for_slots = trio.lowlevel.ParkingLot()
        self._connection_numbers = itertools.count()
        self._listening = {endpoint: open_sockets(endpoint, options) for endpoint in endpoints}
        self.bound = [
            Endpoint(endpoint.name, endpoint.host, sockets[0].getsockname()[1])
            for endpoint, sockets in self._listening.items()
        ]
        """The endpoints with their actual ports."""

    @property
    def connection_count(self) -> int:
        return len(self._connections)

    async def run(self, stop: trio.Event) -> None:
        """Serve until ``stop`` is set, then finish the requests in flight, for a limited time."""
        try:
            async with trio.open_nursery() as watching:
                watching.start_soon(self._readiness.run)
                async with trio.open_nursery() as serving:
                    await self._accept_until(stop, serving)
                    self.close()
                    for connection in self._connections:
                        connection.drain()
                    serving.cancel_scope.deadline = trio.current_time() + self._drain_s
                watching.cancel_scope.cancel()
        finally:
            self.close()

    async def _accept_until(self, stop: trio.Event, serving: trio.Nursery) -> None:
        async with trio.open_nursery() as accepting:
            for endpoint, sockets in self._listening.items():
                for listening in sockets:
                    accepting.start_soon(self._accept, listening, endpoint, serving)
            accepting.start_soon(self._sweep_idle)
            await stop.wait()
            accepting.cancel_scope.cancel()

    def close(self) -> None:
        """Close the listening sockets."""
        for sockets in self._listening.values():
            for listening in sockets:
                listening.close()

    async def _accept(self, listening: socket.socket, endpoint: Endpoint, serving: trio.Nursery) -> None:
        while True:
            while len(self._connections) >= self._limits.max_connections:
                await self._waiting_for_slots.park()
            client_socket = await _next_client(listening)
            if client_socket is None:
                continue
            wait_ms = self._throttle.connected()
            if wait_ms:
                with _closing_if_cancelled(client_socket):
                    await trio.sleep(wait_ms / 1000)
            self._admit(client_socket, endpoint, serving)

    def _admit(self, client_socket: socket.socket, endpoint: Endpoint, serving: trio.Nursery) -> None:
        try:
            client_socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            peer = plain_address(client_socket.getpeername())
            local = plain_address(client_socket.getsockname())
        except OSError:
            client_socket.close()
            return
        if self._clients_per_ip[peer[0]] >= self._most_connections_of(peer[0]):
            logger.info("rejected a connection from %s: max.connections.per.ip reached", peer[0])
            client_socket.close()
            return
        throttle_ms = self._throttle.connected_from(peer[0])
        if throttle_ms:
            serving.start_soon(self._close_later, client_socket, throttle_ms)
            return
        transport = SocketTransport(client_socket)
        number = next(self._connection_numbers)
        connection_id = f"{local[0]}:{local[1]}-{peer[0]}:{peer[1]}-{number}"
        client = ClientConnection(peer, local, endpoint.name, connection_id, trio.Event())
        frame_limit = self._limits.socket_request_max_bytes
        connection = Connection(transport, self._responder, client, self._readiness, frame_limit_bytes=frame_limit)
        self._connections.add(connection)
        self._census.connected(client)
        self._clients_per_ip[peer[0]] += 1
        serving.start_soon(self._serve, connection)

    async def _close_later(self, client_socket: socket.socket, throttle_ms: int) -> None:
        """Refuse a client that connects too often, with a delay, so that it does not reconnect at once."""
        self._throttled_count += 1
        with client_socket:
            if self._throttled_count <= MAX_THROTTLED:
                await trio.sleep(throttle_ms / 1000)
        self._throttled_count -= 1

    def _most_connections_of(self, ip: str) -> int:
        overrides = self._limits.max_connections_per_ip_overrides
        most = self._limits.max_connections_per_ip
        return known_counts(overrides).get(ip, most) if overrides else most

    async def _serve(self, connection: Connection) -> None:
        ip = connection.client.peer[0]
        try:
            await connection.run()
        finally:
            self._connections.discard(connection)
            self._census.disconnected(connection.client)
            self._clients_per_ip[ip] -= 1
            if not self._clients_per_ip[ip]:
                del self._clients_per_ip[ip]
            self._waiting_for_slots.unpark_all()

    async def _sweep_idle(self) -> None:
        """Close connections that were idle for ``connections.max.idle.ms``; release unused memory of the others."""
        idle_s = self._limits.connections_max_idle_ms / 1000
        if idle_s < 0:
            return
        pause_s = max(idle_s / IDLE_SWEEPS, 0.05)
        while True:
            await trio.sleep(pause_s)
            now = trio.current_time()
            for connection in list(self._connections):
                silent_s = now - connection.last_active
                if silent_s > idle_s:
                    connection.disconnect()
                elif silent_s > pause_s:
                    connection.give_back_memory()


@contextlib.contextmanager
def _closing_if_cancelled(client_socket: socket.socket) -> Iterator[None]:
    try:
        yield
    except trio.Cancelled:
        client_socket.close()
        raise


async def _next_client(listening: socket.socket) -> socket.socket | None:
    """Accept one client and return its socket, or None if the client has already disconnected."""
    try:
        client_socket, _ = listening.accept()
    except BlockingIOError:
        await trio.lowlevel.wait_readable(listening)
        return None
    except OSError as error:
        if error.errno in OUT_OF_DESCRIPTORS:
            logger.warning("cannot accept connections now: %s", error.strerror)
        await trio.sleep(RETRY_ACCEPT_S)
        return None
    return client_socket
