"""The hints at new leaders in answers to Fetch v16 and later (KIP-951), whose addresses are those of upstream brokers.

An answer of few bytes is decoded, and its addresses are replaced. A larger one is passed on while it arrives, and its
size is known to the client before the hints arrive, which are its last field. Node ids are replaced where they are. The
addresses are replaced too, and a field that no client knows fills the rest of their place. Addresses that need more
place than those of upstream are hidden in such a field: clients then ask for the metadata, as those of older versions
do.
"""

from __future__ import annotations

from collections.abc import Generator

from ...broker.server.client_connection import ClientConnection, UnanswerableError
from ...protocol.codec import decode, encode
from ...protocol.errors import DecodeError
from ...protocol.messages.fetch import FetchResponse
from ...protocol.unsigned_varint import encode_unsigned_varint, read_unsigned_varint
from ..addresses import Addresses, rewrite_brokers

FIRST_VERSION = 16
MOST_TAIL_BYTES = 64 * 1024
HEAD_BYTES = 1 + 4 + 2 + 4
"""The tagged fields of the header, of which there are none; throttle time, error code and session id."""
TOPIC_ID_BYTES = 16
PARTITION_BYTES = 4 + 2 + 8 + 8 + 8
"""Index, error code, high watermark, last stable offset and log start offset."""
ABORTED_BYTES = 8 + 8
REPLICA_BYTES = 4
NO_FIELDS = b"\0"
LONGEST_VARINT = 5
NODE_ENDPOINTS, UNKNOWN_FIELD = 0, 0x7F
CURRENT_LEADER = 1
"""The tagged field of a partition that begins with a node id."""
NODE_ID_BYTES = 4
NODE_ID = 0
"""The value that `Wanted` yields to pass over a node id, which may be replaced."""

Wanted = Generator[int, bytes, None]
"""Yields how many bytes it wants next, negative to pass over as many, or `NODE_ID`, and is sent the bytes."""


class HintScanner:
    """A reader of the structure of an answer that arrives in pieces; it holds back the answer's last fields."""

    def __init__(self, body_bytes: int, version: int, addresses: Addresses, client: ClientConnection) -> None:
        """Begin behind the correlation id of an answer, with ``body_bytes`` still to come."""
        self._remaining_bytes = body_bytes
        self._version = version
        self._addresses = addresses
        self._client = client
        self._replaced_bytes = 0
        """The bytes of the present node id that are still to be replaced."""
        self._structure: Wanted | None = _structure()
        self._wanted = next(self._structure)
        self._collected = bytearray()
        self._tail = bytearray()

    def pass_on(self, piece: memoryview) -> memoryview:
        """Return the part of a piece that can be sent now, with node ids replaced in place.

        Raises UnanswerableError for a malformed answer.
        """
        position = 0
        self._remaining_bytes -= len(piece)
        while self._structure is not None and position < len(piece):
            available = len(piece) - position
            if self._wanted < 0:
                passed = min(available, -self._wanted)
                if self._replaced_bytes:
                    self._replace(piece[position : position + passed])
                position += passed
                self._wanted += passed
                if self._wanted == 0:
                    self._advance(b"")
                continue
            taken = min(available, self._wanted - len(self._collected))
            self._collected += piece[position : position + taken]
            position += taken
            if len(self._collected) == self._wanted:
                found, self._collected = bytes(self._collected), bytearray()
                self._advance(found)
        if self._structure is None:
            self._tail += piece[position:]
            if len(self._tail) + self._remaining_bytes > MOST_TAIL_BYTES:
                raise UnanswerableError("upstream's answer to Fetch is malformed behind its partitions")
        return piece[:position]

    @property
    def unseen_bytes(self) -> int:
        """The number of the next bytes that may be passed on without `pass_on`; see `pass_over`."""
        return max(-self._wanted, 0) if self._structure is not None and not self._replaced_bytes else 0

    def pass_over(self, size_bytes: int) -> None:
        """Count bytes that were passed on unseen, at most `unseen_bytes`."""
        self._remaining_bytes -= size_bytes
        self._wanted += size_bytes
        if self._wanted == 0:
            self._advance(b"")

    def end(self) -> bytes:
        """Return the last fields with the addresses that clients know.

        Raises UnanswerableError for a malformed answer.
        """
        if self._structure is not None or not self._tail:
            raise UnanswerableError("upstream's answer to Fetch ends within a partition")
        tail = bytes(self._tail)
        return tail if tail == NO_FIELDS else self._with_known_addresses(tail) or without_hints(tail)

    def _with_known_addresses(self, tail: bytes) -> bytes | None:
        """Return the last fields with other addresses in as many bytes; None if they do not fit."""
        before = encode(FetchResponse(), self._version)[: -len(NO_FIELDS)]
        try:
            response = decode(FetchResponse, before + tail, self._version)
        except DecodeError as error:
            raise UnanswerableError(f"upstream's answer to Fetch is malformed: {error}") from None
        rewrite_brokers(response, self._version, self._addresses, self._client)
        return filled(encode(response, self._version)[len(before) :], len(tail))

    def _replace(self, found: memoryview) -> None:
        """Replace the next bytes of a node id, which may end in another piece."""
        at = NODE_ID_BYTES - self._replaced_bytes
        if at == 0 and found[0] > 0x7F:
            # No node has a negative id.
            self._replaced_bytes = 0
            return
        found[:] = self._addresses.node(0).to_bytes(NODE_ID_BYTES, "big")[at : at + len(found)]
        self._replaced_bytes -= len(found)

    def _advance(self, found: bytes) -> None:
        assert self._structure is not None
        try:
            self._wanted = self._structure.send(found)
            if self._wanted == NODE_ID:
                self._wanted = -NODE_ID_BYTES
                self._replaced_bytes = NODE_ID_BYTES if self._addresses.changes_node_ids else 0
        except StopIteration:
            self._structure = None
        except DecodeError as error:
            raise UnanswerableError(f"upstream's answer to Fetch is malformed: {error}") from None


def without_hints(tail: bytes) -> bytes:
    """Return the tagged fields at the end of an answer with an unknown field instead of the leaders' addresses."""
    if tail[:1] == NO_FIELDS or tail[1:2] != bytes([NODE_ENDPOINTS]):
        return tail
    return tail[:1] + bytes([UNKNOWN_FIELD]) + tail[2:]


def filled(fields: bytes, size_bytes: int) -> bytes | None:
    """Return tagged fields that fill ``size_bytes`` with one or two more, which no client knows; None if impossible."""
    if len(fields) == size_bytes:
        return fields
    # Where the length of one field would need a byte more, and so be another length, a second field takes two bytes.
    for added, first in ((1, b""), (2, bytes([UNKNOWN_FIELD - 1, 0]))):
        left_bytes = size_bytes - len(fields) - len(first)
        for content_bytes in range(max(left_bytes - LONGEST_VARINT - 1, 0), left_bytes - 1):
            last = bytes([UNKNOWN_FIELD]) + encode_unsigned_varint(content_bytes) + bytes(content_bytes)
            if len(last) == left_bytes:
                return bytes([fields[0] + added]) + fields[1:] + first + last
    return None


def _structure() -> Wanted:
    """Walk through an answer up to the tagged fields at its end."""
    yield -HEAD_BYTES
    for _ in range((yield from _length())):
        yield -TOPIC_ID_BYTES
        for _ in range((yield from _length())):
            yield -PARTITION_BYTES
            for _ in range((yield from _length())):
                yield -ABORTED_BYTES
                yield from _pass_over_fields()
            yield -REPLICA_BYTES
            records_bytes = yield from _length()
            if records_bytes:
                yield -records_bytes
            yield from _pass_over_fields(CURRENT_LEADER)
        yield from _pass_over_fields()


def _pass_over_fields(with_node_id: int = -1) -> Wanted:
    """Pass over tagged fields, of which the one with the number ``with_node_id`` begins with a node id."""
    for _ in range((yield from _varint())):
        number = yield from _varint()
        size = yield from _varint()
        if number == with_node_id and size >= NODE_ID_BYTES:
            yield NODE_ID
            size -= NODE_ID_BYTES
        if size:
            yield -size


def _length() -> Generator[int, bytes, int]:
    """Read the length of a compact list or of records; null is 0."""
    return max((yield from _varint()) - 1, 0)


def _varint() -> Generator[int, bytes, int]:
    found = b""
    while len(found) < LONGEST_VARINT:
        found += yield 1
        if found[-1] < 0x80:
            break
    return read_unsigned_varint(memoryview(found), 0)[0]
