"""A blocking connection to one broker for a task that waits for one operation at a time, with at most one request
ahead.

`client.wire.connection` does the same for many concurrent requests; a Spark task needs less, at lower cost.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BufferedReader
from struct import Struct
from typing import TypeVar, cast

from ...client.errors import ConnectionLostError
from ...client.wire.api_versions import SpokenVersions
from ...client.wire.connection import SOFTWARE_NAME, api_key_of
from ...protocol.apis import AnyApiKey, ApiKey, request_header_version, response_header_version
from ...protocol.codec import decode, decode_prefix, encode
from ...protocol.errors import BrokerError, DecodeError, ErrorCode
from ...protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ...protocol.messages.header import RequestHeader, ResponseHeader
from ...protocol.records.record import Buffer
from ...protocol.schema import Message
from ..errors import OptionError
from .answer_memory import AnswerMemory
from .offset_options import parse_int

Response = TypeVar("Response", bound=Message)

LENGTH = Struct(">i")
CORRELATION_ID_AT = 8
"""The position of the correlation id in a request's frame."""
MAX_ANSWER_BYTES = 2**31 - 1
READ_AHEAD_BYTES = 64 << 10
"""The read size for which several small answers come with one read; larger answers are read into their own memory."""
DEFAULT_PORT = 9092
NUM_RETRIES = "fetchOffset.numRetries"
RETRY_INTERVAL_MS = "fetchOffset.retryIntervalMs"
NEWEST_BY_NAME: Mapping[AnyApiKey, int] = {ApiKey.FETCH: 12}
"""The newest version that identifies topics by name; the next version has only their ids."""


@dataclass(frozen=True, slots=True)
class WireSettings:
    """The settings of the connections to brokers. `ca_file` is a PEM file of the trusted certificates for TLS."""

    bootstrap: tuple[tuple[str, int], ...]
    client_id: str = "gregor-pipeline"
    request_timeout_s: float = 30.0
    uses_tls: bool = False
    ca_file: str | None = None
    offset_retries: int | None = None
    """The number of retries of a request for topics and offsets; None: until `cluster_view.PATIENCE_S` has passed."""
    offset_retry_interval_s: float = 0.01

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> WireSettings:
        """Parse the connector's `kafka.*` options; unknown ones are ignored. Raises OptionError."""
        servers = options.get("kafka.bootstrap.servers")
        if not servers:
            raise OptionError("option kafka.bootstrap.servers is missing")
        protocol = options.get("kafka.security.protocol", "PLAINTEXT")
        if protocol not in ("PLAINTEXT", "SSL"):
            raise OptionError(f"kafka.security.protocol must be PLAINTEXT or SSL, not {protocol!r}")
        timeout_ms = parse_int("kafka.request.timeout.ms", options.get("kafka.request.timeout.ms", "30000"), least=1)
        retries = options.get(NUM_RETRIES)
        return cls(
            bootstrap=tuple(_address(server.strip()) for server in servers.split(",") if server.strip()),
            client_id=options.get("kafka.client.id", "gregor-pipeline"),
            request_timeout_s=timeout_ms / 1000,
            uses_tls=protocol == "SSL",
            ca_file=options.get("kafka.ssl.truststore.location"),
            offset_retries=None if retries is None else parse_int(NUM_RETRIES, retries, least=0),
            offset_retry_interval_s=parse_int(RETRY_INTERVAL_MS, options.get(RETRY_INTERVAL_MS, "10"), least=0) / 1000,
        )


class Wire:
    """A connection that its user closes with `close`.

    Every method raises ConnectionLostError on a lost or silent broker.
    """

    def __init__(self, host: str, port: int, settings: WireSettings) -> None:
        self.node = f"{host}:{port}"
        self._settings = settings
        self._correlation_id = 0
        self._memory = AnswerMemory()
        self._awaited: list[tuple[int, Message, int]] = []
        try:
            self._socket = socket.create_connection((host, port), settings.request_timeout_s)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if settings.uses_tls:
                context = ssl.create_default_context(cafile=settings.ca_file)
                self._socket = context.wrap_socket(self._socket, server_hostname=host)
        except OSError as fault:
            raise ConnectionLostError(f"no Kafka answers at {self.node}: {fault}") from fault
        self._incoming = cast(BufferedReader, self._socket.makefile("rb", READ_AHEAD_BYTES))
        self.versions = SpokenVersions({})
        try:
            self._negotiate()
        except BaseException:
            self.close()
            raise

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
        self._write([self._await(message, version)])

    def send_each(self, message: Message, records: Sequence[Buffer], *, version: int) -> None:
        """Send a request for each of `records`, which replace the empty last field of `message`.

        Records are the last field in versions without tagged fields. They are not copied. `receive` returns as many
        answers later.
        """
        pieces: list[Buffer] = []
        frame = bytearray(self._await(message, version))
        self._awaited.pop()
        size, records_size_at = len(frame) - LENGTH.size, len(frame) - LENGTH.size
        for each in records:
            self._awaited.append((self._correlation_id, message, version))
            LENGTH.pack_into(frame, 0, size + len(each))
            LENGTH.pack_into(frame, CORRELATION_ID_AT, self._correlation_id)
            LENGTH.pack_into(frame, records_size_at, len(each))
            pieces += (bytes(frame), each)
            self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        self._write(pieces)

    def _await(self, message: Message, version: int) -> bytes:
        """Return a request as a frame, and note that its answer is pending."""
        key = api_key_of(message)
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        header = RequestHeader(
            request_api_key=key,
            request_api_version=version,
            correlation_id=self._correlation_id,
            client_id=self._settings.client_id,
        )
        head = encode(header, request_header_version(key, version))
        body = encode(message, version)
        self._awaited.append((self._correlation_id, message, version))
        return b"".join((LENGTH.pack(len(head) + len(body)), head, body))

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
            self.close()
            raise ConnectionLostError(f"{self.node}: {fault}") from fault

    def receive(self, answer: type[Response]) -> Response:
        """Return the answer to the oldest pending request; its records are views of memory with no other user."""
        correlation_id, message, version = self._awaited.pop(0)
        frame = self._read_frame()
        try:
            header, position = decode_prefix(
                ResponseHeader, frame, response_header_version(api_key_of(message), version)
            )
            if header.correlation_id != correlation_id:
                raise DecodeError(f"an answer to request {header.correlation_id}, not {correlation_id}")
            return decode(answer, frame[position:], version)
        except DecodeError as fault:
            self.close()
            raise ConnectionLostError(f"{self.node}: malformed answer: {fault}") from fault

    def _read_frame(self) -> memoryview:
        (size,) = LENGTH.unpack(self._read_exactly(LENGTH.size))
        if not 0 <= size <= MAX_ANSWER_BYTES:
            raise ConnectionLostError(f"{self.node}: a frame of {size} bytes")
        return self._read_exactly(size)

    def _read_exactly(self, size: int) -> memoryview:
        frame = self._memory.take(size)
        try:
            taken = self._incoming.readinto(frame)
        except (OSError, ValueError) as fault:
            self.close()
            raise ConnectionLostError(f"{self.node}: {fault}") from fault
        if taken < size:
            self.close()
            raise ConnectionLostError(f"{self.node}: the broker hung up")
        return frame

    def _negotiate(self) -> None:
        """Negotiate the versions; a broker without our version of ApiVersions answers in the layout of version 0."""
        for version in (3, 0):
            self._correlation_id += 1
            request = ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version="1")
            self.send(request, version=version)
            self._awaited.clear()
            frame = self._read_frame()
            (code,) = Struct(">h").unpack_from(frame, 4)
            if code == ErrorCode.UNSUPPORTED_VERSION and version:
                continue
            if code:
                raise BrokerError(ErrorCode(code), f"ApiVersions at {self.node}")
            self.versions = SpokenVersions.negotiated(decode(ApiVersionsResponse, frame[4:], version))
            return


def _address(text: str) -> tuple[str, int]:
    host, separator, port = text.rpartition(":")
    if not separator:
        return text, DEFAULT_PORT
    return host.strip("[]"), parse_int("kafka.bootstrap.servers", port, least=1)
