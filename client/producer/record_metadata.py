"""The place of a delivered record: topic, partition and offset."""

from typing import NamedTuple


class RecordMetadata(NamedTuple):
    """The place of a record: `offset` is -1 with acks=0 and for duplicates whose offset the broker no longer has."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    """Milliseconds since the epoch: the record's own, or the broker's for topics with LogAppendTime."""
