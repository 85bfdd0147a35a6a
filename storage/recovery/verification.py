"""Read-only checks of a partition's directory: CRCs, offsets and indexes, for `gregor log verify`.

A running broker may be writing to the directory. Then an incomplete batch at the end and temporary files (`.deleted`,
`.cleaned`) are no findings, and anything wrong is checked twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from ...protocol.errors import BrokerError
from ...protocol.records import v0, v2
from ...protocol.records.batches import BatchView, read_batch
from ..disk import paths
from ..disk.checkpoints import MalformedCheckpointError, read_topic_id
from ..disk.files import Files
from ..disk.open_files import OpenFiles
from ..index.index_format import IndexDamagedError, IndexEntry, may_have_gaps
from ..index.offset_index import OffsetIndex
from ..index.transaction_index import ENTRY as TRANSACTION_ENTRY
from ..index.transaction_index import TransactionIndex, TransactionIndexDamagedError, parse_entries
from ..log.leader_epochs import LeaderEpochs
from ..producers.producer_snapshot import MalformedSnapshotError, parse_snapshot
from .recovery import ScanResult, ScanRules, scan

FILES_OPEN = 4

UNKNOWN_OFFSET = -1
OPEN = -1
"""The log size in the summary of an active segment."""

Progress = Callable[[int], None]
"""A callback that gets the number of segment bytes checked since its last call."""


class Finding(NamedTuple):
    """A problem in a file: path, position in bytes (None: the whole file), reason, and what a start would do."""

    path: str
    position: int | None
    problem: str
    remedy: str


def segment_bytes(files: Files, directory: str) -> int:
    """Return the number of bytes of segments to check. Raises OSError."""
    total = 0
    for name in files.list(directory):
        parsed = paths.parse_offset_file(name)
        if parsed is not None and parsed.kind == paths.LOG and not parsed.state:
            total += _size_or_zero(files, f"{directory}/{name}")
    return total


def verify_partition(
    files: Files, directory: str, *, log_start_offset: int = 0, is_live: bool = False, progress: Progress | None = None
) -> Iterator[Finding]:
    """Check every file of one partition, segments in the order of their offsets. Raises OSError.

    `log_start_offset` is from the log directory's checkpoint; `is_live`: a broker may be using the files.
    """
    names = sorted(files.list(directory))
    parsed = [name for name in map(paths.parse_offset_file, names) if name is not None and not name.state]
    segments = [name.offset for name in parsed if name.kind == paths.LOG]
    yield from _verify_small_files(files, directory)
    before: _Checked | None = None
    for offset in segments:
        path = _path(directory, offset, paths.LOG)
        if before is not None and before.next_offset != UNKNOWN_OFFSET:
            yield from _verify_seam(path, offset, before)
        is_growing = is_live and offset == segments[-1]
        before = _checked_segment(files, directory, offset, is_live=is_live, is_growing=is_growing, progress=progress)
        yield from before.findings
    if before is not None and UNKNOWN_OFFSET < before.next_offset < log_start_offset:
        problem = (
            f"by its checkpoint the log starts at offset {log_start_offset}, but the log ends at {before.next_offset}"
        )
        yield Finding(directory, None, problem, "all records are removed; the log continues at that offset")
    for name in parsed:
        try:
            yield from _verify_side_file(files, directory, name, has_log=name.offset in segments)
        except FileNotFoundError:
            # A running broker has removed the file since the directory was listed.
            if not is_live:
                raise
    if not is_live:
        yield from _left_overs(directory, names)


def _verify_side_file(files: Files, directory: str, name: paths.OffsetFile, *, has_log: bool) -> Iterator[Finding]:
    path = _path(directory, name.offset, name.kind)
    if name.kind in (paths.INDEX, paths.TRANSACTION_INDEX) and not has_log:
        yield Finding(path, None, "the segment of this file is missing", "removed")
    elif name.kind == paths.SNAPSHOT:
        yield from _verify_snapshot(files, path)
    elif name.kind == paths.TRANSACTION_INDEX:
        yield from _verify_transactions(files, path)


class _Checked(NamedTuple):
    """The result of a segment's check: the offset after its last valid batch, and whether offsets may be missing."""

    next_offset: int
    has_gaps: bool
    findings: list[Finding]


def _checked_segment(
    files: Files, directory: str, base_offset: int, *, is_live: bool, is_growing: bool, progress: Progress | None
) -> _Checked:
    """Check a segment.

    Under a running broker twice if necessary, since the segment may have been replaced meanwhile.
    """
    try:
        checked = _check_segment(files, directory, base_offset, is_growing=is_growing, progress=progress)
        if is_live and checked.findings:
            again = _check_segment(files, directory, base_offset, is_growing=is_growing, progress=None)
            return again._replace(findings=[finding for finding in again.findings if finding in checked.findings])
    except FileNotFoundError:
        if not is_live:
            raise
        # Retention or compaction has removed the segment.
        return _Checked(UNKNOWN_OFFSET, True, [])
    return checked


def _check_segment(
    files: Files, directory: str, base_offset: int, *, is_growing: bool, progress: Progress | None
) -> _Checked:
    path = _path(directory, base_offset, paths.LOG)
    pool = OpenFiles(files, FILES_OPEN)
    index = OffsetIndex(pool, _path(directory, base_offset, paths.INDEX), base_offset, 0)
    # The index is read first: its entries are in the log then.
    summary = index.read_summary()
    agreement = _IndexAgreement(index, progress)
    has_gaps = may_have_gaps(summary)
    file = files.open(path)
    try:
        size_bytes = file.size()
        buffer = file.map(0, size_bytes) if size_bytes else memoryview(b"")
        result = scan(buffer, ScanRules(base_offset, base_offset, has_gaps), agreement.visit)
        findings = _log_findings(path, buffer, result, is_growing=is_growing)
    finally:
        file.close()
        index.release_file()
    if progress is not None:
        progress(size_bytes - result.valid_bytes)
    agreement.finish()
    if agreement.problem is not None:
        findings.append(Finding(index.path, None, agreement.problem, "rebuilt from the log"))
    elif summary is not None and _is_of_another_log(summary.log_size_bytes, size_bytes, is_growing=is_growing):
        problem = f"its summary was written for a log of {summary.log_size_bytes} bytes, and the log has {size_bytes}"
        findings.append(Finding(index.path, None, problem, "rebuilt from the log"))
    elif summary is not None and summary.log_size_bytes == size_bytes:
        transactions = TransactionIndex(files, _path(directory, base_offset, paths.TRANSACTION_INDEX))
        transactions.expected_crc = summary.transactions_crc
        try:
            transactions.entries()
        except TransactionIndexDamagedError:
            findings.append(Finding(transactions.path, None, "damaged", "rebuilt from the log"))
    return _Checked(result.next_offset, has_gaps, findings)


def _log_findings(path: str, buffer: memoryview, result: ScanResult, *, is_growing: bool) -> list[Finding]:
    if result.reason is None or (is_growing and _is_incomplete(buffer, result.valid_bytes)):
        return []
    remedy = f"after a crash the log ends here, at offset {result.next_offset}; else what is bad is not served"
    return [Finding(path, result.valid_bytes, result.reason, remedy)]


def _is_of_another_log(summary_bytes: int, size_bytes: int, *, is_growing: bool) -> bool:
    """Return whether the summary belongs to another segment: its size is none that a broker could have left.

    A reopened segment keeps the summary of the last clean stop until its index gets another entry.
    """
    if summary_bytes == OPEN:
        return False
    return summary_bytes > size_bytes if is_growing else summary_bytes != size_bytes


def _is_incomplete(buffer: memoryview, position: int) -> bool:
    """Return whether the file ends inside a batch that may otherwise be valid."""
    try:
        return read_batch(buffer, position) is None
    except BrokerError:
        return False


def _verify_seam(path: str, base_offset: int, before: _Checked) -> Iterator[Finding]:
    if base_offset < before.next_offset:
        problem = f"begins before offset {before.next_offset}, where the segment before it ends"
        yield Finding(path, None, problem, "removed after a crash, with all later segments")
    elif base_offset > before.next_offset and not before.has_gaps:
        problem = (
            f"offsets {before.next_offset} to {base_offset - 1} are missing between the segment before it and this one"
        )
        yield Finding(path, None, problem, "removed after a crash, with all later segments")


class _IndexAgreement:
    """A comparison of an index's entries with the batches of its log during a scan."""

    def __init__(self, index: OffsetIndex, progress: Progress | None) -> None:
        self._path = index.path
        self._entries: Iterator[IndexEntry] = index.entries()
        self._progress = progress
        self._max_timestamp = -1
        self.problem: str | None = None
        self._next: IndexEntry | None = None
        self._advance()

    def visit(self, batch: BatchView) -> None:
        if self._progress is not None:
            self._progress(batch.size_bytes)
        self._max_timestamp = max(self._max_timestamp, batch.max_timestamp)
        entry = self._next
        if entry is None or batch.position < entry.position:
            return
        self.problem = self._fault(entry, batch)
        if self.problem is None:
            self._advance()
        else:
            self._next = None

    def _fault(self, entry: IndexEntry, batch: BatchView) -> str | None:
        if batch.position > entry.position:
            return f"position {entry.position} is not where a batch begins"
        if not entry.offset <= batch.last_offset or (batch.magic == v2.MAGIC and entry.offset != batch.stored_offset):
            return f"offset {entry.offset} is not that of the batch at position {entry.position}"
        if entry.timestamp < self._max_timestamp:
            place = f"time {entry.timestamp} at position {entry.position}"
            return f"{place} is before a batch's timestamp, {self._max_timestamp}"
        if batch.magic == v0.MAGIC and entry.timestamp < entry.receipt:
            return f"time {entry.timestamp} at position {entry.position} is before the time of receipt, {entry.receipt}"
        return None

    def finish(self) -> None:
        """End the scan: report an entry beyond the last good batch as the problem."""
        if self._next is not None:
            self.problem = f"position {self._next.position} is beyond the last valid batch"

    def _advance(self) -> None:
        try:
            self._next = next(self._entries, None)
        except (IndexDamagedError, OSError) as fault:
            self._next = None
            self.problem = str(fault).replace(self._path, "it")


def _verify_small_files(files: Files, directory: str) -> Iterator[Finding]:
    epochs = LeaderEpochs(files, f"{directory}/{paths.LEADER_EPOCH_CHECKPOINT}")
    try:
        epochs.load()
    except MalformedCheckpointError as fault:
        yield Finding(epochs.path, None, str(fault), "rebuilt from the batches")
    metadata_path = f"{directory}/{paths.PARTITION_METADATA}"
    try:
        read_topic_id(files, metadata_path)
    except MalformedCheckpointError as fault:
        yield Finding(metadata_path, None, str(fault), "ignored; the topic id is taken from the metadata")


def _verify_snapshot(files: Files, path: str) -> Iterator[Finding]:
    try:
        parse_snapshot(files.read(path))
    except MalformedSnapshotError as fault:
        yield Finding(path, None, str(fault), "removed; the producers are read from the log")


def _verify_transactions(files: Files, path: str) -> Iterator[Finding]:
    data = files.read(path)
    good_bytes = len(parse_entries(data)) * TRANSACTION_ENTRY.size
    if good_bytes != len(data):
        yield Finding(path, good_bytes, "not an entry of an aborted transaction", "truncated, or rebuilt after a crash")


def _left_overs(directory: str, names: list[str]) -> Iterator[Finding]:
    for name in names:
        if name.endswith((paths.CLEANED, paths.DELETED, paths.SWAP, paths.RECLAIM, paths.TEMPORARY)):
            yield Finding(f"{directory}/{name}", None, "left over", "finished or removed")


def _size_or_zero(files: Files, path: str) -> int:
    try:
        return files.size(path)
    except FileNotFoundError:
        return 0


def _path(directory: str, offset: int, kind: str) -> str:
    return f"{directory}/{paths.offset_file(offset, kind)}"
