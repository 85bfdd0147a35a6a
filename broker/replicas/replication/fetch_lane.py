"""A follower's connection to its leader: one request at a time, which can be given up."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import trio

from ....protocol.errors import BrokerError, ErrorCode
from ....protocol.schema import Message
from ...peers.peer_connection import Address, PeerConnection, SecuritySource, connect, unsecured
from ...peers.stepwise_reading import Steps, Watcher

Response = TypeVar("Response", bound=Message)
NewSteps = Callable[[PeerConnection], Steps]
"""Returns the steps for the answers to one request and those that follow, on this connection."""


class GivenUpError(Exception):
    """An error for a request that `FetchLane.give_up` has cancelled."""


class FetchLane:
    """A connection, opened when it is needed and opened again after any failure."""

    def __init__(
        self, client_id: str, security: SecuritySource = unsecured, watcher: Callable[[], Watcher | None] = lambda: None
    ) -> None:
        self._client_id = client_id
        self._security = security
        self._watcher = watcher
        self._connection: PeerConnection | None = None
        self._asking = trio.CancelScope()
        """The cancel scope of the request in progress."""
        self._is_given_up = False

    async def ask(
        self,
        address: Address,
        request: Message,
        response: type[Response],
        *,
        version: int,
        timeout_s: float,
        new_steps: NewSteps | None = None,
    ) -> Response:
        """Send a request and wait for its answer; a cancelled wait closes the connection.

        On a connection without TLS and SASL the steps of ``new_steps`` handle answers and send further requests until
        they leave an answer, which is returned. The connection is closed if they raise an error, which is raised.

        Raises BrokerError: BROKER_NOT_AVAILABLE if ``address`` cannot be reached, NETWORK_EXCEPTION if the connection
        is closed, the answer is malformed or the timeout has passed; GivenUpError.
        """
        answer: Response | None = None
        self._is_given_up = False
        try:
            with trio.CancelScope(deadline=trio.current_time() + timeout_s) as self._asking:
                connection = await self._connected(address)
                watcher = self._watcher()
                if new_steps is not None and watcher is not None and connection.takes_steps:
                    steps = new_steps(connection)
                    answer = await connection.request_in_steps(
                        request, response, version=version, steps=steps, watcher=watcher
                    )
                else:
                    answer = await connection.request(request, response, version=version)
        finally:
            if answer is None:
                self.close()
        if answer is None:
            if self._is_given_up:
                raise GivenUpError
            raise BrokerError(ErrorCode.NETWORK_EXCEPTION, f"no answer in {timeout_s} s")
        return answer

    def give_up(self) -> None:
        """Cancel the request in progress, if any, and close its connection."""
        self._is_given_up = True
        self._asking.cancel()

    def close(self) -> None:
        """Close the connection, if it is open."""
        if self._connection is not None:
            self._connection.close("the fetcher has closed it")
            self._connection = None

    async def _connected(self, address: Address) -> PeerConnection:
        connection = self._connection
        if connection is None or connection.address != address or not connection.is_open():
            self.close()
            connection = self._connection = await connect("the leader", address, self._client_id, self._security())
        await connection.keep_session(self._security)
        return connection
