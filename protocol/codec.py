"""Reads and writes any version of any message declared in `messages/`.

The first use of a (class, version) compiles its declaration into a function of straight-line Python, of which
tracebacks show the text as `<codec FetchRequest v11 decode>`; `codec_layout.py`, `codec_decoder.py` and
`codec_encoder.py` do that. Rules of the wire: Kafka's protocol guide, KIP-482 for flexible versions, and Kafka 3.9's
generated classes where those are silent (a negative length is null where null is allowed, bytes left over are ignored).
"""

from __future__ import annotations

import struct
from typing import Any, TypeAlias, TypeVar

from .codec_decoder import Decoder, compile_decoder
from .codec_encoder import Encoder, compile_encoder
from .codec_layout import StructLayout, struct_layout
from .errors import BrokerError, DecodeError, EncodeError, ErrorCode
from .schema import Message, Part, Struct

Buffer: TypeAlias = bytes | bytearray | memoryview
_M = TypeVar("_M", bound=Message)

ELEMENT_LIMIT = 1 << 22
"""The most array elements of one message: otherwise a frame of 100 MB could claim some 50 million tiny structures,
10 GB of objects. The limit allows a cluster with 200,000 partitions."""

_decoders: dict[tuple[type[Message], int], Decoder] = {}
_encoders: dict[tuple[type[Message], int], Encoder] = {}
_struct_encoders: dict[tuple[type[Struct], int], Encoder] = {}


def decode(cls: type[_M], data: Buffer, version: int) -> _M:
    """Decode the message at the start of `data`; ignore bytes after the message, as Kafka does.

    Fields of type `Records` are views into `data`. Raises DecodeError for malformed bytes, BrokerError
    (UNSUPPORTED_VERSION) for a version that the class does not have.
    """
    return decode_prefix(cls, data, version)[0]


def decode_prefix(cls: type[_M], data: Buffer, version: int, position: int = 0) -> tuple[_M, int]:
    """Decode a message as `decode` does, from `position` on; also return the position after the message."""
    decoder = _decoders.get((cls, version)) or _new_decoder(cls, version)
    view = data if type(data) is memoryview else memoryview(data)
    try:
        return decoder(view, position, len(view), ELEMENT_LIMIT)
    except (IndexError, struct.error) as error:
        raise DecodeError(f"{cls.__name__} v{version} is cut short: {error}") from error


def encode(message: Message, version: int) -> bytes:
    """Encode the message. Records must be bytes or views; for a `Part` there, use `encode_parts`.

    Raises BrokerError (UNSUPPORTED_VERSION) if the version does not exist or cannot carry a value that must not be
    lost; EncodeError for values out of the declared range, TypeError or AttributeError for those of another type.
    """
    return b"".join(encode_pieces(message, version))


def encode_pieces(message: Message, version: int) -> list[Buffer]:
    """Encode the message in pieces; records are pieces of their own, not copied. Records and errors as in `encode`."""
    return _pieces(message, version)


def encode_parts(message: Message, version: int) -> list[bytes | Part]:
    """Encode the message as bytes and, in their places, the records that are `Part`s. Errors as in `encode`."""
    pieces = _pieces(message, version)
    try:
        return [b"".join(pieces)]
    except TypeError:
        return _parts(pieces)


def _parts(pieces: list[Any]) -> list[bytes | Part]:
    parts: list[bytes | Part] = []
    in_memory: list[Buffer] = []
    for piece in pieces:
        if isinstance(piece, bytes | bytearray | memoryview):
            in_memory.append(piece)
        else:
            if in_memory:
                parts.append(b"".join(in_memory))
                in_memory = []
            parts.append(piece)
    if in_memory:
        parts.append(b"".join(in_memory))
    return parts


def encode_struct(structure: Struct, cls: type[Message], version: int) -> bytes:
    """Encode a structure that a version of the message contains, for an `EncodedStruct`. Errors as in `encode`."""
    kind = type(structure)
    encoder = _struct_encoders.get((kind, version))
    if encoder is None:
        layout = struct_layout(kind, version, flexible=version in cls.FLEXIBLE)
        encoder = compile_encoder(layout, f"{kind.__name__} in {cls.__name__} v{version}")
        _struct_encoders[kind, version] = encoder
    pieces: list[bytes] = []
    try:
        encoder(structure, pieces)
    except struct.error as error:
        raise EncodeError(f"{kind.__name__} v{version} cannot carry a value: {error}") from error
    return b"".join(pieces)


def _pieces(message: Message, version: int) -> list[Any]:
    cls = type(message)
    encoder = _encoders.get((cls, version)) or _new_encoder(cls, version)
    pieces: list[Any] = []
    try:
        encoder(message, pieces)
    except struct.error as error:
        raise EncodeError(f"{cls.__name__} v{version} cannot carry a value: {error}") from error
    return pieces


def _new_decoder(cls: type[Message], version: int) -> Decoder:
    decoder = compile_decoder(_layout(cls, version), f"{cls.__name__} v{version}")
    _decoders[cls, version] = decoder
    return decoder


def _new_encoder(cls: type[Message], version: int) -> Encoder:
    encoder = compile_encoder(_layout(cls, version), f"{cls.__name__} v{version}")
    _encoders[cls, version] = encoder
    return encoder


def _layout(cls: type[Message], version: int) -> StructLayout:
    if version not in cls.VERSIONS:
        raise BrokerError(ErrorCode.UNSUPPORTED_VERSION, f"{cls.__name__} has no version {version}")
    return struct_layout(cls, version, flexible=version in cls.FLEXIBLE)
