"""A shallow copy of one partition from one cluster to another: batches are fetched and produced without decoding.

`client.mirroring.outgoing` converts the batches; nearly all are sent unchanged except for the producer in their
headers. Each transaction at the target contains some batches and the progress, so a crash loses and doubles nothing;
the mapping of their offsets is stored with the progress until it is in the table of offsets.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from uuid import UUID

import pyarrow as pa
import trio
from pyarrow import parquet

from ...client.mirroring.outgoing import Outgoing, TargetRules, renumbered
from ...protocol.errors import BrokerError
from ...protocol.records.batches import BatchView, iter_batches
from ...protocol.topic_partition import AnyTopicPartition
from ..errors import DamagedLogError
from ..filesystems.files import write_whole
from ..filesystems.locations import Location
from ..kafka.cluster_view import ClusterView
from ..kafka.fetching import FetchedPiece, FetchOptions, FetchRange, fetch_pieces
from ..kafka.offset_options import EARLIEST
from .exact_copy import CopyTarget, ExactCopy, copy_with_patience

Run = tuple[int, int, int, int]
"""The source offsets from and until, the target offset of the first record, and the number of records."""

MOST_NOTED_RUNS = 60
"""The number of runs that always fits into the metadata of a committed offset (offset.metadata.max.bytes: 4096)."""

OFFSETS = pa.schema(
    [
        ("sourceFrom", pa.int64()),
        ("sourceUntil", pa.int64()),
        ("targetFrom", pa.int64()),
        ("records", pa.int64()),
    ]
)
"""The table of offsets.

Where `records` is `sourceUntil` - `sourceFrom`, offsets correspond one to one; where it is less (markers, aborted or
compacted records in between), only the ends correspond.
"""


@dataclass(frozen=True, slots=True)
class MirrorWork:
    """The work of one task: a partition up to `end_offset` of the source's topic of that id.

    `earliest_offset` is that of the source when the work was planned. `offsets_root` is the directory of the table of
    offsets.
    """

    source: FetchOptions
    topic_id: UUID
    earliest_offset: int
    end_offset: int
    target: CopyTarget
    max_batch_bytes: int
    transaction_bytes: int
    offsets_root: Location | None
    fails_on_data_loss: bool = True


@dataclass(frozen=True, slots=True)
class MirrorReceipt:
    """The result of a task: the batches that this run copied, its first offset, and the number of rebuilt batches."""

    place: AnyTopicPartition
    records: int
    size_bytes: int
    began_at: int
    until: int
    rebuilt_batches: int


def mirror_partition(work: MirrorWork) -> MirrorReceipt:
    """Copy the offsets that are not copied yet. Raises PipelineError."""
    return copy_with_patience(work.target, _Mirror(work).run)


class _Mirror:
    def __init__(self, work: MirrorWork) -> None:
        self._work = work
        self._records = self._size_bytes = self._rebuilt = 0
        self._began_at: int | None = None

    async def run(self, copy: ExactCopy) -> MirrorReceipt:
        """Continue from the stored progress."""
        work = self._work
        position, note = await copy.progress()
        if note and work.offsets_root is not None:
            # A run that was killed right after its commit has not written these runs.
            write_offsets(work.offsets_root, work.target.place, [(run[0], run[1], run[2], run[3]) for run in note])
        start = await trio.to_thread.run_sync(self._earliest) if position is None else position
        if self._began_at is None:
            self._began_at = start
        transactions = self._transactions(start)
        while (taken := await trio.to_thread.run_sync(next, transactions, None)) is not None:
            await self._send(copy, *taken)
        return MirrorReceipt(
            work.target.place, self._records, self._size_bytes, self._began_at, work.end_offset, self._rebuilt
        )

    async def _send(self, copy: ExactCopy, start: int, outgoing: Sequence[Outgoing], next_offset: int) -> None:
        batches = [item.payload if item.source is None else item.source.view for item in outgoing]
        offsets = await copy.append(batches, next_offset, partial(_noted, start, outgoing))
        self._records += sum(item.record_count for item in outgoing)
        self._size_bytes += sum(item.size_bytes for item in outgoing)
        self._rebuilt += sum(item.source is None for item in outgoing)
        if self._work.offsets_root is not None:
            runs = runs_of(start, outgoing, offsets)
            await trio.to_thread.run_sync(write_offsets, self._work.offsets_root, self._work.target.place, runs)

    def _earliest(self) -> int:
        place = self._work.target.place
        with ClusterView(self._work.source.settings) as cluster:
            return cluster.list_offsets({place: EARLIEST})[place] or 0

    def _transactions(self, start: int) -> Iterator[tuple[int, list[Outgoing], int]]:
        """Yield for each transaction its first source offset, its batches, and the source offset after it."""
        work = self._work
        wanted = FetchRange(*work.target.place, start, work.end_offset, work.topic_id)
        waiting: list[Outgoing] = []
        size, begin, position = 0, start, start
        for piece in fetch_pieces(wanted, work.source, fails_on_data_loss=work.fails_on_data_loss):
            for item in self._outgoing(piece, start):
                waiting.append(item)
                size += item.size_bytes
                if size >= work.transaction_bytes:
                    yield begin, waiting, item.source_end
                    waiting, size, begin = [], 0, item.source_end
            position = piece.next_offset
        if waiting or position > begin:
            yield begin, waiting, position

    def _outgoing(self, piece: FetchedPiece, start: int) -> Iterator[Outgoing]:
        rules = TargetRules(self._work.max_batch_bytes, takes_old_formats=False)
        first = next(iter_batches(piece.stored)).stored_offset
        try:
            yield from renumbered(self._shown(piece), start, rules)
        except BrokerError as fault:
            raise DamagedLogError(*self._work.target.place, first, f"at or after it: {fault}") from fault

    def _shown(self, piece: FetchedPiece) -> Iterator[BatchView]:
        """Yield the batches of a piece that read_committed consumers see. Raises DamagedLogError."""
        for batch in iter_batches(piece.stored):
            if not batch.crc_is_valid:
                # The copy gets a new CRC, which would hide the damage for ever.
                raise DamagedLogError(*self._work.target.place, batch.stored_offset, f"{batch!r} has a wrong CRC")
            is_hidden = piece.hides_batch is not None and piece.hides_batch(batch)
            if not is_hidden and not batch.is_control:
                yield batch


def runs_of(start: int, outgoing: Sequence[Outgoing], offsets: Sequence[int]) -> list[Run]:
    """Return the mapping of source offsets to target offsets, in as few rows as possible."""
    runs: list[Run] = []
    for item, offset in zip(outgoing, offsets, strict=True):
        begin = runs[-1][1] if runs else start
        run = (begin, item.source_end, offset, item.record_count)
        last = runs[-1] if runs else None
        if last and _is_dense(last) and _is_dense(run) and last[2] + last[3] == offset:
            runs[-1] = (last[0], run[1], last[2], last[3] + run[3])
        else:
            runs.append(run)
    return runs


def write_offsets(root: Location, place: AnyTopicPartition, runs: Sequence[Run]) -> None:
    """Write a file of the table, named by its first offset, so that a repeated write replaces the same file."""
    if not runs:
        return
    topic, number = place
    path = root / f"topic={topic}" / f"partition={number}" / f"{runs[0][0]:020d}.parquet"
    rows = [dict(zip(OFFSETS.names, run, strict=True)) for run in runs]
    contents = io.BytesIO()
    parquet.write_table(pa.Table.from_pylist(rows, OFFSETS), contents)
    write_whole(path, contents.getvalue())


def _noted(start: int, outgoing: Sequence[Outgoing], offsets: list[int]) -> list[Run] | None:
    runs = runs_of(start, outgoing, offsets)
    return runs if len(runs) <= MOST_NOTED_RUNS else None


def _is_dense(run: Run) -> bool:
    return run[1] - run[0] == run[3]
