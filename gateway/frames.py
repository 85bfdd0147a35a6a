"""Frames of requests and answers that a gateway builds or reads itself; all others it passes on as they are."""

from __future__ import annotations

from struct import Struct
from typing import cast

from ..broker.server.parts import Answer
from ..broker.server.request_header_cy import FIXED, Header
from ..protocol.apis import AnyApiKey, request_class, request_header_version, response_class, response_header_version
from ..protocol.codec import Buffer, decode, encode, encode_parts
from ..protocol.schema import Message
from ..protocol.unsigned_varint import skip_tagged_fields

CORRELATION_ID = Struct(">i")
NO_TAGGED_FIELDS = b"\0"


def read_request(key: AnyApiKey, header: Header, frame: memoryview) -> Message:
    """Decode the body of a request. Raises DecodeError."""
    position = header.end
    if request_header_version(key, header.api_version) >= 2:
        position = skip_tagged_fields(frame, position)
    return decode(request_class(key), frame[position:], header.api_version)


def request_frame(key: AnyApiKey, version: int, header: Header, request: Message) -> bytes:
    """Encode a request in another version, with the client id and the correlation id of the client's header."""
    client_id = b"" if header.client_id is None else header.client_id.encode()
    head = FIXED.pack(key, version, header.correlation_id, -1 if header.client_id is None else len(client_id))
    tags = NO_TAGGED_FIELDS if request_header_version(key, version) >= 2 else b""
    return b"".join((head, client_id, tags, encode(request, version)))


def read_answer(key: AnyApiKey, version: int, frame: Buffer) -> Message:
    """Decode the frame of an answer. Raises DecodeError."""
    view = memoryview(frame)
    position = CORRELATION_ID.size
    if response_header_version(key, version) >= 1:
        position = skip_tagged_fields(view, position)
    return decode(response_class(key), view[position:], version)


def answer_parts(key: AnyApiKey, version: int, correlation_id: int, response: Message) -> Answer:
    """Encode an answer as parts; records may be parts whose bytes do not exist yet."""
    head = CORRELATION_ID.pack(correlation_id)
    if response_header_version(key, version) >= 1:
        head += NO_TAGGED_FIELDS
    # Every part that is put into a response has a method that sends it, not only a size.
    return cast(Answer, [head, *encode_parts(response, version)])
