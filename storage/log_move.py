"""The move of a log to another log directory while the log is in use (KIP-113).

A copy follows the log like another broker's replica, in a directory `*-future` of the new log directory. A crash ends
the move: the next start removes such directories, and the log stays in its old directory. State that is not in the
batches or their index is not copied: compaction of the copy begins at the log's start.
"""

from __future__ import annotations

from collections.abc import Callable

from ..protocol.errors import BrokerError, ErrorCode
from ..protocol.records.batches import iter_batches
from .disk import paths
from .disk.files import Files
from .disk.log_directory import LogDirectory
from .index.copied_tags import tag_runs_of
from .log.partition_log import PartitionLog

STEP_BYTES = 256 * 1024
"""The bytes copied in one step (or one batch, if that is larger), so that other tasks wait for about a millisecond."""


class LogMove:
    """A move of one log: call `step` until it returns False, then `LogManager.finish_move`."""

    def __init__(
        self, source: PartitionLog, copy: PartitionLog, target: LogDirectory, folder: str, files: Files
    ) -> None:
        """Create a move; ``folder`` is the `*-future` directory that contains `copy`."""
        self._files = files
        self.source = source
        self.copy = copy
        self.target = target
        self._folder = folder
        self.is_over = False
        """Whether the move was finished or cancelled."""

    @property
    def lag(self) -> int:
        """Return the number of offsets that the copy is behind."""
        return max(0, self.source.log_end_offset - self.copy.log_end_offset)

    def step(self) -> bool:
        """Copy the next batches; return whether there are more.

        Raises BrokerError KAFKA_STORAGE_ERROR, CORRUPT_MESSAGE for a damaged log, and the errors of
        `PartitionLog.append_as_follower`.
        """
        source, copy = self.source, self.copy
        if copy.log_end_offset < source.log_start_offset:
            copy.truncate_fully(self._first_batch_offset())
        if copy.log_end_offset == source.log_end_offset:
            return False
        offset = copy.log_end_offset
        with source.read(max(offset, source.log_start_offset), STEP_BYTES) as stretch:
            data, tags = stretch.read(), tag_runs_of(stretch)
        copy.append_as_follower(data, tags=tags)
        if copy.log_end_offset == offset:
            raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, f"{source.directory} has no record at offset {offset}")
        return copy.log_end_offset != source.log_end_offset

    def _first_batch_offset(self) -> int:
        """Return the base offset of the batch that holds the log's first record; the copy begins there."""
        source = self.source
        if source.log_start_offset == source.log_end_offset:
            return source.log_end_offset
        with source.read(source.log_start_offset, 1) as stretch:
            return next((batch.base_offset for batch in iter_batches(stretch.read())), source.log_start_offset)

    def settle(self) -> None:
        """Copy producer state and leader epochs, flush the copy and close its files. Raises BrokerError, OSError."""
        while self.step():
            pass
        self.copy.advance_log_start(self.source.log_start_offset)
        # Producers whose records are deleted are still known.
        self.copy.producers = self.source.producers
        self.copy.close()
        # Batches do not contain all epochs: old formats have none.
        name = f"/{paths.LEADER_EPOCH_CHECKPOINT}"
        if self._files.exists(self.source.directory + name):
            self._files.replace(self.copy.directory + name, self._files.read(self.source.directory + name))

    def due_flush(self, now_ms: int) -> Callable[[], None] | None:
        """Return a function for a worker thread that flushes the copy if `flush.ms` requires it; both raise OSError."""
        return self.copy.due_flush(now_ms)

    def discard(self) -> None:
        """Remove the copy's directory. Raises OSError."""
        self.is_over = True
        if not self.copy.is_closed:
            self.copy.abandon()
        self._files.remove_tree(self._folder)
