"""The client's side of one connection, without I/O: frames, headers, correlation ids, and the order of answers.

A driver gives requests to a `Conversation` and writes its `outgoing` bytes; it feeds the bytes that it reads, and takes
answers. The drivers are `client.wire.connection` (trio, many requests in flight), `broker.peers` (trio, for other
brokers and the controller) and `pipeline.kafka.wire` (blocking).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import cached_property
from struct import Struct
from typing import TypeVar

from .apis import AnyApiKey, api_key_of, request_header_version, response_header_version
from .codec import Buffer, decode, decode_prefix, encode, encode_pieces
from .errors import DecodeError
from .framing import LENGTH, FrameReader, frame_size
from .messages.header import RequestHeader, ResponseHeader
from .schema import Message
from .spoken_versions import SpokenVersions

Response = TypeVar("Response", bound=Message)

LARGEST_FRAME_BYTES = 2**31 - 1
"""The largest frame that the protocol allows; Kafka's clients have no smaller limit (`NetworkReceive.UNLIMITED`)."""
LAST_CORRELATION_ID = 0x7FFFFFFF

_HEAD = Struct(">ihhi")
"""The start of a request: size, API key, version, correlation id. It is the same in all versions of the header."""
_CORRELATION_ID = Struct(">i")
_CORRELATION_ID_AT = _HEAD.size - _CORRELATION_ID.size
_HEADER_FIELDS_IN_HEAD = _HEAD.size - LENGTH.size
_LARGEST_OPENING_BYTES = 12


class InFlightRequest:
    """A request that was given to a conversation, and the bytes of its answer once they have arrived."""

    __slots__ = ("body", "correlation_id", "key", "size_bytes", "version")

    def __init__(self, key: AnyApiKey, version: int, correlation_id: int, size_bytes: int) -> None:
        self.key = key
        self.version = version
        self.correlation_id = correlation_id
        self.size_bytes = size_bytes
        """The size of the request with its header and length."""
        self.body: memoryview | None = None
        """The answer without its header; None before the answer has arrived."""

    def decode(self, answer: type[Response]) -> Response:
        """Return the decoded answer, which has arrived. Raises DecodeError if the answer is malformed."""
        assert self.body is not None, "the answer has not arrived"
        return decode(answer, self.body, self.version)


class Conversation:
    """The requests and answers of one connection, as its client sees them.

    A broker answers in the order of the requests. Any DecodeError means that nothing more can be read: the driver must
    close the connection.
    """

    def __init__(
        self, client_id: str | None, *, limit_bytes: int = LARGEST_FRAME_BYTES, first_correlation_id: int = 0
    ) -> None:
        """Begin a conversation. No answer may be larger than ``limit_bytes``."""
        self.versions = SpokenVersions({})
        """The versions to send; empty before the negotiation."""
        self._client_id = client_id
        self._limit_bytes = limit_bytes
        self._reader = FrameReader(limit_bytes)
        self._opening: bytearray | None = bytearray()
        """The first bytes that were received, until they are known to be Kafka's."""
        self._outgoing: list[Buffer] = []
        self._in_flight: deque[InFlightRequest] = deque()
        self._next_correlation_id = first_correlation_id

    # --- requests ---

    @property
    def in_flight_count(self) -> int:
        """The number of requests whose answers have not arrived."""
        return len(self._in_flight)

    def submit(
        self, message: Message, version: int | None = None, *, has_answer: bool = True, ahead_of: int = 0
    ) -> InFlightRequest:
        """Append a request to `outgoing`, in the newest version in common unless ``version`` is given.

        ``has_answer`` is false for Produce with acks=0. ``ahead_of`` is the number of requests with an answer that were
        taken from `outgoing` and will be written after this one. Large fields (records) are not copied. Raises
        BrokerError UNSUPPORTED_VERSION; the errors of `codec.encode`.
        """
        key = api_key_of(message)
        if version is None:
            version = self.versions.version(key)
        body = encode_pieces(message, version)
        return self.submit_encoded(key, version, body, has_answer=has_answer, ahead_of=ahead_of)

    def submit_encoded(
        self, key: AnyApiKey, version: int, body: Sequence[Buffer], *, has_answer: bool = True, ahead_of: int = 0
    ) -> InFlightRequest:
        """Append a request as `submit` does, whose encoded body comes in pieces."""
        request, header = self._begin(key, version, sum(map(len, body)))
        self._outgoing.append(header)
        self._outgoing += body
        if ahead_of:
            self._in_flight.insert(len(self._in_flight) - ahead_of, request)
        elif has_answer:
            self._in_flight.append(request)
        return request

    def header_tail(self, key: AnyApiKey, version: int) -> bytes:
        """Return the end of a request's header: the client id and no tagged fields."""
        return self._header_tails[request_header_version(key, version)]

    def replace_latest(self, correlation_id: int) -> None:
        """Expect the answer to a request with this correlation id instead of that to the latest one, the only one.

        The driver has written that request, and all since the latest one, itself: they differ in a few bytes.
        """
        (request,) = self._in_flight
        request.correlation_id = correlation_id
        self._next_correlation_id = (correlation_id + 1) & LAST_CORRELATION_ID

    def submit_each(self, message: Message, version: int, records: Sequence[Buffer]) -> None:
        """Append a request for each of ``records``, which replace the empty last field of ``message``.

        Records are the last field of a message in versions without tagged fields. They are not copied.
        """
        key = api_key_of(message)
        body = encode(message, version)[: -LENGTH.size]
        for each in records:
            request, header = self._begin(key, version, len(body) + LENGTH.size + len(each))
            self._outgoing += (b"".join((header, body, LENGTH.pack(len(each)))), each)
            self._in_flight.append(request)

    def _begin(self, key: AnyApiKey, version: int, body_bytes: int) -> tuple[InFlightRequest, bytes]:
        """Return a new request and the bytes before its body: the length and the header."""
        correlation_id = self._next_correlation_id
        tail = self._header_tails[request_header_version(key, version)]
        size_bytes = LENGTH.size + _HEADER_FIELDS_IN_HEAD + len(tail) + body_bytes
        head = _HEAD.pack(size_bytes - LENGTH.size, key, version, correlation_id)
        self._next_correlation_id = (correlation_id + 1) & LAST_CORRELATION_ID
        return InFlightRequest(key, version, correlation_id, size_bytes), head + tail

    @cached_property
    def _header_tails(self) -> list[bytes]:
        """The end of the header, by version of the header: the client id and no tagged fields."""
        header = RequestHeader(client_id=self._client_id)
        versions = range(RequestHeader.VERSIONS.first, RequestHeader.VERSIONS.last + 1)
        return [encode(header, version)[_HEADER_FIELDS_IN_HEAD:] for version in versions]

    def take_outgoing(self) -> list[Buffer]:
        """Return the bytes to write, in pieces, and forget them."""
        outgoing, self._outgoing = self._outgoing, []
        return outgoing

    # --- answers ---

    def feed(self, data: Buffer) -> None:
        """Take in bytes that were received. Raises DecodeError if they are the first and of another protocol."""
        if self._opening is not None:
            self._opening += data[:_LARGEST_OPENING_BYTES]
            self._check_opening(self._opening)
        self._reader.feed(data)

    def room(self) -> memoryview:
        """Return memory to receive the next bytes in, instead of `feed`; see `FrameReader.room`. Raises DecodeError."""
        return self._reader.room()

    def received(self, data: memoryview) -> None:
        """Take in the bytes that were received at the start of `room`. Raises DecodeError as `feed`."""
        if self._opening is not None:
            self._opening += data[:_LARGEST_OPENING_BYTES]
            self._check_opening(self._opening)
        self._reader.received(len(data))

    def next_answered(self) -> InFlightRequest | None:
        """Return the next request that is answered in full, or None until more bytes arrive. Raises DecodeError."""
        frame = self._reader.next_frame()
        return None if frame is None else self.answer(frame)

    def frame_size(self, prefix: Buffer) -> int:
        """Return the size of the answer behind its length, for a driver that reads an answer into its own memory.

        Raises DecodeError for a length that is negative or above the limit, or bytes of another protocol.
        """
        if self._opening is not None:
            self._check_opening(prefix)
        return frame_size(prefix, self._limit_bytes)

    def answer(self, frame: memoryview) -> InFlightRequest:
        """Return the request that the frame answers, with the body of the answer. Raises DecodeError."""
        if not self._in_flight:
            raise DecodeError("an answer without a request")
        request = self._in_flight[0]
        request.body = frame[_end_of_header(frame, request) :]
        return self._in_flight.popleft()

    def _check_opening(self, data: Buffer) -> None:
        """Raise DecodeError if these are the first bytes of another protocol.

        Read as the size of a frame, such bytes announce hundreds of megabytes, and the client would wait for them.
        """
        if data[:1] in (b"\x15", b"\x16") and data[1:2] == b"\x03":
            raise DecodeError("that port uses TLS: set security_protocol=SSL")
        if len(data) < LENGTH.size:
            return
        start = bytes(data[: LENGTH.size])
        if start.isascii() and start.decode().isprintable():
            raise DecodeError(f"a Kafka broker does not answer with {bytes(data[:_LARGEST_OPENING_BYTES])!r}")
        self._opening = None


def _end_of_header(frame: memoryview, request: InFlightRequest) -> int:
    """Return the size of the response header. Raises DecodeError if the frame answers another request."""
    if len(frame) < _CORRELATION_ID.size:
        raise DecodeError(f"an answer of {len(frame)} bytes")
    (correlation_id,) = _CORRELATION_ID.unpack_from(frame)
    if correlation_id != request.correlation_id:
        raise DecodeError(f"answer {correlation_id} instead of {request.correlation_id}")
    if response_header_version(request.key, request.version) == 0:
        return _CORRELATION_ID.size
    if len(frame) > _CORRELATION_ID.size and frame[_CORRELATION_ID.size] == 0:
        return _CORRELATION_ID.size + 1
    return decode_prefix(ResponseHeader, frame, 1)[1]
