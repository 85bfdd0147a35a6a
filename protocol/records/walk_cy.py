"""One pass over the records of a v2 batch: every length checked, no record decoded, in pieces of any size.

`RecordWalk` is a state machine that can stop and go on at any byte, so that a batch is checked while it inflates: what
it holds is a few numbers, however large a record claims to be. This file is plain Python; `walk_cy.pxd` beside it gives
its variables C types for whoever compiles it (see `setup.py`), and nothing else differs.
"""

from __future__ import annotations

from .record import Buffer

MAX_NOTED = 1000
"""How many offending records of a batch are listed; it may have millions."""

# Which field of a record comes next.
_LENGTH = 0
_ATTRIBUTES = 1
_TIMESTAMP = 2
_OFFSET = 3
_KEY = 4
_VALUE = 5
_HEADER_COUNT = 6
_HEADER_KEY = 7
_HEADER_VALUE = 8
_DONE = 9

# Named so that the .pxd can give them a type.
_INT64_MAX = 0x7FFFFFFFFFFFFFFF
_UINT64_MAX = 0xFFFFFFFFFFFFFFFF
_UINT32_MAX = 0xFFFFFFFF


class RecordWalk:
    """What has been seen of a batch's `count` records so far.

    `max_timestamp` is -1 while no record had a time stamp; `index_of_max` is the first record with the largest.
    `null_keys` counts records without key; `is_sequential` says that the offset deltas are 0, 1, 2 ...
    `bad_timestamps` notes (index, time stamp) of records with one before `earliest` or after `latest`, `bad_keys` the
    indices of those without key where `keys_required`: the first MAX_NOTED of each.
    """

    def __init__(
        self, count: int, base_timestamp: int, earliest: int, latest: int, keys_required: bool = False
    ) -> None:
        self.records_left = count
        self.base_timestamp = base_timestamp
        self.earliest = earliest
        self.latest = latest
        self.keys_required = keys_required
        self.index = 0
        self.max_timestamp = -1
        self.index_of_max = 0
        self.null_keys = 0
        self.is_sequential = True
        self.bad_timestamps: list[tuple[int, int]] = []
        self.bad_keys: list[int] = []
        self.field = _LENGTH if count > 0 else _DONE
        self.to_skip = 0
        self.left_in_record = 0
        self.headers_left = 0

    def is_finished(self) -> bool:
        """Whether all records have been seen to their last byte."""
        return self.field == _DONE and self.to_skip == 0

    def feed(self, data: Buffer) -> int:
        """Go on with `data`; returns how many of its bytes are done with.

        The rest, at most nine bytes of an unfinished integer or what follows the last record, must come again in
        front of the next piece. Raises ValueError for records that break the format.
        """
        position = 0
        end = len(data)
        while True:
            if self.to_skip > 0:
                step = min(self.to_skip, end - position)
                position += step
                self.to_skip -= step
            if position == end or self.field == _DONE:
                return position

            if self.field == _ATTRIBUTES:
                position += 1
                self._take(1)
                self.field = _TIMESTAMP
                continue

            cursor = position + 1
            byte = data[position]
            unsigned = byte & 0x7F
            shift = 7
            while byte >= 0x80:
                if shift >= (70 if self.field == _TIMESTAMP else 35):
                    raise ValueError("a variable-length integer is too long")
                if cursor == end:
                    return position
                byte = data[cursor]
                cursor += 1
                unsigned |= (byte & 0x7F) << shift
                shift += 7
            if self.field == _TIMESTAMP:
                unsigned &= _UINT64_MAX
            else:
                unsigned &= _UINT32_MAX
            value = unsigned >> 1
            if unsigned & 1:
                value = -value - 1
            self._accept(value, cursor - position)
            position = cursor

    def _accept(self, value: int, size: int) -> None:
        """Take the integer that the current field is, `size` bytes on the wire, and say which one comes next."""
        if self.field == _LENGTH:
            if value < 0:
                raise ValueError("a record's length is negative")
            self.left_in_record = value
            self.field = _ATTRIBUTES
        else:
            self._take(size)
            self._accept_inside(value)

    def _accept_inside(self, value: int) -> None:
        if self.field == _TIMESTAMP:
            self._note_timestamp(value)
            self.field = _OFFSET
        elif self.field == _OFFSET:
            if value != self.index:
                self.is_sequential = False
            self.field = _KEY
        elif self.field == _KEY:
            if value < 0:
                self.null_keys += 1
                if self.keys_required and len(self.bad_keys) < MAX_NOTED:
                    self.bad_keys.append(self.index)
            self._skip(value)
            self.field = _VALUE
        elif self.field == _VALUE:
            self._skip(value)
            self.field = _HEADER_COUNT
        elif self.field == _HEADER_COUNT:
            # A header takes two bytes at least.
            if value < 0 or value * 2 > self.left_in_record:
                raise ValueError("a record's number of headers is impossible")
            self.headers_left = value
            self._next_header()
        elif self.field == _HEADER_KEY:
            if value < 0:
                raise ValueError("a header has no key")
            self._skip(value)
            self.field = _HEADER_VALUE
        else:
            self._skip(value)
            self.headers_left -= 1
            self._next_header()

    def _note_timestamp(self, delta: int) -> None:
        # A sum beyond int64, which Java would wrap, is refused: no clock says that.
        if self.base_timestamp >= 0:
            if delta > _INT64_MAX - self.base_timestamp:
                raise ValueError("a record's time stamp is out of range")
        elif delta < -_INT64_MAX - self.base_timestamp:
            raise ValueError("a record's time stamp is out of range")
        timestamp = self.base_timestamp + delta
        if timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
            self.index_of_max = self.index
        if (timestamp < self.earliest or timestamp > self.latest) and timestamp != -1:
            self._note_bad_timestamp(timestamp)

    def _note_bad_timestamp(self, timestamp: int) -> None:
        if len(self.bad_timestamps) < MAX_NOTED:
            self.bad_timestamps.append((self.index, timestamp))

    def _take(self, size: int) -> None:
        self.left_in_record -= size
        if self.left_in_record < 0:
            raise ValueError("a record's fields are longer than the record")

    def _skip(self, size: int) -> None:
        if size > 0:
            self._take(size)
            self.to_skip = size

    def _next_header(self) -> None:
        if self.headers_left > 0:
            self.field = _HEADER_KEY
        elif self.left_in_record != 0:
            raise ValueError("a record is longer than its fields")
        else:
            self.index += 1
            self.records_left -= 1
            self.field = _LENGTH if self.records_left > 0 else _DONE
