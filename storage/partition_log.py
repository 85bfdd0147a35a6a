"""One partition's log: an append-only sequence of segments with offsets that never change."""

from __future__ import annotations

import uuid
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from .clock import Clock
from .log_config import LogConfig
from .log_slice import AbortedTransaction, LogSlice

if TYPE_CHECKING:
    from ..protocol.records.validation import Produced
    from .producer_state import ProducerStates

__all__ = ["AbortedTransaction", "AppendOrigin", "AppendResult", "LogSlice", "PartitionLog", "TimestampOffset"]


class AppendOrigin(IntEnum):
    """Who appends (Kafka `AppendOrigin`): only a client's sequence numbers and epochs are checked in full."""

    REPLICATION = 0
    COORDINATOR = 1
    CLIENT = 2


class AppendResult(NamedTuple):
    """What an append did: offsets inclusive, `log_append_time_ms` -1 on a create-time topic."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    duplicate: bool


class TimestampOffset(NamedTuple):
    """A record found by its time: milliseconds, its offset, the leader epoch of its batch (-1: none)."""

    timestamp: int
    offset: int
    leader_epoch: int


class PartitionLog:
    """The log of one partition; see `docs/architecture.md` for its files.

    Invariant: log_start_offset <= last_stable_offset <= high_watermark <= log_end_offset.
    """

    topic: str
    partition: int
    directory: str
    topic_id: uuid.UUID | None
    config: LogConfig
    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    leader_epoch: int
    producers: ProducerStates

    @classmethod
    def open(
        cls, directory: str, config: LogConfig, clock: Clock, *, recovery_point: int = 0, clean: bool = False
    ) -> PartitionLog:
        """Open or create the log in `directory` (named `<topic>-<partition>`)."""
        raise NotImplementedError

    @property
    def last_stable_offset(self) -> int:
        """Where `read_committed` readers stop (exclusive): the first open transaction, else the high watermark."""
        raise NotImplementedError

    @property
    def size_bytes(self) -> int:
        """Bytes in all segments."""
        raise NotImplementedError

    def append(
        self, produced: Produced, *, leader_epoch: int, origin: AppendOrigin = AppendOrigin.CLIENT
    ) -> AppendResult:
        """Number the validated batches and write them to the page cache.

        Raises BrokerError for a producer out of sequence or fenced, KAFKA_STORAGE_ERROR if the disk fails.
        """
        raise NotImplementedError

    def read(
        self, offset: int, max_bytes: int, *, upper_bound_offset: int | None = None, at_least_one: bool = True
    ) -> LogSlice:
        """Bytes from the batch that holds `offset` on, none at or beyond `upper_bound_offset` (default: log end).

        Raises BrokerError OFFSET_OUT_OF_RANGE.
        """
        raise NotImplementedError

    def offset_for_timestamp(self, timestamp_ms: int) -> TimestampOffset | None:
        """The first record whose timestamp is `timestamp_ms` or later."""
        raise NotImplementedError

    def max_timestamp_offset(self) -> TimestampOffset | None:
        """The record with the largest timestamp (ListOffsets -3, KIP-734)."""
        raise NotImplementedError

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(largest known epoch <= `epoch`, its end offset exclusive); (-1, -1) if unknown (KIP-101, KIP-279)."""
        raise NotImplementedError

    def epoch_for_offset(self, offset: int) -> int:
        """The leader epoch at `offset`, -1 if unknown."""
        raise NotImplementedError

    def aborted_transactions(self, first_offset: int, last_offset: int) -> list[AbortedTransaction]:
        """Aborted transactions with records between these offsets (inclusive, exclusive)."""
        raise NotImplementedError

    def advance_high_watermark(self, offset: int) -> None:
        """Raise the high watermark (only needed where `sole_replica` is off; appends do it otherwise)."""
        raise NotImplementedError

    def advance_log_start(self, offset: int) -> int:
        """Give up records below `offset` (DeleteRecords; -1: the high watermark); returns the new log start."""
        raise NotImplementedError

    def truncate_to(self, offset: int) -> None:
        """Drop records at and above `offset`."""
        raise NotImplementedError

    def truncate_fully(self, offset: int) -> None:
        """Drop all records; the next one gets `offset`."""
        raise NotImplementedError

    def flush(self) -> None:
        """Force everything to the disk."""
        raise NotImplementedError

    def close(self) -> None:
        """Flush, note a clean end, let go of the files."""
        raise NotImplementedError

    def delete(self) -> None:
        """Remove the log and its directory for good."""
        raise NotImplementedError
