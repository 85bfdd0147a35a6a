"""Messages and batches larger than the conversion's buffer, sent from the stored bytes.

Only the head of such a message is built; key and value are views of the stored bytes. So the memory of a conversion
does not grow with the largest record.
"""

from __future__ import annotations

from collections.abc import Iterator

from isal.isal_zlib import crc32

from . import crc_cy, kernel_cy, up_kernel_cy, v0, v1, v2
from .batches import complete_batch_at
from .varint import encode_varint


def large_batch(conversion: up_kernel_cy.UpConversion, stored: memoryview) -> Iterator[memoryview]:
    """Return the v2 batch at which `conversion` stopped with OUT_IS_FULL, in pieces; then skip the batch."""
    batch = complete_batch_at(stored, conversion.position)
    if batch.magic == v2.MAGIC:
        yield batch.view
    else:
        yield from _batch_of_message(conversion, stored)
    conversion.skip_batch(stored)


def large_message(conversion: kernel_cy.DownConversion, stored: memoryview) -> Iterator[memoryview]:
    """Return the message at which `conversion` stopped with OUT_IS_FULL, in pieces; then skip the message."""
    if conversion.records_left:
        yield from _message_of_record(conversion, stored)
        conversion.skip_record()
        return
    message = complete_batch_at(stored, conversion.position)
    if message.magic > conversion.to_magic:
        yield from _v0_message_of_v1(message.view, message.last_offset)
        conversion.count_message()
    else:
        yield message.view
    conversion.skip_batch(stored)


def _batch_of_message(conversion: up_kernel_cy.UpConversion, stored: memoryview) -> Iterator[memoryview]:
    """Convert the v0 or v1 message at the conversion's position to a v2 batch with one record."""
    conversion.read_message(stored)
    key_length, value_length = max(conversion.key_length, -1), max(conversion.value_length, -1)
    key = stored[conversion.key_at : conversion.key_at + max(key_length, 0)]
    value = stored[conversion.value_at : conversion.value_at + max(value_length, 0)]
    # Attributes, timestamp delta and offset delta are 0, and so is the number of headers at the end.
    before_key, before_value, after_value = bytearray(3), bytearray(), memoryview(bytes(1))
    before_key += encode_varint(key_length)
    before_value += encode_varint(value_length)
    record_length = encode_varint(len(before_key) + len(key) + len(before_value) + len(value) + len(after_value))
    rest = [memoryview(record_length + bytes(before_key)), key, memoryview(before_value), value, after_value]
    head = bytearray(
        v2.HEADER.pack(
            conversion.offset,
            v2.HEADER_SIZE - v2.LEADER_EPOCH_AT + sum(map(len, rest)),
            v2.NO_LEADER_EPOCH,
            v2.MAGIC,
            0,
            v2.LOG_APPEND_TIME_FLAG if conversion.is_log_append_time else 0,
            0,
            conversion.timestamp,
            conversion.timestamp,
            v2.NO_PRODUCER_ID,
            v2.NO_PRODUCER_EPOCH,
            v2.NO_SEQUENCE,
            1,
        )
    )
    crc = crc_cy.crc32c(head[v2.ATTRIBUTES_AT :])
    for part in rest:
        crc = crc_cy.crc32c(part, crc)
    v2.UINT32.pack_into(head, v2.CRC_AT, crc)
    yield memoryview(head)
    yield from rest


def _message_of_record(conversion: kernel_cy.DownConversion, stored: memoryview) -> Iterator[memoryview]:
    conversion.read_record(stored)
    key_length, value_length = max(conversion.key_length, -1), max(conversion.value_length, -1)
    key = stored[conversion.key_at : conversion.key_at + max(key_length, 0)]
    value = stored[conversion.value_at : conversion.value_at + max(value_length, 0)]
    offset = conversion.offset - conversion.inner_base_offset
    if conversion.to_magic == v0.MAGIC:
        head = bytearray(
            v0.HEADER.pack(offset, 0, 0, v0.MAGIC, conversion.attributes, key_length),
        )
    else:
        head = bytearray(
            v1.HEADER.pack(offset, 0, 0, v1.MAGIC, conversion.attributes, conversion.timestamp, key_length)
        )
    yield from _sealed(head, key, memoryview(v0.INT32.pack(value_length)), value)


def _v0_message_of_v1(message: memoryview, offset: int) -> Iterator[memoryview]:
    head = bytearray(v0.HEADER.pack(offset, 0, 0, v0.MAGIC, 0, 0)[: v0.KEY_LENGTH_AT])
    yield from _sealed(head, message[v1.KEY_LENGTH_AT :])


def _sealed(head: bytearray, *rest: memoryview) -> Iterator[memoryview]:
    """Set size and CRC in the message that begins with `head`, and return the message in pieces."""
    v0.INT32.pack_into(head, v0.SIZE_AT, len(head) - v0.LOG_OVERHEAD + sum(map(len, rest)))
    crc = crc32(head[v0.MAGIC_AT :])
    for part in rest:
        crc = crc32(part, crc)
    v0.UINT32.pack_into(head, v0.CRC_AT, crc)
    yield memoryview(head)
    yield from rest
