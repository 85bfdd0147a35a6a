"""What an append is told, and what it answers."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple


class AppendOrigin(IntEnum):
    """Who appends (Kafka `AppendOrigin`): only a client's sequence numbers are checked."""

    REPLICATION = 0
    COORDINATOR = 1
    CLIENT = 2


class AppendResult(NamedTuple):
    """What an append did: offsets inclusive, -1 if there was nothing to append.

    `log_append_time_ms` is -1 on a create-time topic, but for a duplicate (which was not appended again) the largest
    timestamp of the batch that it repeats, as Kafka answers.
    """

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    duplicate: bool
