"""The first offset of each leader epoch: Kafka's `leader-epoch-checkpoint`, which detects lost tails (KIP-101).

A new epoch is forced to the disk with the first records that have this epoch, not before: otherwise the first append to
each of a thousand partitions would wait for the disk.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable

from ..disk.checkpoints import MalformedCheckpointError, format_lines, parse_epoch, parse_lines
from ..disk.deferred_sync import DeferredSync
from ..disk.files import Files

UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1


class LeaderEpochs:
    """The leader epochs of one log; each change is written to the file first (Kafka `LeaderEpochFileCache`)."""

    __slots__ = ("_epochs", "_files", "_starts", "_sync", "latest", "path")

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self._epochs: list[int] = []
        self._starts: list[int] = []
        self._sync = DeferredSync(files, path, parents=1)
        self.path = path
        self.latest = UNDEFINED_EPOCH
        """The newest epoch, -1 if none is known."""

    def load(self) -> None:
        """Read the file. Raises MalformedCheckpointError if its content is not valid, OSError."""
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
        """Add `epoch` with its first offset; remove entries that contradict it. Raises OSError.

        The change is on the disk once the function that `hold_for_sync` returns has run.
        """
        if epoch == self.latest or epoch < 0:
            return
        kept = [entry for entry in self.entries() if entry[0] < epoch and entry[1] < start_offset]
        self._store([*kept, (epoch, start_offset)], sync=False)

    def hold_for_sync(self) -> Callable[[], None]:
        """Return a function that forces the file to the disk in any thread; that function raises OSError."""
        return self._sync.hold()

    def end_offset(self, requested_epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Return the largest known epoch up to the requested one, and its end offset; both -1 if unknown.

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
        """Remove epochs that begin at or after `end_offset`. Raises OSError."""
        kept = [entry for entry in self.entries() if entry[1] < end_offset]
        if len(kept) != len(self._epochs):
            self._store(kept)

    def truncate_from_start(self, start_offset: int) -> None:
        """Remove epochs that ended before `start_offset`; the epoch of `start_offset` then begins there.

        Raises OSError.
        """
        index = bisect_right(self._starts, start_offset)
        if index > 1 or (index == 1 and self._starts[0] < start_offset):
            kept = self.entries()[index - 1 :]
            kept[0] = (kept[0][0], start_offset)
            self._store(kept)

    def clear(self) -> None:
        """Remove all epochs. Raises OSError."""
        if self._epochs or self._files.exists(self.path):
            self._store([])

    def _store(self, entries: list[tuple[int, int]], *, sync: bool = True) -> None:
        lines = [f"{epoch} {start}" for epoch, start in entries]
        self._files.replace(self.path, format_lines(lines), sync=sync)
        self._sync.is_synced = sync
        self._epochs, self._starts, self.latest = [], [], UNDEFINED_EPOCH
        for epoch, start in entries:
            self._add(epoch, start)

    def _add(self, epoch: int, start: int) -> None:
        self._epochs.append(epoch)
        self._starts.append(start)
        self.latest = epoch
