"""Where a record that was sent has come to."""

from typing import NamedTuple


class RecordMetadata(NamedTuple):
    """Where a record is: `offset` is -1 with acks=0 and for duplicates whose offset the broker no longer knows."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    """Milliseconds since the epoch: the record's own, or the broker's for topics with LogAppendTime."""
