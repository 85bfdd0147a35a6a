"""A blocking connection to one broker for a task that waits for one operation at a time, with at most one request
ahead.

`client.wire.connection` does the same for many concurrent requests; a Spark task needs less, at lower cost.
"""

from __future__ import annotations

import selectors
import socket
import ssl
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BufferedReader
from random import Random
from typing import TypeVar, cast

from ...client.errors import AuthenticationFailedError, ConnectionLostError
from ...protocol.apis import AnyApiKey, ApiKey, api_key_of
from ...protocol.conversation import Conversation, InFlightRequest
from ...protocol.errors import BrokerError, DecodeError
from ...protocol.framing import LENGTH
from ...protocol.records.record import Buffer
from ...protocol.schema import Message
from ...protocol.spoken_versions import Negotiation, SpokenVersions
from ...security.client_login import reauthentication_delay_s
from ...security.client_security import PLAINTEXT, ClientSecurity, is_security_key
from ...security.errors import SaslAuthenticationError, SecuritySettingError
from ...security.tls import certificate_hint, tls_refusal
from ..errors import OptionError
from .answer_memory import AnswerMemory
from .connector_options import DEFAULT_RETRY_INTERVAL_MS
from .offset_options import parse_int

Response = TypeVar("Response", bound=Message)

READ_AHEAD_BYTES = 64 << 10
"""The read size for which several small answers come with one read; larger answers are read into their own memory."""
DEFAULT_PORT = 9092
MOST_PORT = 65535
NUM_RETRIES = "fetchOffset.numRetries"
RETRY_INTERVAL_MS = "fetchOffset.retryIntervalMs"
NEWEST_BY_NAME: Mapping[AnyApiKey, int] = {ApiKey.FETCH: 12}
"""The newest version that identifies topics by name; the next version has only their ids."""


@dataclass(frozen=True, slots=True)
class WireSettings:
    """The settings of the connections to brokers."""

    bootstrap: tuple[tuple[str, int], ...]
    client_id: str = "gregor-pipeline"
    request_timeout_s: float = 30.0
    security: ClientSecurity = PLAINTEXT
    offset_retries: int | None = None
    """The number of retries of a request for topics and offsets; None: until `cluster_view.PATIENCE_S` has passed."""
    offset_retry_interval_s: float = DEFAULT_RETRY_INTERVAL_MS / 1000

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> WireSettings:
        """Parse the connector's `kafka.*` options; unknown ones that do not concern security are ignored.

        Raises OptionError.
        """
        servers = options.get("kafka.bootstrap.servers")
        if not servers:
            raise OptionError("Option 'kafka.bootstrap.servers' must be specified for configuring Kafka consumer")
        timeout_ms = parse_int("kafka.request.timeout.ms", options.get("kafka.request.timeout.ms", "30000"), least=1)
        retries = options.get(NUM_RETRIES)
        interval = options.get(RETRY_INTERVAL_MS)
        interval_ms = DEFAULT_RETRY_INTERVAL_MS if interval is None else parse_int(RETRY_INTERVAL_MS, interval, least=0)
        return cls(
            bootstrap=tuple(_address(server.strip()) for server in servers.split(",") if server.strip()),
            client_id=options.get("kafka.client.id", "gregor-pipeline"),
            request_timeout_s=timeout_ms / 1000,
            security=_security(options),
            offset_retries=None if retries is None else parse_int(NUM_RETRIES, retries, least=0),
            offset_retry_interval_s=interval_ms / 1000,
        )


class Wire:
    """A connection that its user closes with `close`.

    Every method raises ConnectionLostError on a lost or silent broker.
    """

    def __init__(self, host: str, port: int, settings: WireSettings) -> None:
        self.node = f"{host}:{port}"
        self._settings = settings
        self._conversation = Conversation(settings.client_id)
        self._memory = AnswerMemory()
        self._answered: deque[InFlightRequest] = deque()
        """Requests whose answers were read before `receive` was called for them, to log in again."""
        self._authenticates_at: float | None = None
        """The time on the monotonic clock after which to log in again, as the SASL session ends soon (KIP-368)."""
        try:
            self._socket = socket.create_connection((host, port), settings.request_timeout_s)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if settings.security.uses_tls:
                self._socket = settings.security.tls_context.wrap_socket(self._socket, server_hostname=host)
        except ssl.SSLError as fault:
            self._socket.close()
            reason = (getattr(fault, "verify_message", "") or fault.reason or "") + certificate_hint(fault)
            raise AuthenticationFailedError(f"SSL handshake with {self.node} failed: {reason}") from fault
        except OSError as fault:
            raise ConnectionLostError(f"no Kafka broker answers at {self.node}: {fault}") from fault
        self._incoming = cast(BufferedReader, self._socket.makefile("rb", READ_AHEAD_BYTES))
        try:
            session_s = self._log_in(settings.security) if settings.security.uses_sasl else None
            logged_in_at = time.monotonic()
            self._negotiate()
            # Not before: a client cannot authenticate again whose broker's versions are unknown to it.
            self._begin_session(session_s, logged_in_at)
        except DecodeError as fault:
            raise self._malformed(fault) from fault
        except BaseException:
            self.close()
            raise

    @property
    def versions(self) -> SpokenVersions:
        """The versions to send."""
        return self._conversation.versions

    def is_quiet(self) -> bool:
        """Return whether the connection is open, as far as is known, and nothing has arrived or is expected."""
        if self._conversation.in_flight_count or self._answered or self._socket.fileno() < 0:
            return False
        with selectors.DefaultSelector() as selector:
            # The end of a connection can be read too.
            selector.register(self._socket, selectors.EVENT_READ)
            return not selector.select(0)

    def close(self) -> None:
        """Close the connection."""
        self._incoming.close()
        self._socket.close()

    def request(self, message: Message, answer: type[Response], *, version: int | None = None) -> Response:
        """Send a request and wait for its answer. Raises BrokerError UNSUPPORTED_VERSION too."""
        self.send(message, version=version)
        return self.receive(answer)

    def send(self, message: Message, *, version: int | None = None) -> None:
        """Send a request; `receive` returns its answer later, in the order of the requests."""
        if version is None:
            key = api_key_of(message)
            version = self.versions.version(key, newest=NEWEST_BY_NAME.get(key))
        self._keep_session()
        self._conversation.submit(message, version)
        self._write([b"".join(self._conversation.take_outgoing())])

    def send_each(self, message: Message, records: Sequence[Buffer], *, version: int) -> None:
        """Send a request for each of `records`; see `Conversation.submit_each`. `receive` returns as many answers."""
        self._keep_session()
        self._conversation.submit_each(message, version, records)
        self._write(self._conversation.take_outgoing())

    def _write(self, pieces: list[Buffer]) -> None:
        try:
            if isinstance(self._socket, ssl.SSLSocket) or len(pieces) == 1:
                self._socket.sendall(b"".join(pieces) if len(pieces) > 1 else pieces[0])
                return
            while pieces:
                sent = self._socket.sendmsg(pieces)
                done = 0
                while done < len(pieces) and sent >= len(pieces[done]):
                    sent -= len(pieces[done])
                    done += 1
                del pieces[:done]
                if sent:
                    pieces[0] = memoryview(pieces[0])[sent:]
        except OSError as fault:
            raise self._lost(fault) from fault

    def receive(self, answer: type[Response]) -> Response:
        """Return the answer to the oldest pending request; its records are views of memory with no other user."""
        try:
            request = self._answered.popleft() if self._answered else self._conversation.answer(self._read_frame())
            return request.decode(answer)
        except DecodeError as fault:
            raise self._malformed(fault) from fault

    def _read_frame(self) -> memoryview:
        return self._read_exactly(self._conversation.frame_size(self._read_exactly(LENGTH.size)))

    def _lost(self, fault: Exception) -> ConnectionLostError:
        """Close the connection; return the error to raise, a refusal by TLS 1.3 included: it follows the handshake."""
        self.close()
        refusal = tls_refusal(fault)
        if refusal is not None:
            return AuthenticationFailedError(f"{self.node}: {refusal}")
        return ConnectionLostError(f"{self.node}: {fault}")

    def _malformed(self, fault: DecodeError) -> ConnectionLostError:
        """Close the connection, on which nothing more can be read; return the error to raise."""
        self.close()
        return ConnectionLostError(f"{self.node}: malformed answer: {fault}")

    def _read_exactly(self, size: int) -> memoryview:
        frame = self._memory.take(size)
        try:
            taken = self._incoming.readinto(frame)
        except (OSError, ValueError) as fault:
            raise self._lost(fault) from fault
        if taken < size:
            self.close()
            raise ConnectionLostError(f"{self.node}: the broker closed the connection")
        return frame

    def _log_in(self, security: ClientSecurity) -> float | None:
        """Log in by SASL and return the length of the session in seconds, None if it has no end.

        Raises AuthenticationFailedError with the broker's reason, DecodeError.
        """
        try:
            login = security.client_login(self._settings.client_id)
            steps = login.steps()
            data = next(steps)
            while True:
                self._write([data])
                size = login.frame_size(bytes(self._read_exactly(LENGTH.size)))
                data = steps.send(memoryview(bytes(self._read_exactly(size))))
        except StopIteration as end:
            session_s: float | None = end.value
            return session_s
        except (SaslAuthenticationError, BrokerError) as failure:
            raise AuthenticationFailedError(f"{self.node}: {failure}") from None

    def _begin_session(self, length_s: float | None, logged_in_at: float) -> None:
        if length_s is not None:
            self._authenticates_at = logged_in_at + reauthentication_delay_s(length_s, Random())

    def _keep_session(self) -> None:
        """Log in again on the live connection if the session ends soon (KIP-368).

        Raises AuthenticationFailedError, which closes the connection.
        """
        if self._authenticates_at is None or time.monotonic() < self._authenticates_at:
            return
        try:
            while self._conversation.in_flight_count:
                self._answered.append(self._conversation.answer(self._read_frame()))
            self._authenticate_again()
        except DecodeError as fault:
            raise self._malformed(fault) from fault
        except (SaslAuthenticationError, BrokerError) as failure:
            self.close()
            raise AuthenticationFailedError(f"{self.node}: cannot authenticate again: {failure}") from None

    def _authenticate_again(self) -> None:
        requests = self._settings.security.client_login(self._settings.client_id).requests(self.versions)
        try:
            message, version = next(requests)
            while True:
                self._conversation.submit(message, version)
                self._write([b"".join(self._conversation.take_outgoing())])
                body = self._conversation.answer(self._read_frame()).body
                assert body is not None
                message, version = requests.send(body)
        except StopIteration as end:
            self._begin_session(end.value, time.monotonic())

    def _negotiate(self) -> None:
        negotiation = Negotiation()
        versions = None
        while versions is None:
            self.send(negotiation.request, version=negotiation.version)
            body = self._conversation.answer(self._read_frame()).body
            assert body is not None
            versions = negotiation.take(body)
        self._conversation.versions = versions


def _security(options: Mapping[str, str]) -> ClientSecurity:
    """Return the security of the options `kafka.security.protocol`, `kafka.ssl.*` and `kafka.sasl.*`."""
    named = {name.removeprefix("kafka."): text for name, text in options.items() if name.startswith("kafka.")}
    properties = {name: text for name, text in named.items() if is_security_key(name)}
    if not properties:
        return PLAINTEXT
    try:
        return ClientSecurity.from_properties(properties)
    except SecuritySettingError as error:
        raise OptionError(f"options kafka.*: {error}") from None


def _address(text: str) -> tuple[str, int]:
    host, separator, port = text.rpartition(":")
    if not separator:
        return text, DEFAULT_PORT
    return host.strip("[]"), parse_int("kafka.bootstrap.servers", port, least=1, most=MOST_PORT)
