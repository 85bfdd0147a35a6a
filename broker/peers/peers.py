"""The other brokers of the cluster: one connection to each, over which this one asks what only they know or may do."""

from __future__ import annotations

import math
from typing import Protocol, TypeVar

import trio

from ...client.config import ClientConfig
from ...client.errors import ConnectionLostError
from ...client.metrics import Metrics
from ...client.wire.connection import Connection
from ...protocol.errors import BrokerError, ErrorCode
from ...protocol.schema import Message
from ..metadata.state import BrokerState

Response = TypeVar("Response", bound=Message)
Address = tuple[str, int]

UNREACHABLE = (ErrorCode.BROKER_NOT_AVAILABLE, ErrorCode.NETWORK_EXCEPTION)
"""What a question ends with that never got an answer."""


class KnownBrokers(Protocol):
    """Where peers are found (a `MetadataStore`)."""

    def broker(self, node_id: int) -> BrokerState | None:
        """The registered broker of that number, fenced or not."""


class Line:
    """The way to one node: at most one connection at a time, made when it is needed.

    A task that waits for an answer does not keep others from asking; requests are written in the order of the calls.
    """

    def __init__(self, name: str, address: Address, config: ClientConfig, metrics: Metrics) -> None:
        self.address = address
        self._name = name
        self._config = config
        self._metrics = metrics
        self._connection: Connection | None = None
        self._dialling = trio.Lock()
        self.connection_count = 0
        """How many connections have been made."""

    async def ask(
        self,
        nursery: trio.Nursery,
        request: Message,
        response: type[Response],
        *,
        timeout_s: float,
        version: int | None = None,
    ) -> Response:
        """Send a request and wait for its answer; the connection, if it has to be made, lives in ``nursery``.

        Raises BrokerError: BROKER_NOT_AVAILABLE if the node cannot be reached, NETWORK_EXCEPTION if the connection
        ended or the time was over first, UNSUPPORTED_VERSION.
        """
        deadline = trio.current_time() + timeout_s
        connection = await self._connected(nursery, deadline)
        timeout_ms = max(1, math.ceil((deadline - trio.current_time()) * 1000))
        try:
            return await connection.request(request, response, version=version, timeout_ms=timeout_ms)
        except ConnectionLostError as error:
            raise BrokerError(ErrorCode.NETWORK_EXCEPTION, str(error)) from None

    async def _connected(self, nursery: trio.Nursery, deadline: float) -> Connection:
        async with self._dialling:
            if self._connection is None or self._connection.is_closed:
                try:
                    with trio.fail_at(deadline):
                        stream = await trio.open_tcp_stream(*self.address)
                        connection = Connection(stream, self._name, self._config, self._metrics)
                        await nursery.start(connection.run)
                except (OSError, trio.TooSlowError, ConnectionLostError) as error:
                    reason = f"{self._name} at {self.address[0]}:{self.address[1]}: {error or 'no answer'}"
                    raise BrokerError(ErrorCode.BROKER_NOT_AVAILABLE, reason) from None
                self._connection = connection
                self.connection_count += 1
            return self._connection

    def close(self, reason: str) -> None:
        """End the connection, if there is one; what is under way fails."""
        if self._connection is not None:
            self._connection.close(reason)


class Peers:
    """Asks other brokers, over the listener that is meant for brokers (`inter.broker.listener.name`)."""

    def __init__(self, brokers: KnownBrokers, listener_name: str, client_id: str) -> None:
        self._brokers = brokers
        self._listener_name = listener_name
        # Nobody is asked for nothing: a connection that nobody uses may stay until the other side ends it.
        self._config = ClientConfig(client_id=client_id, connections_max_idle_ms=-1)
        self._metrics = Metrics()
        self._lines: dict[tuple[int, str], Line] = {}
        self._nursery: trio.Nursery | None = None

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Hold the connections until cancelled."""
        async with trio.open_nursery() as self._nursery:
            task_status.started()
            await trio.sleep_forever()

    async def ask(
        self,
        node_id: int,
        request: Message,
        response: type[Response],
        *,
        timeout_s: float,
        version: int | None = None,
        purpose: str = "",
    ) -> Response:
        """Ask broker ``node_id``, once, in the newest version that both know unless ``version`` is given.

        A broker answers the requests of one connection in order, so what may wait there for long (a fetch) has a
        ``purpose``, and with it a connection, of its own; requests of one purpose are written in the order of the
        calls. Raises BrokerError: BROKER_NOT_AVAILABLE if it
        is unknown or cannot be reached, NETWORK_EXCEPTION if the connection ended or ``timeout_s`` was over before
        the answer came, UNSUPPORTED_VERSION.
        """
        if self._nursery is None:
            raise BrokerError(ErrorCode.BROKER_NOT_AVAILABLE, "this broker has not started, or stops")
        line = self._line(node_id, purpose)
        return await line.ask(self._nursery, request, response, timeout_s=timeout_s, version=version)

    def address(self, node_id: int) -> Address:
        """Where a broker is found by others. Raises BrokerError BROKER_NOT_AVAILABLE if it is unknown."""
        known = self._brokers.broker(node_id)
        address = known.endpoints.get(self._listener_name) if known else None
        if address is None:
            raise BrokerError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {node_id} is not registered")
        return address

    def _line(self, node_id: int, purpose: str) -> Line:
        address = self.address(node_id)
        line = self._lines.get((node_id, purpose))
        if line is None or line.address != address:
            if line is not None:
                line.close("the broker has moved")
            line = Line(f"broker {node_id}", address, self._config, self._metrics)
            self._lines[node_id, purpose] = line
        return line


class ControllerLink(Protocol):
    """The way to the controller, wherever it is: in this process, or at the other end of a connection."""

    async def ask(
        self, request: Message, response: type[Response], *, timeout_s: float = ..., version: int | None = None
    ) -> Response:
        """Ask until there is an answer.

        What the controller refuses as a whole is in the response's own error field. Raises BrokerError
        REQUEST_TIMED_OUT if none has come within ``timeout_s``, UNSUPPORTED_VERSION.
        """


class RemoteController:
    """The controller over the network (a `ControllerLink`); its connection lives in `run`."""

    def __init__(self, address: Address, client_id: str, *, retry_backoff_s: float = 0.1) -> None:
        config = ClientConfig(client_id=client_id, connections_max_idle_ms=-1)
        self._line = Line("the controller", address, config, Metrics())
        self._retry_backoff_s = retry_backoff_s
        self._nursery: trio.Nursery | None = None

    @property
    def connection_count(self) -> int:
        """How many connections have been made; at the other end of each may be another process than before."""
        return self._line.connection_count

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Hold the connection until cancelled."""
        async with trio.open_nursery() as self._nursery:
            task_status.started()
            await trio.sleep_forever()

    async def ask_once(
        self, request: Message, response: type[Response], *, timeout_s: float, version: int | None = None
    ) -> Response:
        """As `ask`, but without a second try: raises BrokerError as `Peers.ask`."""
        if self._nursery is None:
            raise BrokerError(ErrorCode.BROKER_NOT_AVAILABLE, "this broker has not started, or stops")
        return await self._line.ask(self._nursery, request, response, timeout_s=timeout_s, version=version)

    async def ask(
        self, request: Message, response: type[Response], *, timeout_s: float = 30.0, version: int | None = None
    ) -> Response:
        """See `ControllerLink.ask`."""
        deadline = trio.current_time() + timeout_s
        while True:
            remaining_s = deadline - trio.current_time()
            try:
                return await self.ask_once(request, response, timeout_s=max(remaining_s, 0.001), version=version)
            except BrokerError as error:
                if error.code not in UNREACHABLE:
                    raise
                if trio.current_time() + self._retry_backoff_s >= deadline:
                    raise BrokerError(ErrorCode.REQUEST_TIMED_OUT, error.message) from None
            await trio.sleep(self._retry_backoff_s)
