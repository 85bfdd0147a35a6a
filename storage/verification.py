"""Checks a partition's directory without changing it: what `gregor log verify` says of CRCs, offsets and indexes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from ..protocol.records.batches import BatchView
from . import paths
from .files import Files
from .offset_index import IndexDamagedError, IndexEntry, OffsetIndex
from .open_files import OpenFiles
from .producer_snapshot import MalformedSnapshotError, parse_snapshot
from .recovery import ScanRules, scan
from .transaction_index import ENTRY as TRANSACTION_ENTRY
from .transaction_index import parse_entries

FILES_OPEN = 4

Progress = Callable[[int, int], None]
"""Called with the bytes checked so far and those to check in all."""


class Finding(NamedTuple):
    """What is not as it should be: in which file, at which byte (None: as a whole), and what would be done."""

    path: str
    position: int | None
    problem: str
    remedy: str


def verify_partition(files: Files, directory: str, progress: Progress | None = None) -> Iterator[Finding]:
    """Check every file of one partition, segments in the order of their offsets. Raises OSError."""
    names = sorted(files.list(directory))
    parsed = [name for name in map(paths.parse_offset_file, names) if name is not None and not name.state]
    segments = [name.offset for name in parsed if name.kind == paths.LOG]
    total = sum(files.size(_path(directory, offset, paths.LOG)) for offset in segments)
    done = 0
    next_offset: int | None = None
    pool = OpenFiles(files, FILES_OPEN)
    for offset in segments:
        path = _path(directory, offset, paths.LOG)
        if next_offset is not None and offset < next_offset:
            yield Finding(path, None, f"begins before offset {next_offset}, where the one before ends", "removed")
        next_offset, findings = _verify_segment(pool, directory, offset)
        yield from findings
        done += files.size(path)
        if progress is not None:
            progress(done, total)
    for name in parsed:
        if name.kind in (paths.INDEX, paths.TRANSACTION_INDEX) and name.offset not in segments:
            yield Finding(_path(directory, name.offset, name.kind), None, "there is no log for it", "removed")
        elif name.kind == paths.SNAPSHOT:
            yield from _verify_snapshot(files, _path(directory, name.offset, name.kind))
        elif name.kind == paths.TRANSACTION_INDEX:
            yield from _verify_transactions(files, _path(directory, name.offset, name.kind))
    for left_over in names:
        if left_over.endswith((paths.CLEANED, paths.DELETED, paths.SWAP, paths.TEMPORARY)):
            yield Finding(f"{directory}/{left_over}", None, "left over", "finished or removed at the next start")


def _verify_segment(pool: OpenFiles, directory: str, base_offset: int) -> tuple[int, list[Finding]]:
    """The offset after the segment's last good batch, and what is wrong with it."""
    path = _path(directory, base_offset, paths.LOG)
    index = OffsetIndex(pool, _path(directory, base_offset, paths.INDEX), base_offset, 0)
    summary = index.read_summary()
    agreement = _IndexAgreement(index)
    file = pool.files.open(path)
    try:
        size_bytes = file.size()
        has_gaps = summary is None or bool(summary.has_gaps)
        buffer = file.map(0, size_bytes) if size_bytes else memoryview(b"")
        result = scan(buffer, ScanRules(base_offset, base_offset, has_gaps), agreement.visit)
    finally:
        file.close()
        index.let_go()
    findings = []
    if result.reason is not None:
        remedy = "after a crash the log is cut here, else what follows is not served"
        findings.append(Finding(path, result.valid_bytes, result.reason, remedy))
    agreement.finish()
    if agreement.problem is not None:
        findings.append(Finding(index.path, None, agreement.problem, "built anew from the log"))
    elif summary is not None and summary.log_size_bytes not in (-1, size_bytes):
        problem = f"its summary is of a log of {summary.log_size_bytes} bytes, not {size_bytes}"
        findings.append(Finding(index.path, None, problem, "built anew from the log"))
    return result.next_offset, findings


class _IndexAgreement:
    """Holds the entries of an index against the batches of its log as a scan passes them."""

    def __init__(self, index: OffsetIndex) -> None:
        self._entries: Iterator[IndexEntry] = index.entries()
        self.problem: str | None = None
        self._next: IndexEntry | None = None
        self._advance()

    def visit(self, batch: BatchView) -> None:
        entry = self._next
        if entry is None or batch.position < entry.position:
            return
        if batch.position > entry.position:
            self._next = None
            self.problem = f"position {entry.position} is not where a batch begins"
        elif not entry.offset <= batch.last_offset or (batch.magic == 2 and entry.offset != batch.stored_offset):
            self._next = None
            self.problem = f"offset {entry.offset} is not that of the batch at position {entry.position}"
        else:
            self._advance()

    def finish(self) -> None:
        """The scan is over: nothing may be left."""
        if self._next is not None:
            self.problem = f"position {self._next.position} is beyond the last good batch"

    def _advance(self) -> None:
        try:
            self._next = next(self._entries, None)
        except (IndexDamagedError, OSError) as fault:
            self._next = None
            self.problem = str(fault)


def _verify_snapshot(files: Files, path: str) -> Iterator[Finding]:
    try:
        parse_snapshot(files.read(path))
    except MalformedSnapshotError as fault:
        yield Finding(path, None, str(fault), "removed; the producers are read from the log")


def _verify_transactions(files: Files, path: str) -> Iterator[Finding]:
    good_bytes = len(parse_entries(files.read(path))) * TRANSACTION_ENTRY.size
    if good_bytes != files.size(path):
        yield Finding(path, good_bytes, "no entry of an aborted transaction", "cut, or built anew after a crash")


def _path(directory: str, offset: int, kind: str) -> str:
    return f"{directory}/{paths.offset_file(offset, kind)}"
