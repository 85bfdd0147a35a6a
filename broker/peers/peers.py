"""Requests to the other brokers of the cluster and to the controller, over one connection for each purpose."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Protocol, TypeVar

import trio

from ...protocol.apis import api_key_of
from ...protocol.errors import BrokerError, ErrorCode
from ...protocol.schema import Message
from ..metadata.state import BrokerState
from .peer_connection import Address, PeerConnection, SecuritySource, Traffic, connect, unsecured
from .request_errors import UNREACHABLE

Response = TypeVar("Response", bound=Message)

STOPPING = "this broker has not started yet, or is being stopped"


class KnownBrokers(Protocol):
    """A source of the brokers' addresses (a `MetadataStore`)."""

    def broker(self, node_id: int) -> BrokerState | None:
        """Return the registered broker with that id, fenced or not; None if there is none."""


class Line:
    """A line to one node, with at most one connection at a time, opened when it is needed.

    A task that waits for an answer does not block other requests; requests are written in the order of the calls.
    """

    def __init__(self, name: str, client_id: str, security: SecuritySource = unsecured) -> None:
        self._name = name
        self._security = security
        self._client_id = client_id
        self._connection: PeerConnection | None = None
        self._dialling = trio.Lock()
        self.connection_count = 0
        """The number of connections made so far."""
        self.traffic = Traffic()

    async def ask(
        self,
        address: Address,
        request: Message,
        response: type[Response],
        *,
        timeout_s: float,
        version: int | None = None,
    ) -> Response:
        """Send a request and wait for its answer. A connection to another address is closed first.

        Raises BrokerError: BROKER_NOT_AVAILABLE if the node cannot be reached, NETWORK_EXCEPTION if the connection is
        closed or the timeout passes first, which closes the connection; UNSUPPORTED_VERSION.
        """
        deadline = trio.current_time() + timeout_s
        connection = await self._connected(address, deadline, negotiated=version is None)
        with trio.move_on_at(deadline):
            return await connection.request(request, response, version=version)
        reason = f"no answer to {api_key_of(request).name} within {timeout_s * 1000:.0f} ms"
        connection.close(reason)
        raise BrokerError(ErrorCode.NETWORK_EXCEPTION, f"{self._name}: {reason}")

    async def _connected(self, address: Address, deadline: float, *, negotiated: bool) -> PeerConnection:
        async with self._dialling:
            if self._connection is not None and self._connection.address != address:
                self.close(f"{self._name} has moved")
            try:
                with trio.fail_at(deadline):
                    if self._connection is None or not self._connection.is_open():
                        self._connection = await connect(
                            self._name, address, self._client_id, self._security(), self.traffic
                        )
                        self.connection_count += 1
                    await self._connection.keep_session(self._security)
                    if negotiated:
                        await self._connection.negotiate()
            except trio.TooSlowError:
                self.close("no answer")
                reason = f"{self._name} at {address[0]}:{address[1]}: no answer"
                raise BrokerError(ErrorCode.BROKER_NOT_AVAILABLE, reason) from None
            return self._connection

    def close(self, reason: str) -> None:
        """Close the connection, if it is open; requests in progress fail."""
        if self._connection is not None:
            self._connection.close(reason)


class _PeerClient(ABC):
    """A client of other nodes that sends requests only while `run` runs."""

    _is_running = False

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Allow requests until cancelled, then close all connections."""
        self._is_running = True
        try:
            task_status.started()
            await trio.sleep_forever()
        finally:
            self._is_running = False
            for line in self._open_lines():
                line.close(STOPPING)

    @abstractmethod
    def _open_lines(self) -> Iterable[Line]:
        """Return the lines to close at the end."""

    def _check_running(self) -> None:
        if not self._is_running:
            raise BrokerError(ErrorCode.BROKER_NOT_AVAILABLE, STOPPING)


class Peers(_PeerClient):
    """A client of the other brokers, over the listener for brokers (`inter.broker.listener.name`)."""

    def __init__(
        self, brokers: KnownBrokers, listener_name: str, client_id: str, security: SecuritySource = unsecured
    ) -> None:
        self.security = security
        """The security of connections to other brokers."""
        self._brokers = brokers
        self._listener_name = listener_name
        self._client_id = client_id
        self._lines: dict[tuple[int, str], Line] = {}

    def _open_lines(self) -> Iterable[Line]:
        return self._lines.values()

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
        self._check_running()
        address = self.address(node_id)
        line = self._lines.get((node_id, purpose))
        if line is None:
            line = self._lines[node_id, purpose] = Line(f"broker {node_id}", self._client_id, self.security)
        return await line.ask(address, request, response, timeout_s=timeout_s, version=version)

    def address(self, node_id: int) -> Address:
        """Return the address of a broker for other brokers. Raises BrokerError BROKER_NOT_AVAILABLE if unknown."""
        known = self._brokers.broker(node_id)
        address = known.endpoints.get(self._listener_name) if known else None
        if address is None:
            raise BrokerError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {node_id} is not registered")
        return address


class ControllerLink(Protocol):
    """A link to the controller, in this process or over a connection."""

    async def ask(
        self, request: Message, response: type[Response], *, timeout_s: float = ..., version: int | None = None
    ) -> Response:
        """Send a request, and retry until there is an answer.

        A refusal of the whole request is in the response's own error field. Raises BrokerError REQUEST_TIMED_OUT if
        there is no answer within ``timeout_s``, UNSUPPORTED_VERSION.
        """


class RemoteController(_PeerClient):
    """A link to the controller over the network (a `ControllerLink`); it can be used while `run` runs."""

    def __init__(
        self, address: Address, client_id: str, security: SecuritySource = unsecured, *, retry_backoff_s: float = 0.1
    ) -> None:
        self._address = address
        self._line = Line("the controller", client_id, security)
        self._retry_backoff_s = retry_backoff_s

    def _open_lines(self) -> Iterable[Line]:
        return (self._line,)

    @property
    def connection_count(self) -> int:
        """The number of connections made so far; each may have reached a different process."""
        return self._line.connection_count

    @property
    def traffic(self) -> Traffic:
        """The counts of requests, answers and bytes exchanged with the controller."""
        return self._line.traffic

    async def ask_once(
        self, request: Message, response: type[Response], *, timeout_s: float, version: int | None = None
    ) -> Response:
        """Send a request as `ask` does, but without a retry. Raises BrokerError as `Peers.ask` does."""
        self._check_running()
        return await self._line.ask(self._address, request, response, timeout_s=timeout_s, version=version)

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
