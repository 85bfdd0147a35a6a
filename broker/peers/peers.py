"""Requests to the other brokers of the cluster and to the controller, over one connection for each purpose."""

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
"""Errors of a request that got no answer."""


class KnownBrokers(Protocol):
    """A source of the brokers' addresses (a `MetadataStore`)."""

    def broker(self, node_id: int) -> BrokerState | None:
        """Return the registered broker with that id, fenced or not; None if there is none."""


class Line:
    """A line to one node, with at most one connection at a time, opened when it is needed.

    A task that waits for an answer does not block other requests; requests are written in the order of the calls.
    """

    def __init__(self, name: str, address: Address, config: ClientConfig, metrics: Metrics) -> None:
        self.address = address
        self._name = name
        self._config = config
        self._metrics = metrics
        self._connection: Connection | None = None
        self._dialling = trio.Lock()
        self.connection_count = 0
        """The number of connections made so far."""

    async def ask(
        self,
        nursery: trio.Nursery,
        request: Message,
        response: type[Response],
        *,
        timeout_s: float,
        version: int | None = None,
    ) -> Response:
        """Send a request and wait for its answer; a new connection runs in ``nursery``.

        Raises BrokerError: BROKER_NOT_AVAILABLE if the node cannot be reached, NETWORK_EXCEPTION if the connection is
        closed or the timeout passes first, UNSUPPORTED_VERSION.
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
        """Close the connection, if it is open; requests in progress fail."""
        if self._connection is not None:
            self._connection.close(reason)


class Peers:
    """A client of the other brokers, over the listener for brokers (`inter.broker.listener.name`)."""

    def __init__(self, brokers: KnownBrokers, listener_name: str, client_id: str) -> None:
        self._brokers = brokers
        self._listener_name = listener_name
        # No idle timeout: an unused connection may stay open until the other side closes it.
        self._config = ClientConfig(client_id=client_id, connections_max_idle_ms=-1)
        self._metrics = Metrics()
        self._lines: dict[tuple[int, str], Line] = {}
        self._nursery: trio.Nursery | None = None

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run the connections until cancelled."""
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
        """Send a request to broker ``node_id``, once, in the newest common version unless ``version`` is given.

        A broker answers the requests of one connection in order, so a request that may wait long (a fetch) has its own
        ``purpose``, and with it its own connection; requests of one purpose are written in the order of the calls.
        Raises BrokerError: BROKER_NOT_AVAILABLE if the broker is unknown or cannot be reached, NETWORK_EXCEPTION if the
        connection is closed or ``timeout_s`` passes before the answer, UNSUPPORTED_VERSION.
        """
        if self._nursery is None:
            raise BrokerError(ErrorCode.BROKER_NOT_AVAILABLE, "this broker has not started, or stops")
        line = self._line(node_id, purpose)
        return await line.ask(self._nursery, request, response, timeout_s=timeout_s, version=version)

    def address(self, node_id: int) -> Address:
        """Return the address of a broker for other brokers. Raises BrokerError BROKER_NOT_AVAILABLE if unknown."""
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
    """A link to the controller, in this process or over a connection."""

    async def ask(
        self, request: Message, response: type[Response], *, timeout_s: float = ..., version: int | None = None
    ) -> Response:
        """Send a request, and retry until there is an answer.

        A refusal of the whole request is in the response's own error field. Raises BrokerError REQUEST_TIMED_OUT if
        there is no answer within ``timeout_s``, UNSUPPORTED_VERSION.
        """


class RemoteController:
    """A link to the controller over the network (a `ControllerLink`); its connection runs in `run`."""

    def __init__(self, address: Address, client_id: str, *, retry_backoff_s: float = 0.1) -> None:
        config = ClientConfig(client_id=client_id, connections_max_idle_ms=-1)
        self._line = Line("the controller", address, config, Metrics())
        self._retry_backoff_s = retry_backoff_s
        self._nursery: trio.Nursery | None = None

    @property
    def connection_count(self) -> int:
        """The number of connections made so far; each may have reached a different process."""
        return self._line.connection_count

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run the connection until cancelled."""
        async with trio.open_nursery() as self._nursery:
            task_status.started()
            await trio.sleep_forever()

    async def ask_once(
        self, request: Message, response: type[Response], *, timeout_s: float, version: int | None = None
    ) -> Response:
        """Send a request as `ask` does, but without a retry. Raises BrokerError as `Peers.ask` does."""
        if self._nursery is None:
            raise BrokerError(ErrorCode.BROKER_NOT_AVAILABLE, "this broker has not started, or stops")
        return await self._line.ask(self._nursery, request, response, timeout_s=timeout_s, version=version)

    async def ask(
        self, request: Message, response: type[Response], *, timeout_s: float = 30.0, version: int | None = None
    ) -> Response:
        """Send a request as `ControllerLink.ask` describes."""
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
