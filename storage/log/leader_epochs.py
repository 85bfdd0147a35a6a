"""Which leader epoch began at which offset: Kafka's `leader-epoch-checkpoint`, for detecting lost tails (KIP-101).

A new epoch is forced to the disk with the records that have it, not before: else the first append to each of a
thousand partitions would wait for the disk.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable

from ..disk.checkpoints import MalformedCheckpointError, format_lines, parse_epoch, parse_lines
from ..disk.files import Files

UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1


class LeaderEpochs:
    """The epochs of one log; every change is in the file before it is seen (Kafka `LeaderEpochFileCache`)."""

    __slots__ = ("_epochs", "_files", "_is_synced", "_starts", "latest", "path")

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self._epochs: list[int] = []
        self._starts: list[int] = []
        self._is_synced = True
        self.path = path
        self.latest = UNDEFINED_EPOCH
        """The newest epoch, -1 if none is known."""

    def load(self) -> None:
        """Read the file. Raises MalformedCheckpointError if it cannot be believed, OSError."""
        try:
            data = self._files.read(self.path)
        except FileNotFoundError:
            return
        for line in parse_lines(data):
            epoch, start = parse_epoch(line)
            if epoch <= self.latest or (self._starts and start < self._starts[-1]):
                raise MalformedCheckpointError(f"epoch {epoch} at offset {start} out of order")
            self._add(epoch, start)

    def entries(self) -> list[tuple[int, int]]:
        """Return pairs of an epoch and the epoch's first offset, ascending."""
        return list(zip(self._epochs, self._starts, strict=True))

    def assign(self, epoch: int, start_offset: int) -> None:
        """Note that `epoch` begins at `start_offset`; older notes that this contradicts go. Raises OSError.

        It is on the disk after `hold_for_sync`.
        """
        if epoch == self.latest or epoch < 0:
            return
        kept = [entry for entry in self.entries() if entry[0] < epoch and entry[1] < start_offset]
        self._store([*kept, (epoch, start_offset)], sync=False)

    def hold_for_sync(self) -> Callable[[], None]:
        """Return a function that forces the file to the disk in any thread; that function raises OSError."""
        was_synced, self._is_synced = self._is_synced, True

        def sync() -> None:
            if was_synced:
                return
            try:
                file = self._files.open(self.path)
                try:
                    file.sync()
                finally:
                    file.close()
                self._files.sync_directory(os.path.dirname(self.path))
            except OSError:
                self._is_synced = False
                raise

        return sync

    def end_offset(self, requested_epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Return the largest known epoch that is not above the requested one, and its end offset; -1s if unknown.

        Source: Kafka `LeaderEpochFileCache.endOffsetFor`, KIP-279.
        """
        if requested_epoch == UNDEFINED_EPOCH:
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        if requested_epoch == self.latest:
            return requested_epoch, log_end_offset
        higher = bisect_right(self._epochs, requested_epoch)
        if higher == len(self._epochs):
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        epoch = self._epochs[higher - 1] if higher else requested_epoch
        return epoch, self._starts[higher]

    def epoch_for_offset(self, offset: int) -> int:
        """Return the epoch of the record at `offset`, -1 if unknown."""
        index = bisect_right(self._starts, offset)
        return self._epochs[index - 1] if index else UNDEFINED_EPOCH

    def truncate_from_end(self, end_offset: int) -> None:
        """Forget epochs that begin at or after `end_offset`. Raises OSError."""
        kept = [entry for entry in self.entries() if entry[1] < end_offset]
        if len(kept) != len(self._epochs):
            self._store(kept)

    def truncate_from_start(self, start_offset: int) -> None:
        """Forget epochs that ended before `start_offset`; the one that holds it begins there now. Raises OSError."""
        index = bisect_right(self._starts, start_offset)
        if index > 1 or (index == 1 and self._starts[0] < start_offset):
            kept = self.entries()[index - 1 :]
            kept[0] = (kept[0][0], start_offset)
            self._store(kept)

    def clear(self) -> None:
        """Forget all. Raises OSError."""
        if self._epochs or self._files.exists(self.path):
            self._store([])

    def _store(self, entries: list[tuple[int, int]], *, sync: bool = True) -> None:
        lines = [f"{epoch} {start}" for epoch, start in entries]
        self._files.replace(self.path, format_lines(lines), sync=sync)
        self._is_synced = sync
        self._epochs, self._starts, self.latest = [], [], UNDEFINED_EPOCH
        for epoch, start in entries:
            self._add(epoch, start)

    def _add(self, epoch: int, start: int) -> None:
        self._epochs.append(epoch)
        self._starts.append(start)
        self.latest = epoch
