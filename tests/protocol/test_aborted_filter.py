"""The batches that a read_committed consumer hides, for fetches that begin and end anywhere."""

from __future__ import annotations

import pytest

from gregor.protocol.records import v2
from gregor.protocol.records.aborted import AbortedFilter
from gregor.protocol.records.batches import BatchView, read_batch
from gregor.protocol.records.record import Record


def data(offset: int, producer_id: int, *, is_transactional: bool = True) -> BatchView:
    raw = v2.build_batch(
        [Record(offset, 0, None, b"v")],
        base_offset=offset,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=offset,
        is_transactional=is_transactional,
    )
    view = read_batch(raw)
    assert view is not None
    return view


def marker(offset: int, producer_id: int, *, is_abort: bool) -> BatchView:
    key = b"\0\0\0\0" if is_abort else b"\0\0\0\1"
    raw = v2.build_batch(
        [Record(offset, 0, key, bytes(6))],
        base_offset=offset,
        producer_id=producer_id,
        producer_epoch=0,
        is_transactional=True,
        is_control=True,
    )
    view = read_batch(raw)
    assert view is not None
    return view


LOG = [
    data(0, 7),
    data(1, 8),
    data(2, 7, is_transactional=False),
    marker(3, 7, is_abort=True),
    data(4, 7),
    marker(5, 8, is_abort=False),
    marker(6, 7, is_abort=False),
    data(7, 7),
    marker(8, 7, is_abort=True),
    data(9, 8),
]
ABORTED = [(0, 7), (7, 7)]
VISIBLE = {1, 2, 4, 9}


@pytest.mark.parametrize("start", range(len(LOG)))
def test_aborted_records_are_hidden_from_fetches_that_begin_at_any_offset(start: int) -> None:
    """The broker lists the aborted transactions that overlap what it returns, also those that only end in it."""
    ends = {0: 3, 7: 8}
    listed = [(first, producer) for first, producer in ABORTED if ends[first] >= start]
    aborted = AbortedFilter(listed)
    seen = set()
    for batch in LOG[start:]:
        if batch.is_control:
            aborted.pass_marker(batch)
        elif not aborted.hides(batch):
            seen.add(batch.last_offset)
    assert seen == {offset for offset in VISIBLE if offset >= start}
