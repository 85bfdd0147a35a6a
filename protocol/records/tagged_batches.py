"""The enriched tags of the batches in a Fetch response, for clients that request them (tagged field 18259 of Fetch).

For each stored batch of the response, in order:

    int64  offset of its first record
    int32  length of its tags in bytes, -1 for none
           tags as in ``enriched``

So a record's tags are those of the last entry at or below its offset, in any format to which the batches were
converted.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import NamedTuple

from .batches import invalid_record
from .enriched import NO_TAGS, KafkaTags, decode_tags, encode_tags
from .record import Buffer

HEAD = Struct(">qi")


class TaggedBatch(NamedTuple):
    """The offset of a batch's first record, and the batch's tags, all None if it has none."""

    offset: int
    tags: KafkaTags


NONE = KafkaTags()


def encode_tagged_batches(batches: Iterable[TaggedBatch]) -> bytes:
    """Encode the bytes of the tagged field."""
    out = bytearray()
    for offset, tags in batches:
        block = encode_tags(tags)
        out += HEAD.pack(offset, len(block) if block else NO_TAGS)
        out += block
    return bytes(out)


def decode_tagged_batches(data: Buffer) -> list[TaggedBatch]:
    """Decode the tagged field. Raises BrokerError INVALID_RECORD for wrong lengths."""
    view = memoryview(data)
    batches: list[TaggedBatch] = []
    position = 0
    while position < len(view):
        if len(view) - position < HEAD.size:
            raise invalid_record(f"{len(view) - position} bytes where a batch's tags must begin")
        offset, length = HEAD.unpack_from(view, position)
        position += HEAD.size
        if not NO_TAGS <= length <= len(view) - position:
            raise invalid_record(f"Tags of {length} bytes where {len(view) - position} are left")
        tags = decode_tags(view[position : position + length]) if length > 0 else NONE
        batches.append(TaggedBatch(offset, tags))
        position += max(length, 0)
    return batches
