"""The origin and the result of an append."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple


class AppendOrigin(IntEnum):
    """The origin of appended batches (Kafka `AppendOrigin`): sequence numbers are checked only for a client's."""

    REPLICATION = 0
    COORDINATOR = 1
    CLIENT = 2


class AppendResult(NamedTuple):
    """The result of an append: first and last offset, both inclusive; -1 if there was nothing to append.

    `log_append_time_ms` is -1 for a topic with CreateTime. For a duplicate (which was not appended again) it is the
    largest timestamp of the batch that the duplicate repeats, as in Kafka.
    """

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    duplicate: bool
