"""Opening of the segments of one partition's directory, in any state that a crash or an operator has left.

1. Temporary files are removed: `.deleted`, `.cleaned`, `.tmp`, indexes without a log, Kafka's own indexes.
2. After a clean stop a segment is not read if the summary in its index matches the file. The same holds after a crash
   for a log to which nothing was written since the last clean stop.
3. After a crash all segments beyond the recovery point are read. The log ends at the first bad batch; everything after
   it is removed.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import NamedTuple

from ..compaction.segment_swap import finish_swaps_of_before
from ..disk import paths
from ..disk.open_files import OpenFiles
from ..index.index_format import may_have_gaps
from ..index.transaction_index import TransactionIndexDamagedError
from ..log.head_space import finish_reclaiming
from ..log.leader_epochs import LeaderEpochs
from ..log.log_config import LogConfig
from ..log.segment import Segment
from .recovery import ScanRules

logger = logging.getLogger(__name__)

_LEFT_OVER_STATES = (paths.DELETED, paths.CLEANED)
_SIDE_FILES = (paths.INDEX, paths.TRANSACTION_INDEX)


class OpenedSegments(NamedTuple):
    """The segments in the order of their offsets, at least one.

    Those from `recovered_from` on were read and checked.
    """

    segments: list[Segment]
    recovered_from: int | None


class SegmentOpener:
    """A reader that opens the segments of one directory."""

    def __init__(self, pool: OpenFiles, directory: str, config: LogConfig, now_ms: int, epochs: LeaderEpochs) -> None:
        self._epochs = epochs
        self._pool = pool
        self._files = pool.files
        self._directory = directory
        self._config = config
        self._now_ms = now_ms
        self._made: list[Segment] = []

    def open(self, *, is_clean: bool, recovery_point: int, first_offset: int) -> OpenedSegments:
        """Open the segments; an empty directory gets one that begins at `first_offset`.

        Raises OSError; then no file is open.
        """
        try:
            return self._open(is_clean=is_clean, recovery_point=recovery_point, first_offset=first_offset)
        except OSError:
            for segment in self._made:
                segment.close()
            raise

    def _open(self, *, is_clean: bool, recovery_point: int, first_offset: int) -> OpenedSegments:
        names = self._files.list(self._directory)
        if any(name.endswith((paths.SWAP, paths.RECLAIM)) for name in names):
            finish_swaps_of_before(self._files, self._directory)
            finish_reclaiming(self._files, self._directory)
            names = self._files.list(self._directory)
        bases = self._tidy(names)
        segments = [self._segment(base) for base in bases]
        if not segments:
            segment = self._segment(first_offset)
            segment.create(self._now_ms)
            return OpenedSegments([segment], recovered_from=None)
        for segment in segments:
            segment.created_ms = self._now_ms
        if is_clean or self._is_flushed(segments[-1], recovery_point):
            return self._open_clean(segments)
        unflushed = sum(1 for segment in segments[1:] if segment.base_offset <= recovery_point)
        return self._recover(segments, unflushed)

    def _is_flushed(self, active: Segment, recovery_point: int) -> bool:
        """Return whether nothing was written since the log's last close, which flushed all of the log."""
        summary = active.index.read_summary()
        return (
            summary is not None
            and 0 <= summary.next_offset <= recovery_point
            and summary.log_size_bytes == self._files.size(active.path)
        )

    def _open_clean(self, segments: list[Segment]) -> OpenedSegments:
        active = segments[-1]
        summary = active.index.read_summary()
        if summary is not None and summary.log_size_bytes == self._files.size(active.path):
            active.apply_summary(summary)
            with suppress(TransactionIndexDamagedError):
                active.transactions.entries()
                return OpenedSegments(segments, recovered_from=None)
        return self._recover(segments, len(segments) - 1)

    def _recover(self, segments: list[Segment], first: int) -> OpenedSegments:
        """Read the segments from number `first` on; the log ends at the first bad batch."""
        next_offset = start_offset = segments[first].base_offset
        has_gaps = True
        for number in range(first, len(segments)):
            segment = segments[number]
            if segment.base_offset < next_offset or (segment.base_offset > next_offset and not has_gaps):
                reason = f"it begins at offset {segment.base_offset} where {next_offset} must follow"
                return OpenedSegments(self._drop(segments, number, reason), recovered_from=start_offset)
            if segment.base_offset > next_offset:
                segments[number - 1].note_gaps()
            has_gaps = may_have_gaps(segment.index.read_summary())
            before_bytes = self._files.size(segment.path)
            rules = ScanRules(segment.base_offset, segment.base_offset, has_gaps, self._epochs)
            result = segment.rebuild(rules)
            # The replay of producer state writes the transaction index again.
            segment.transactions.rewrite([])
            next_offset = segment.next_offset
            if result.reason is not None:
                logger.warning(
                    "%s: truncated from %d to %d bytes, at offset %d: %s",
                    segment.path,
                    before_bytes,
                    result.valid_bytes,
                    result.next_offset,
                    result.reason,
                )
                segment.cut_file(result.valid_bytes)
                return OpenedSegments(
                    self._drop(segments, number + 1, "a segment before it has a damaged batch"),
                    recovered_from=start_offset,
                )
        return OpenedSegments(segments, recovered_from=start_offset)

    def _drop(self, segments: list[Segment], number: int, reason: str) -> list[Segment]:
        for segment in segments[number:]:
            logger.warning("%s: removed, because %s", segment.path, reason)
            segment.remove_files()
        return segments[:number]

    def _tidy(self, names: list[str]) -> list[int]:
        """Remove temporary files; return the base offsets of the segments, ascending."""
        bases: list[int] = []
        side_files: list[tuple[int, str]] = []
        for name in names:
            parsed = paths.parse_offset_file(name)
            if name.endswith(paths.TEMPORARY):
                self._remove(name)
            elif parsed is None:
                continue
            elif (
                parsed.state.endswith(_LEFT_OVER_STATES)
                or parsed.state == paths.SWAP
                or (not parsed.state and parsed.kind in paths.KAFKA_INDEXES)
            ):
                self._remove(name)
            elif not parsed.state and parsed.kind == paths.LOG:
                bases.append(parsed.offset)
            elif not parsed.state and parsed.kind in _SIDE_FILES:
                side_files.append((parsed.offset, name))
        for offset, name in side_files:
            if offset not in bases:
                self._remove(name)
        return sorted(bases)

    def _remove(self, name: str) -> None:
        self._files.remove(f"{self._directory}/{name}")

    def _segment(self, base_offset: int) -> Segment:
        segment = Segment(self._pool, self._directory, base_offset, self._config.index_interval_bytes)
        segment.epochs = self._epochs
        self._made.append(segment)
        return segment
