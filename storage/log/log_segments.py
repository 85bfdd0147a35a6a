"""The segments of one log, in the order of their offsets; appends go to the last one."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import suppress
from operator import attrgetter

from ..disk.open_files import OpenFiles
from ..index.transaction_index import AbortedTransaction
from .segment import Place, Segment

_base_offset_of = attrgetter("base_offset")


class LogSegments:
    """The list of at least one segment. Readers may keep `all` and `active`: a change replaces the list."""

    __slots__ = ("_directory", "_doomed", "_pool", "active", "all")

    def __init__(self, pool: OpenFiles, directory: str, segments: list[Segment]) -> None:
        self._pool = pool
        self._directory = directory
        self._doomed: list[tuple[int, str]] = []
        self.all = segments
        self.active = segments[-1]

    # --- finding ---

    @property
    def base_offset(self) -> int:
        """Return the first segment's base offset."""
        return self.all[0].base_offset

    @property
    def size_bytes(self) -> int:
        """Return the size of all segments. Raises OSError."""
        files = self._pool.files
        return sum(segment.size_bytes if segment.is_loaded else files.size(segment.path) for segment in self.all)

    def number_at(self, offset: int) -> int:
        """Return the number of the last segment that begins at or before `offset`, else of the first segment."""
        return max(bisect_right(self.all, offset, key=_base_offset_of) - 1, 0)

    def since(self, offset: int) -> Iterator[Segment]:
        """Load and return the segments from the one whose range contains `offset` on. Raises OSError."""
        for segment in self.all[self.number_at(offset) :]:
            segment.load()
            yield segment

    def locate(self, offset: int) -> tuple[Segment, Place | None]:
        """Find the first batch that ends at or after `offset`; for a missing offset, perhaps in a later segment.

        Raises OSError, SegmentDamagedError.
        """
        for segment in self.since(offset):
            place = segment.locate(offset)
            if place is not None:
                return segment, place
        return self.active, None

    def aborted_transactions(self, first_offset: int, last_offset: int) -> list[AbortedTransaction]:
        """Return the aborted transactions with records in the range (Kafka `collectAbortedTransactions`).

        The range is [`first_offset`, `last_offset`). Raises OSError, TransactionIndexDamagedError.
        """
        found: list[AbortedTransaction] = []
        for segment in self.since(first_offset):
            for entry in segment.transactions.entries():
                if entry.last_offset >= first_offset and entry.first_offset < last_offset:
                    found.append(entry)
                if entry.last_stable_offset >= last_offset:
                    return found
        return found

    # --- changing ---

    def add(self, base_offset: int, *, index_interval_bytes: int, now_ms: int) -> Segment:
        """Begin a new active segment and finish the one before. Raises OSError; then nothing has changed."""
        segment = Segment(self._pool, self._directory, base_offset, index_interval_bytes)
        try:
            segment.create(now_ms)
            self.active.finish()
        except OSError:
            # The active segment may still take records behind this offset: a file that stays would hide them.
            with suppress(OSError):
                segment.remove_files()
            raise
        self.all = [*self.all, segment]
        self.active = segment
        return segment

    def restart(self, base_offset: int, *, index_interval_bytes: int, now_ms: int) -> None:
        """Remove all files and begin with one empty segment. Raises OSError."""
        for segment in reversed(self.all):
            segment.remove_files()
        segment = Segment(self._pool, self._directory, base_offset, index_interval_bytes)
        segment.create(now_ms)
        self.all = [segment]
        self.active = segment

    def truncate_to(self, offset: int) -> int:
        """Remove the batch that contains `offset` and all batches after it; return the new end offset.

        `offset` is above the first base offset. Raises OSError, SegmentDamagedError.
        """
        keep = self.number_at(offset) + 1
        for segment in reversed(self.all[keep:]):
            segment.remove_files()
        self.all = self.all[:keep]
        self.active = active = self.all[-1]
        active.load()
        place = active.locate(offset)
        if place is not None:
            active.truncate(place.position)
        active.transactions.truncate_to(offset)
        return active.next_offset

    def may_replace(self, replaced: list[Segment]) -> bool:
        """Return whether these segments are still neighbours in this log, and none is the active segment."""
        number = self.number_at(replaced[0].base_offset)
        return self.all[number : number + len(replaced)] == replaced and self.active is not replaced[-1]

    def replace(self, replaced: list[Segment], swap: Callable[[], None], *, index_interval_bytes: int) -> None:
        """Replace the segments `replaced` by the one segment that `swap` leaves on the disk. Raises OSError."""
        for segment in replaced:
            segment.close()
        swap()
        number = self.number_at(replaced[0].base_offset)
        segment = Segment(self._pool, self._directory, replaced[0].base_offset, index_interval_bytes)
        self.all = [*self.all[:number], segment, *self.all[number + len(replaced) :]]

    def drop_head(self, log_start_offset: int, *, due_ms: int) -> bool:
        """Remove the segments wholly below `log_start_offset` except the active one; return whether there were any.

        Their files are deleted at `due_ms`. Raises OSError.
        """
        keep = self.number_at(log_start_offset)
        dropped, self.all = self.all[:keep], self.all[keep:]
        for segment in dropped:
            self._doomed.extend((due_ms, path) for path in segment.set_aside())
        return keep > 0

    def due_removals(self, now_ms: int) -> Callable[[], None] | None:
        """Return a function for a worker thread that deletes files whose delay has passed, or None.

        It raises OSError.
        """
        due = [path for due_ms, path in self._doomed if due_ms <= now_ms]
        if not due:
            return None
        self._doomed = [(due_ms, path) for due_ms, path in self._doomed if due_ms > now_ms]

        def remove() -> None:
            for path in due:
                self._pool.files.remove(path)

        return remove

    def sync_names(self) -> None:
        """Flush the names of the segments to the disk, in any thread. Raises OSError."""
        self._pool.files.sync_directory(self._directory)

    def close(self) -> None:
        """Close all files."""
        for segment in self.all:
            segment.close()
