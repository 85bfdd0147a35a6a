"""Listeners and the connections that they accept.

Accepting and serving run in two nurseries: a shutdown cancels the first at once and gives the second a deadline.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import logging
import socket
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Protocol

import trio

from ..config.listeners import Endpoint, SocketOptions, known_counts, open_sockets
from .accepting import Accepted, Acceptor
from .admission import ListenerGuard
from .bulk_lane import BulkLane
from .client_census import ClientCensus
from .client_connection import ClientConnection
from .connection import Connection
from .connection_views import Responder
from .listener_activity import ListenerActivity
from .pacing import pace, stop_pacing
from .readiness import Readiness
from .receive_buffer_cy import INITIAL_BYTES
from .request_times import RequestTimes
from .socket_rounds import SocketRounds
from .transport import SocketTransport

logger = logging.getLogger(__name__)

ACCEPTED_IN_A_TURN = 32
"""The connections that a listener accepts before other tasks get their turn."""
UNKNOWN_SOFTWARE = "unknown"
"""The software name and version of clients that tell none (Kafka `ClientInformation`)."""
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
    gregor_max_unauthenticated_connections: int
    gregor_unauthenticated_buffer_bytes: int
    gregor_network_busy_poll_max_us: int

    def listener_limit(self, name: str, listener: str) -> int:
        """Return the limit of one listener alone."""


class ConnectionThrottle(Protocol):
    """A throttle of new connections (`quotas.connection_rates.ConnectionRates`), in milliseconds."""

    def connected(self, listener: str, *, is_protected: bool) -> int:
        """Count a connection; return how long it must wait. Only its listener's rate delays a protected one."""

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
        guards: Mapping[str, ListenerGuard] | None = None,
        protected: str | None = None,
        times: RequestTimes | None = None,
        lane: BulkLane | None = None,
        readiness: Readiness | None = None,
        rounds: SocketRounds | None = None,
    ) -> None:
        """Open the listeners; ``drain_s`` limits the time of requests in flight after the broker starts to stop.

        ``guards`` are the secured listeners, by name; any other is PLAINTEXT. ``protected`` is the listener of the
        other brokers: clients of other listeners never take its slots (KIP-402). With ``times`` all requests are timed.
        With a ``lane``, which is closed with the server, its threads send large answers. The caller runs
        ``readiness``, which other sockets share; without it the server has and runs its own, with ``rounds``. Raises
        ListenerError.
        """
        self._responder = responder
        self._census = census
        self._limits = limits
        self._throttle = throttle
        self._times = times
        self._lane = lane
        self._throttled_count = 0
        self._drain_s = drain_s
        self._runs_readiness = readiness is None
        self.readiness = readiness or Readiness(limits.gregor_network_busy_poll_max_us, lane, rounds)
        """The watcher of all sockets, until the server has stopped."""
        self._guards = guards or {}
        self._connections: set[Connection] = set()
        self._unauthenticated: dict[Connection, None] = {}
        """The connections that are not authenticated yet, the oldest first."""
        self._clients_per_ip: Counter[str] = Counter()
        self.activity = {endpoint.name: ListenerActivity() for endpoint in endpoints}
        """Traffic and logins of each listener, by name."""
        self._protected = protected if len(endpoints) > 1 else None
        self._waiting_for_slots = trio.lowlevel.ParkingLot()
        self._connection_numbers = itertools.count()
        self._listening = {endpoint: open_sockets(endpoint, options) for endpoint in endpoints}
        opened = itertools.chain.from_iterable(self._listening.values())
        self._congestion_control = max(map(stop_pacing, opened), default=b"")
        """The system's congestion control for clients on other machines; empty if they have it already."""
        self.bound = [
            Endpoint(endpoint.name, endpoint.host, sockets[0].getsockname()[1])
            for endpoint, sockets in self._listening.items()
        ]
        """The endpoints with their actual ports."""

    @property
    def connection_count(self) -> int:
        return len(self._connections)

    def software_counts(self) -> dict[tuple[str, str, str], int]:
        """Return the number of connections by listener, and by the client's software name and version (KIP-511)."""
        return Counter(
            (
                client.listener_name,
                client.software_name or UNKNOWN_SOFTWARE,
                client.software_version or UNKNOWN_SOFTWARE,
            )
            for client in (connection.client for connection in self._connections)
            if client.is_admitted
        )

    def unhandled_count(self) -> int:
        """Return the number of connections whose next request is received and not handled yet."""
        return sum(connection.has_unhandled for connection in self._connections)

    def unsent_count(self) -> int:
        """Return the number of answers that are complete and wait for earlier ones of their connection."""
        return sum(connection.unsent_count for connection in self._connections)

    async def run(self, stop: trio.Event) -> None:
        """Serve until ``stop`` is set, then finish the requests in flight, for a limited time."""
        try:
            async with trio.open_nursery() as watching:
                if self._runs_readiness:
                    watching.start_soon(self.readiness.run)
                async with trio.open_nursery() as serving:
                    await self._accept_until(stop, serving)
                    self.close()
                    for connection in self._connections:
                        connection.drain()
                    serving.cancel_scope.deadline = trio.current_time() + self._drain_s
                watching.cancel_scope.cancel()
        finally:
            self.close()
            if self._lane is not None:
                self._lane.close()

    async def _accept_until(self, stop: trio.Event, serving: trio.Nursery) -> None:
        async with trio.open_nursery() as accepting:
            for endpoint, sockets in self._listening.items():
                for listening in sockets:
                    accepting.start_soon(self._accept, Acceptor(listening), endpoint, serving)
            accepting.start_soon(self._sweep_idle)
            await stop.wait()
            accepting.cancel_scope.cancel()

    def take_changes(self) -> None:
        """Apply changed limits: accept clients that have waited for a slot, close connections above the limit."""
        self._waiting_for_slots.unpark_all()
        self._close_excess()

    def close(self) -> None:
        """Close the listening sockets."""
        for sockets in self._listening.values():
            for listening in sockets:
                listening.close()

    async def _accept(self, acceptor: Acceptor, endpoint: Endpoint, serving: trio.Nursery) -> None:
        activity = self.activity[endpoint.name]
        while True:
            for _ in range(ACCEPTED_IN_A_TURN):
                await self._wait_for_slot(endpoint.name)
                accepted = await acceptor.next_client()
                if accepted is None:
                    continue
                activity.connection_accept.record()
                wait_ms = self._throttle.connected(endpoint.name, is_protected=endpoint.name == self._protected)
                if wait_ms:
                    activity.accept_throttle_ms.record(wait_ms)
                    activity.acceptor_blocked_s.record(wait_ms / 1000)
                    with _closing_if_cancelled(accepted.socket):
                        await trio.sleep(wait_ms / 1000)
                self._admit(accepted, endpoint, serving)
            # A flood of connections must not keep the loop: there may always be another one to accept.
            await trio.lowlevel.checkpoint()

    async def _wait_for_slot(self, listener: str) -> None:
        if self._has_slot(listener):
            return
        began = trio.current_time()
        try:
            while not self._has_slot(listener):
                await self._waiting_for_slots.park()
        finally:
            self.activity[listener].acceptor_blocked_s.record(trio.current_time() - began)

    def _has_slot(self, listener: str) -> bool:
        """Return whether a listener may have one more connection (Kafka `ConnectionQuotas.connectionSlotAvailable`)."""
        if self.activity[listener].connection_count >= self._limits.listener_limit("max.connections", listener):
            return False
        return listener == self._protected or len(self._connections) < self._limits.max_connections

    def _close_excess(self) -> None:
        """Close the connections that were idle for longest, above ``max.connections``, except protected ones."""
        excess = len(self._connections) - self._limits.max_connections
        if excess <= 0:
            return
        others = [open_ for open_ in self._connections if open_.client.listener_name != self._protected]
        for connection in heapq.nsmallest(excess, others, key=lambda open_: open_.last_active):
            connection.disconnect()

    def _admit(self, accepted: Accepted, endpoint: Endpoint, serving: trio.Nursery) -> None:
        client_socket, peer, local = accepted
        if self._congestion_control and peer[0] != local[0]:
            pace(client_socket, self._congestion_control)
        if self._clients_per_ip[peer[0]] >= self._most_connections_of(peer[0]):
            logger.info("rejected a connection from %s: max.connections.per.ip reached", peer[0])
            client_socket.close()
            return
        throttle_ms = self._throttle.connected_from(peer[0])
        if throttle_ms:
            self.activity[endpoint.name].ip_accept_throttle_ms.record(throttle_ms)
            serving.start_soon(self._close_later, client_socket, throttle_ms)
            return
        guard = self._guards.get(endpoint.name)
        try:
            transport = SocketTransport(client_socket) if guard is None else guard.transport(client_socket)
        except OSError:
            client_socket.close()
            return
        number = next(self._connection_numbers)
        connection_id = f"{local[0]}:{local[1]}-{peer[0]}:{peer[1]}-{number}"
        activity = self.activity[endpoint.name]
        client = ClientConnection(peer, local, endpoint.name, connection_id, trio.Event(), activity=activity)
        connection = Connection(
            transport,
            self._responder,
            client,
            self.readiness,
            frame_limit_bytes=self._limits.socket_request_max_bytes,
            guard=guard,
            admitted=self._admitted,
            times=self._times,
            lane=self._lane,
            grown=self._limit_login_memory,
        )
        if guard is not None:
            client.is_admitted = False
            client.security_protocol = guard.security_protocol
            self._make_room_for_unauthenticated()
            self._unauthenticated[connection] = None
        self._connections.add(connection)
        self._census.connected(client)
        self._clients_per_ip[peer[0]] += 1
        activity.connection_creation.record()
        if endpoint.name == self._protected:
            self._close_excess()
        serving.start_soon(self._serve, connection)

    def _make_room_for_unauthenticated(self) -> None:
        """Close the oldest connections that are not authenticated, so that one more fits into their limit.

        A client that never completes its login so makes room for one that does.
        """
        while len(self._unauthenticated) >= self._limits.gregor_max_unauthenticated_connections:
            oldest = next(iter(self._unauthenticated))
            del self._unauthenticated[oldest]
            oldest.disconnect()

    def _limit_login_memory(self, growing: Connection) -> None:
        """Close the oldest connections with large buffers that are not authenticated, until all fit into the limit."""
        limit = self._limits.gregor_unauthenticated_buffer_bytes
        large = [
            open_ for open_ in self._unauthenticated if open_.buffer_bytes > INITIAL_BYTES and open_ is not growing
        ]
        used = growing.buffer_bytes + sum(open_.buffer_bytes for open_ in large)
        for connection in (*large, growing):
            if used <= limit:
                return
            used -= connection.buffer_bytes
            self._unauthenticated.pop(connection, None)
            connection.disconnect()

    def _admitted(self, connection: Connection) -> None:
        self._unauthenticated.pop(connection, None)
        connection.client.is_admitted = True

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
            self._unauthenticated.pop(connection, None)
            self._census.disconnected(connection.client)
            connection.client.activity.connection_close.record()
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
