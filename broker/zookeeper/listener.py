"""The sockets of ZooKeeper's protocol: connections with their limits, and the upkeep of sessions and nodes."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable
from struct import Struct

import trio

from ...zookeeper.four_letter_words import KNOWN_WORDS, WORD_BYTES, answer_word
from ...zookeeper.jute import JuteError
from ...zookeeper.kafka_cluster import ClientAddress, KafkaCluster
from ...zookeeper.keeper_errors import KeeperError
from ...zookeeper.limits import Limits
from ...zookeeper.messages import EventType, encode_event
from ...zookeeper.service import Reply, ZooKeeperService
from ...zookeeper.sessions import Session
from ..config import BrokerConfig
from ..config.listeners import Endpoint, ListenerError, SocketOptions, open_sockets, parse_endpoints, plain_address
from ..server.client_hello import is_client_hello

logger = logging.getLogger(__name__)

KEY = "gregor.zookeeper.listeners"
SCHEME = "ZOOKEEPER"
LENGTH = Struct(">i")
RECEIVE_BYTES = 16 * 1024
REFRESH_PAUSE_S = 0.05
"""Time between two updates of the nodes that show metadata, if no request needs them earlier."""
CLOSE_S = 1.0
"""The time in which the last reply of a connection must be sent."""
TICKS_OF_MIN_TIMEOUT = 2
TICKS_OF_MAX_TIMEOUT = 20


def limits_of(config: BrokerConfig) -> Limits:
    """Return the limits that the keys `gregor.zookeeper.*` set, with ZooKeeper's rules for session timeouts."""
    tick_ms = config.gregor_zookeeper_tickTime
    least_ms, most_ms = config.gregor_zookeeper_minSessionTimeout, config.gregor_zookeeper_maxSessionTimeout
    return Limits(
        tick_ms=tick_ms,
        min_session_timeout_ms=TICKS_OF_MIN_TIMEOUT * tick_ms if least_ms < 0 else least_ms,
        max_session_timeout_ms=TICKS_OF_MAX_TIMEOUT * tick_ms if most_ms < 0 else most_ms,
        max_sessions=config.gregor_zookeeper_max_sessions,
        max_watches_per_session=config.gregor_zookeeper_max_watches_per_session,
        max_nodes=config.gregor_zookeeper_max_nodes,
        max_bytes=config.gregor_zookeeper_max_bytes,
        frame_bytes=config.gregor_zookeeper_jute_maxbuffer,
    )


class ZooKeeperListener:
    """A listener for ZooKeeper's clients, on the addresses of `gregor.zookeeper.listeners`."""

    def __init__(self, config: BrokerConfig) -> None:
        """Open the sockets. Raises ListenerError."""
        self._config = config
        self._limits = limits_of(config)
        self._sockets = []
        self.bound: list[Endpoint] = []
        """The addresses with their actual ports, in the order given."""
        self._connections: set[KeeperConnection] = set()
        self._per_host: Counter[str] = Counter()
        try:
            for address in config.gregor_zookeeper_listeners:
                (endpoint,) = parse_endpoints(KEY, [address])
                if endpoint.name != SCHEME:
                    raise ListenerError(f"{KEY}: {address!r} is not of the form zookeeper://host:port")
                opened = open_sockets(endpoint, SocketOptions(config.socket_listen_backlog_size))
                self._sockets += opened
                self.bound.append(Endpoint(SCHEME.lower(), endpoint.host, opened[0].getsockname()[1]))
        except ListenerError:
            self.close()
            raise

    async def run(self, cluster: KafkaCluster) -> None:
        """Serve the nodes of a cluster until cancelled."""
        changed = trio.Event()

        def notice() -> None:
            changed.set()

        cluster.subscribe(notice)
        service = ZooKeeperService(cluster, self._limits, wall_clock_ms=_wall_clock_ms, monotonic_ms=_monotonic_ms)
        listeners = [trio.SocketListener(trio.socket.from_stdlib_socket(opened)) for opened in self._sockets]
        logger.info("ZooKeeper's protocol at %s", ",".join(map(str, self.bound)))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._expire_sessions, service)

            async def serve(stream: trio.SocketStream) -> None:
                await self._serve(stream, service)

            nursery.start_soon(trio.serve_listeners, serve, listeners)
            while True:
                await changed.wait()
                changed = trio.Event()
                service.refresh()
                await trio.sleep(REFRESH_PAUSE_S)

    def close(self) -> None:
        """Close the sockets, if `run` has not."""
        for opened in self._sockets:
            opened.close()

    async def _expire_sessions(self, service: ZooKeeperService) -> None:
        while True:
            await trio.sleep(self._limits.tick_ms / 1000)
            service.expire_sessions()

    async def _serve(self, stream: trio.SocketStream, service: ZooKeeperService) -> None:
        async with stream:
            try:
                peer = plain_address(stream.socket.getpeername())
                local = plain_address(stream.socket.getsockname())
            except OSError:
                return
            refusal = self._refusal(peer[0])
            if refusal:
                logger.info("rejected a ZooKeeper connection from %s: %s is reached", peer[0], refusal)
                return
            connection = KeeperConnection(stream, service, ClientAddress(peer, local), self._peers)
            self._connections.add(connection)
            self._per_host[peer[0]] += 1
            try:
                await connection.run()
            finally:
                self._connections.discard(connection)
                self._per_host[peer[0]] -= 1
                if not self._per_host[peer[0]]:
                    del self._per_host[peer[0]]

    def _refusal(self, host: str) -> str | None:
        """Return the key of the limit that keeps a host from a further connection, None if none does."""
        most, most_per_host = self._config.gregor_zookeeper_maxCnxns, self._config.gregor_zookeeper_maxClientCnxns
        if most and len(self._connections) >= most:
            return "gregor.zookeeper.maxCnxns"
        if most_per_host and self._per_host[host] >= most_per_host:
            return "gregor.zookeeper.maxClientCnxns"
        return None

    def _peers(self) -> list[tuple[str, int]]:
        return sorted(connection.address.peer for connection in self._connections)


class KeeperConnection:
    """A client's connection (a `zookeeper.service.KeeperClient`): one task reads and answers, another one sends.

    The next request is read after the reply to the last one has left, so that what waits to be sent is one reply and
    the events of watches, of which a connection has a limited number.
    """

    def __init__(
        self,
        stream: trio.SocketStream,
        service: ZooKeeperService,
        address: ClientAddress,
        peers: Callable[[], list[tuple[str, int]]],
    ) -> None:
        self.address = address
        self._stream = stream
        self._service = service
        self._peers = peers
        self._received = bytearray()
        self._outgoing = bytearray()
        self._has_outgoing = trio.Event()
        self._is_sent = trio.Event()
        self._is_sent.set()
        self._reading = trio.CancelScope()
        self._session: Session | None = None

    # --- called by the service

    def notify(self, event: EventType, path: str) -> None:
        """Send a watch event after everything that was sent before."""
        self._service.traffic.sent += 1
        self._send(encode_event(event, path))

    def disconnect(self) -> None:
        """Close the connection after what waits to be sent has left, within a limited time."""
        self._reading.cancel()

    # ---

    async def run(self) -> None:
        """Serve the client until it disconnects, its session ends, or it sends what cannot be understood."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._write)
                with self._reading:
                    await self._read()
                with trio.move_on_after(CLOSE_S):
                    await self._is_sent.wait()
                nursery.cancel_scope.cancel()
        except* (trio.BrokenResourceError, trio.ClosedResourceError) as lost:
            logger.debug("a ZooKeeper client at %s:%d has disconnected: %s", *self.address.peer, lost)
        except* (JuteError, KeeperError) as refused:
            for error in refused.exceptions:
                logger.info("closing a ZooKeeper connection from %s:%d: %s", *self.address.peer, error)
        except* Exception:
            logger.exception("closing a ZooKeeper connection from %s:%d after an unexpected error", *self.address.peer)
        finally:
            self._service.disconnected(self._session, self)

    async def _read(self) -> None:
        with trio.move_on_after(self._service.limits.min_session_timeout_ms / 1000):
            if not await self._begin():
                return
        session = self._session
        while session is not None:
            frame = await self._frame()
            reply = None if frame is None else await self._service.answer(frame, session, self)
            if reply is None:
                return
            await self._reply(reply)
            if reply.is_last:
                return

    async def _begin(self) -> bool:
        """Answer the first bytes, a command of four letters or a ConnectRequest; return whether there is a session."""
        if not await self._receive(WORD_BYTES):
            return False
        word = bytes(self._received[:WORD_BYTES])
        if word in KNOWN_WORDS:
            self._put(answer_word(word, self._service, self._peers()))
            return False
        frame = await self._frame()
        if frame is None:
            return False
        reply, self._session = self._service.connect(frame, self)
        await self._reply(reply)
        return self._session is not None

    async def _frame(self) -> bytes | None:
        """Return the next frame without its length, None at the end of the stream. Raises JuteError."""
        if not await self._receive(LENGTH.size):
            return None
        (length,) = LENGTH.unpack_from(self._received)
        if not 0 <= length <= self._service.limits.frame_bytes:
            if is_client_hello(length):
                raise JuteError(f"the client speaks TLS, which the addresses of {KEY} do not")
            raise JuteError(f"a frame of {length} bytes, gregor.zookeeper.jute.maxbuffer is the limit")
        end = LENGTH.size + length
        if not await self._receive(end):
            return None
        frame = bytes(self._received[LENGTH.size : end])
        del self._received[:end]
        return frame

    async def _receive(self, count: int) -> bool:
        """Receive until at least `count` bytes are there; return False if the stream ends before."""
        while len(self._received) < count:
            data = await self._stream.receive_some(RECEIVE_BYTES)
            if not data:
                return False
            self._received += data
        return True

    async def _reply(self, reply: Reply) -> None:
        self._send(reply.frame)
        await self._is_sent.wait()

    def _send(self, frame: bytes) -> None:
        self._put(LENGTH.pack(len(frame)) + frame)

    def _put(self, data: bytes) -> None:
        self._outgoing += data
        self._has_outgoing.set()
        if self._is_sent.is_set():
            self._is_sent = trio.Event()

    async def _write(self) -> None:
        while True:
            await self._has_outgoing.wait()
            self._has_outgoing = trio.Event()
            outgoing, self._outgoing = self._outgoing, bytearray()
            await self._stream.send_all(outgoing)
            if not self._outgoing:
                self._is_sent.set()


def _wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


def _monotonic_ms() -> int:
    return int(trio.current_time() * 1000)
