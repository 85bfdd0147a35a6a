"""A connection to another node of the cluster, for the requests of one task or of several, without a task of its own.

Of the tasks that wait for answers one reads for all; when it has its own answer, another one reads on. So a task that
is alone, such as a replica fetcher, needs no task switch for an answer but that of its wait for the socket.
"""

from __future__ import annotations

import math
import socket
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import TypeVar

import trio

from ...protocol.apis import AnyApiKey
from ...protocol.conversation import Conversation, InFlightRequest
from ...protocol.errors import BrokerError, DecodeError, ErrorCode
from ...protocol.schema import Message
from ...protocol.spoken_versions import Negotiation
from ...security.client_login import reauthentication_delay_s
from ...security.client_security import PLAINTEXT, ClientSecurity
from ...security.errors import SaslAuthenticationError
from .peer_socket import PeerSocket
from .stepwise_reading import Steps, StepwiseReading, Watcher

Response = TypeVar("Response", bound=Message)
Address = tuple[str, int]

READ_BYTES = 256 * 1024
SecuritySource = Callable[[], ClientSecurity]
"""Returns the security of a new connection: certificates may be replaced while the broker runs."""


def unsecured() -> ClientSecurity:
    """Return the security of connections without TLS and SASL (a `SecuritySource`)."""
    return PLAINTEXT


@dataclass(slots=True)
class Traffic:
    """A count of what was sent to a node and received from it since the start."""

    requests: int = 0
    answers: int = 0
    sent_bytes: int = 0
    received_bytes: int = 0

    def __add__(self, other: Traffic) -> Traffic:
        """Return the sums of both."""
        return Traffic(
            self.requests + other.requests,
            self.answers + other.answers,
            self.sent_bytes + other.sent_bytes,
            self.received_bytes + other.received_bytes,
        )


async def connect(
    name: str,
    address: Address,
    client_id: str,
    security: ClientSecurity = PLAINTEXT,
    traffic: Traffic | None = None,
) -> PeerConnection:
    """Return a new connection, encrypted and logged in as ``security`` says.

    Raises BrokerError BROKER_NOT_AVAILABLE, which names the peer and its address.
    """
    try:
        stream = await trio.open_tcp_stream(*address)
        connected: PeerSocket = socket.socket(fileno=stream.socket.detach())
        session_s = None
        try:
            connected.setblocking(False)
            if security is not PLAINTEXT:
                # A cluster without security does not load these modules.
                from .secured_link import secured

                connected, session_s = await secured(connected, address[0], client_id, security)
        except BaseException:
            connected.close()
            raise
    except (OSError, SaslAuthenticationError) as error:
        raise BrokerError(ErrorCode.BROKER_NOT_AVAILABLE, f"{name} at {address[0]}:{address[1]}: {error}") from None
    return PeerConnection(name, address, connected, client_id, traffic, session_s=session_s)


class PeerConnection:
    """An open connection to one node, which is closed after any failure."""

    def __init__(
        self,
        name: str,
        address: Address,
        connected: PeerSocket,
        client_id: str,
        traffic: Traffic | None = None,
        *,
        session_s: float | None = None,
    ) -> None:
        """Take a socket, with the length of its SASL session in seconds if that ends (KIP-368)."""
        self._client_id = client_id
        self._random = Random()
        self._begin_session(session_s)
        self.address = address
        self._traffic = Traffic() if traffic is None else traffic
        self._name = name
        self._socket: PeerSocket | None = connected
        self._close_reason = ""
        self._conversation = Conversation(client_id)
        self._has_versions = False
        self._space = memoryview(bytearray(READ_BYTES))
        """The buffer for received bytes, kept because allocating it for each answer would cost more than all else."""
        self._is_writing = False
        self._is_reading = False
        self._waiting_for_reader = trio.lowlevel.ParkingLot()

    def is_open(self) -> bool:
        """Return whether requests can be sent. An unused connection is closed here if the other side has closed it."""
        if self._socket is None or self._conversation.in_flight_count:
            return self._socket is not None
        try:
            if not self._socket.recv(1, socket.MSG_PEEK):
                self.close("the other side closed the connection")
        except BlockingIOError:
            pass
        except OSError as error:
            self.close(str(error))
        return self._socket is not None

    def close(self, reason: str) -> None:
        """Close the connection; requests in progress fail with ``reason``."""
        if self._socket is not None:
            self._close_reason = reason
            trio.lowlevel.notify_closing(self._socket)
            self._socket.close()
            self._socket = None
            self._waiting_for_reader.unpark_all()

    async def keep_session(self, security: SecuritySource) -> None:
        """Authenticate again, as the client that ``security`` returns, if the SASL session ends soon (KIP-368).

        The broker answers earlier requests first; no other request may be sent meanwhile. A login that fails or is
        cancelled closes the connection. Raises BrokerError.
        """
        if trio.current_time() < self._authenticates_at:
            return
        # A cluster without security does not load this module.
        from .secured_link import new_login

        try:
            login = await new_login(self._client_id, security())
            await self.negotiate()
            requests = login.requests(self._conversation.versions)
            message, version = next(requests)
            while True:
                request = self._conversation.submit(message, version)
                await self._answer(request)
                assert request.body is not None
                await login.prepare(request.body, trio.to_thread.run_sync)
                message, version = requests.send(request.body)
        except StopIteration as end:
            self._begin_session(end.value)
        except (SaslAuthenticationError, DecodeError) as error:
            raise self._failed(error) from None
        except BaseException:
            self.close("a login was not completed")
            raise

    def _begin_session(self, length_s: float | None) -> None:
        self._authenticates_at = trio.current_time() + reauthentication_delay_s(length_s, self._random)

    async def negotiate(self) -> None:
        """Negotiate the versions with the other side, unless that was done before. Raises BrokerError."""
        negotiation = Negotiation()
        while not self._has_versions:
            request = self._conversation.submit(negotiation.request, negotiation.version)
            await self._answer(request)
            assert request.body is not None
            try:
                versions = negotiation.take(request.body)
            except DecodeError as error:
                raise self._failed(error) from None
            if versions is not None:
                self._conversation.versions = versions
                self._has_versions = True

    async def request(self, message: Message, response: type[Response], *, version: int | None) -> Response:
        """Send a request and wait for its answer; requests are written in the order of the calls.

        Without ``version`` the newest version in common is sent; `negotiate` must have been called. A wait that is
        cancelled leaves the other requests alone. Raises BrokerError: NETWORK_EXCEPTION if the connection ends first or
        the answer is malformed, UNSUPPORTED_VERSION.
        """
        request = self._conversation.submit(message, version)
        await self._answer(request)
        try:
            return request.decode(response)
        except DecodeError as error:
            raise self._failed(error) from None

    @property
    def takes_steps(self) -> bool:
        """Whether `request_in_steps` may be used: on a plain connection whose session has no end."""
        return type(self._socket) is socket.socket and self._authenticates_at == math.inf

    @property
    def space(self) -> memoryview:
        """The memory in which `request_in_steps` receives answers."""
        return self._space

    def header_tail(self, key: AnyApiKey, version: int) -> bytes:
        """Return the bytes of a request's header from the client id on."""
        return self._conversation.header_tail(key, version)

    async def request_in_steps(
        self, message: Message, response: type[Response], *, version: int, steps: Steps, watcher: Watcher
    ) -> Response:
        """Send a request, let ``steps`` handle its answer and send further ones; return the first answer they leave.

        There must be no other request in progress. Raises BrokerError as `request` does, and as the steps do.
        """
        request = self._conversation.submit(message, version)
        steps.correlation_id = request.correlation_id
        try:
            if self._socket is None:
                raise ConnectionResetError(self._close_reason)
            await self._write(self._socket)
            assert isinstance(self._socket, socket.socket)
            self._is_reading = True
            try:
                count = await StepwiseReading(self._socket, self._space, steps, watcher).run()
            finally:
                self._is_reading = False
            self._conversation.replace_latest(steps.correlation_id)
            self._take_in(count)
        except (OSError, DecodeError, trio.ClosedResourceError) as error:
            raise self._failed(error) from None
        await self._answer(request)
        try:
            return request.decode(response)
        except DecodeError as error:
            raise self._failed(error) from None

    async def _answer(self, request: InFlightRequest) -> None:
        """Send what was submitted and wait until ``request`` is answered. Raises BrokerError NETWORK_EXCEPTION."""
        self._traffic.requests += 1
        try:
            if self._socket is not None and not self._is_writing:
                await self._write(self._socket)
            while request.body is None:
                if self._socket is None:
                    raise ConnectionResetError(self._close_reason)
                if self._is_reading:
                    await self._waiting_for_reader.park()
                else:
                    await self._read(self._socket)
        except (OSError, DecodeError, trio.ClosedResourceError) as error:
            raise self._failed(error) from None

    def _failed(self, error: Exception) -> BrokerError:
        self.close(str(error))
        return BrokerError(ErrorCode.NETWORK_EXCEPTION, f"{self._name}: {self._close_reason}")

    async def _write(self, connected: PeerSocket) -> None:
        """Write all outgoing bytes, also those of requests that other tasks submit in the meantime."""
        self._is_writing = True
        try:
            while rest := memoryview(b"".join(self._conversation.take_outgoing())):
                while rest:
                    try:
                        count = connected.send(rest)
                        self._traffic.sent_bytes += count
                        rest = rest[count:]
                    except BlockingIOError:
                        await trio.lowlevel.wait_writable(connected)
        except trio.Cancelled:
            self.close("a request was written in part")
            raise
        finally:
            self._is_writing = False

    async def _read(self, connected: PeerSocket) -> None:
        """Wait for bytes and take in what has arrived, for all tasks that wait for answers."""
        self._is_reading = True
        try:
            await trio.lowlevel.wait_readable(connected)
            count = READ_BYTES
            while count == READ_BYTES:
                try:
                    count = connected.recv_into(self._space)
                except BlockingIOError:
                    return
                self._take_in(count)
        finally:
            self._is_reading = False
            self._waiting_for_reader.unpark_all()

    def _take_in(self, count: int) -> None:
        """Take in the bytes that were received, of which there are none at the end of the stream."""
        if not count:
            raise ConnectionResetError("the other side closed the connection")
        self._traffic.received_bytes += count
        self._conversation.feed(self._space[:count])
        while self._conversation.next_answered() is not None:
            self._traffic.answers += 1
