"""One pass over a v0 or v1 message set during its decompression that checks sizes, lengths and CRCs."""

from __future__ import annotations

from isal import isal_zlib

from ..errors import BrokerError, ErrorCode
from . import v0, v1
from .record import NO_TIMESTAMP
from .walk_cy import MAX_NOTED

_NEED_HEADER, _NEED_VALUE_LENGTH, _NEED_END = range(3)


class MessageWalk:
    """The results of the pass so far over the set inside a wrapper of format `magic`.

    `count` messages; the `last_offset` of them; `max_timestamp` and the index of the first message that has it;
    `null_keys`; `is_sequential`: the offsets are 0, 1, 2 ...; `other_magic`: the indices of messages of another format;
    `bad_timestamps` and `bad_keys` as in `RecordWalk`. Each list has at most MAX_NOTED entries.
    """

    __slots__ = (
        "_crc",
        "_fields_fit",
        "_header",
        "_left",
        "_need",
        "_to_skip",
        "bad_keys",
        "bad_timestamps",
        "count",
        "earliest",
        "index_of_max",
        "is_sequential",
        "keys_required",
        "last_offset",
        "latest",
        "magic",
        "max_timestamp",
        "null_keys",
        "other_magic",
    )

    def __init__(self, magic: int, earliest: int, latest: int, *, keys_required: bool = False) -> None:
        self.magic = magic
        self.earliest = earliest
        self.latest = latest
        self.keys_required = keys_required
        self.count = 0
        self.max_timestamp = NO_TIMESTAMP
        self.last_offset = -1
        self.index_of_max = 0
        self.null_keys = 0
        self.is_sequential = True
        self.other_magic: list[int] = []
        self.bad_timestamps: list[tuple[int, int]] = []
        self.bad_keys: list[int] = []
        self._need = _NEED_HEADER
        self._to_skip = 0
        self._left = 0
        self._fields_fit = True
        self._crc = 0
        self._header = (magic, 0, 0, NO_TIMESTAMP, 0)

    def feed(self, data: memoryview) -> int:
        """Continue with `data`; return the number of consumed bytes; the rest must precede the next data.

        Raises BrokerError: INVALID_RECORD or CORRUPT_MESSAGE, as Kafka's validator for the same fault.
        """
        position = 0
        unsummed_from = 0
        while True:
            step = min(self._to_skip, len(data) - position)
            position += step
            self._to_skip -= step
            if self._to_skip:
                break
            if self._need == _NEED_END:
                self._check_end(data[unsummed_from:position])
                unsummed_from = position
            if self._need == _NEED_HEADER:
                size = self._read_header(data, position)
                if size == 0:
                    return position
                unsummed_from = position + v0.MAGIC_AT
            else:
                size = self._read_value_length(data, position)
                if size == 0:
                    break
            position += size
        self._crc = isal_zlib.crc32(data[unsummed_from:position], self._crc)
        return position

    def _read_header(self, data: memoryview, position: int) -> int:
        """Read the fields from offset to key length; return their size, 0 if they are incomplete."""
        available = len(data) - position
        if available <= v0.MAGIC_AT:
            return 0
        magic = data[position + v0.MAGIC_AT]
        header_size = v0.HEADER_SIZE if magic == v0.MAGIC else v1.HEADER_SIZE
        _, size = v0.OFFSET_AND_SIZE.unpack_from(data, position)
        if size < v0.MIN_MESSAGE_SIZE:
            raise BrokerError(
                ErrorCode.CORRUPT_MESSAGE,
                f"Record size is less than the minimum record overhead ({v0.MIN_MESSAGE_SIZE})",
            )
        if available < header_size:
            return 0
        timestamp = NO_TIMESTAMP
        if magic == v0.MAGIC:
            offset, _, crc, _, attributes, key_length = v0.HEADER.unpack_from(data, position)
        elif magic == v1.MAGIC:
            offset, _, crc, _, attributes, timestamp, key_length = v1.HEADER.unpack_from(data, position)
        else:
            raise BrokerError(ErrorCode.CORRUPT_MESSAGE, f"Invalid magic found in record: {magic}")
        if attributes & v0.CODEC_MASK:
            raise BrokerError(ErrorCode.INVALID_RECORD, "Inner messages must not be compressed")
        self._left = v0.LOG_OVERHEAD + size - header_size
        self._crc = 0
        self._header = (magic, crc, offset, timestamp, key_length)
        self._fields_fit = True
        self._need = _NEED_VALUE_LENGTH
        self._skip_field(key_length, v0.INT32.size)
        return header_size

    def _note(self, magic: int, offset: int, timestamp: int, key_length: int) -> None:
        index = self.count
        self.count += 1
        self.last_offset = offset
        if magic != self.magic and len(self.other_magic) < MAX_NOTED:
            self.other_magic.append(index)
        if offset != index:
            self.is_sequential = False
        if key_length < 0:
            self.null_keys += 1
            if self.keys_required and len(self.bad_keys) < MAX_NOTED:
                self.bad_keys.append(index)
        if timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
            self.index_of_max = index
        is_in_range = self.earliest <= timestamp <= self.latest or timestamp == NO_TIMESTAMP
        if not is_in_range and len(self.bad_timestamps) < MAX_NOTED:
            self.bad_timestamps.append((index, timestamp))

    def _read_value_length(self, data: memoryview, position: int) -> int:
        if len(data) - position < v0.INT32.size:
            return 0
        self._left -= v0.INT32.size
        (value_length,) = v0.INT32.unpack_from(data, position)
        self._need = _NEED_END
        self._skip_field(value_length, 0)
        # Bytes after the value belong to no field, but are covered by the CRC.
        self._to_skip += self._left
        self._left = 0
        return v0.INT32.size

    def _skip_field(self, size: int, size_of_rest: int) -> None:
        """Skip a field of `size` bytes (a null if negative) after which `size_of_rest` must still fit."""
        size = max(size, 0)
        if size + size_of_rest > self._left:
            # A wrong CRC is the better explanation, so the CRC is checked first.
            self._fields_fit = False
            self._need = _NEED_END
            size = max(self._left, 0)
        self._to_skip = size
        self._left -= size

    def _check_end(self, unsummed: memoryview) -> None:
        magic, crc, offset, timestamp, key_length = self._header
        computed = isal_zlib.crc32(unsummed, self._crc)
        if computed != crc:
            raise BrokerError(
                ErrorCode.CORRUPT_MESSAGE, f"Record is corrupt (stored crc = {crc}, computed crc = {computed})"
            )
        if not self._fields_fit:
            raise BrokerError(ErrorCode.INVALID_RECORD, "Found invalid message structure inside a compressed set")
        # Checked last: the set may end with an incomplete message, which is ignored.
        self._note(magic, offset, timestamp, key_length)
        self._need = _NEED_HEADER
