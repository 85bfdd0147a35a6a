"""The tags that a log's index has for a range of stored bytes, for copies of these bytes (tagged field 18260 of Fetch).

A copy would have to guess the receipt times, and to decompress batches for the other tags. For each run of batches with
equal tags, in order:

    int32  position of the first batch of the run, counted from the first byte of the copied range
    int64  tag 0: receipt time in milliseconds, -1 if it is unknown
    int8   1: no record of the compressed batches has a key (tag 97 is 0); 0: a record may have a key
    int64  offset of the first record of a v0 or v1 wrapper at `position`, -1 if there is none
    int32  tag 32: number of messages in that wrapper, -1 if there is none
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from struct import Struct
from typing import NamedTuple

from .batches import BatchView, invalid_record
from .record import NO_TIMESTAMP, Buffer
from .v2 import MAGIC as V2

RUN = Struct(">iqbqi")
NO_FIRST_OFFSET = NO_COUNT = -1


class TagRun(NamedTuple):
    """The tags of the batches from `position` on; the last two fields are those of the wrapper at `position` alone."""

    position: int
    receipt_ms: int = NO_TIMESTAMP
    keyed: bool = True
    first_offset: int = NO_FIRST_OFFSET
    num_messages: int = NO_COUNT


class TagRuns:
    """A range's runs, by ascending position."""

    __slots__ = ("_encoded", "_positions", "_runs", "_tags_of_all")

    def __init__(self, runs: Sequence[TagRun] = ()) -> None:
        self._runs = runs
        self._positions = [run.position for run in runs]
        self._encoded: bytes | None = None
        is_one = len(runs) == 1 and runs[0].position == 0 and runs[0].num_messages == NO_COUNT
        self._tags_of_all = runs[0] if is_one else None

    def __bool__(self) -> bool:
        return bool(self._runs)

    def __iter__(self) -> Iterator[TagRun]:
        return iter(self._runs)

    def of(self, batch: BatchView) -> TagRun | None:
        """Return the tags of a batch, by its position in the range; None if the runs begin later.

        The wrapper's fields are those of this batch, or -1.
        """
        if self._tags_of_all is not None:
            return self._tags_of_all
        number = bisect_right(self._positions, batch.position)
        if not number:
            return None
        run = self._runs[number - 1]
        if run.num_messages != NO_COUNT and not _describes(run, batch):
            return run._replace(first_offset=NO_FIRST_OFFSET, num_messages=NO_COUNT)
        return run

    def since(self, begin: int) -> TagRuns:
        """Return the runs of the part of the range from `begin` on."""
        first = bisect_right(self._positions, begin) - 1
        moved = [run._replace(position=run.position - begin) for run in self._runs[max(first, 0) :]]
        if moved and moved[0].position < 0:
            moved[0] = moved[0]._replace(position=0, first_offset=NO_FIRST_OFFSET, num_messages=NO_COUNT)
        return TagRuns(moved)

    def encode(self) -> bytes:
        """Encode the bytes of the tagged field."""
        if self._encoded is None:
            self._encoded = b"".join(
                RUN.pack(run.position, run.receipt_ms, not run.keyed, run.first_offset, run.num_messages)
                for run in self._runs
            )
        return self._encoded

    @classmethod
    def decode(cls, data: Buffer) -> TagRuns:
        """Decode the tagged field. Raises BrokerError INVALID_RECORD for a wrong length or falling positions."""
        if len(data) == RUN.size:
            return _decode_one(bytes(data))
        if len(data) % RUN.size:
            raise invalid_record(f"{len(data)} bytes of tags where each run has {RUN.size}")
        runs = [_run_of(fields) for fields in RUN.iter_unpack(data)]
        if any(later.position <= run.position for run, later in pairwise(runs)):
            raise invalid_record("The positions of the tags do not rise")
        return cls(runs)


NO_TAG_RUNS = TagRuns()


@lru_cache(maxsize=256)
def one_run(receipt_ms: int, keyed: bool) -> TagRuns:
    """Return the tags of a range with one run: those of all partitions to which records came in the same second."""
    return TagRuns((TagRun(0, receipt_ms, keyed),))


@lru_cache(maxsize=256)
def _decode_one(data: bytes) -> TagRuns:
    return TagRuns((_run_of(RUN.unpack(data)),))


def _run_of(fields: tuple[int, ...]) -> TagRun:
    position, receipt_ms, is_non_keyed, first_offset, num_messages = fields
    return TagRun(position, receipt_ms, not is_non_keyed, first_offset, num_messages)


def _describes(run: TagRun, batch: BatchView) -> bool:
    """Return whether the wrapper's fields of a run are possible for this batch."""
    return (
        run.position == batch.position
        and batch.magic < V2
        and batch.is_compressed
        and 0 <= run.first_offset <= batch.last_offset
        and 1 <= run.num_messages <= batch.last_offset - run.first_offset + 1
    )
