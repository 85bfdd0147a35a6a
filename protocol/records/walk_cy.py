"""One pass over the records of a v2 batch that checks all lengths without decoding records, in pieces of any size.

`RecordWalk` is a state machine that can stop and continue at any byte, so that a batch is checked while it is
decompressed; its state is a few numbers, however large a record claims to be. This file is plain Python; `walk_cy.pxd`
has the C types of its variables for the compiler (see `setup.py`).
"""

from __future__ import annotations

try:
    import cython
except ImportError:
    from . import cython_stand_in as cython

from .record import Buffer

if not cython.compiled:
    from .varint import varint_at

MAX_NOTED = 1000
"""The number of invalid records of a batch that are listed; a batch may have millions."""

# The next field of a record.
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

# These are named so that the .pxd can declare their types.
_INT64_MAX = 0x7FFFFFFFFFFFFFFF
_INCOMPLETE = -2


class RecordWalk:
    """The results of the pass so far over a batch's `count` records.

    `max_timestamp` is -1 while no record has a timestamp; `index_of_max` is the first record with the largest one.
    `null_keys` counts records without a key; `is_sequential`: the offset deltas are 0, 1, 2 ... `bad_timestamps` has
    (index, timestamp) of records before `earliest` or after `latest`, `bad_keys` the indices of records without a key
    if `keys_required`; each has at most MAX_NOTED entries.
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
        """Return whether all records were read to their last byte."""
        return self.field == _DONE and self.to_skip == 0

    def feed(self, data: Buffer) -> int:
        """Continue with `data`; return the number of consumed bytes.

        The rest, at most nine bytes of an incomplete integer or bytes after the last record, must precede the next
        piece. Raises ValueError for records that break the format.
        """
        position = 0
        end = len(data)
        if end == 0:
            return 0
        numbers = cython.address(data[0]) if cython.compiled else data
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

            value, cursor = varint_at(numbers, position, end, 63 if self.field == _TIMESTAMP else 28)
            if cursor == _INCOMPLETE:
                return position
            if cursor < 0:
                raise ValueError("a variable-length integer is too long")
            self._accept(value, cursor - position)
            position = cursor

    def _accept(self, value: int, size: int) -> None:
        """Process the integer of the current field, `size` bytes on the wire, and set the next field."""
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
            # A header has at least two bytes.
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
        # A sum beyond int64, which Java would wrap, is refused, since no clock gives it.
        if self.base_timestamp >= 0:
            if delta > _INT64_MAX - self.base_timestamp:
                raise ValueError("a record's timestamp is out of range")
        elif delta < -_INT64_MAX - self.base_timestamp:
            raise ValueError("a record's timestamp is out of range")
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
