"""The tags of a slice's batches, for a copy of the slice in another log."""

from __future__ import annotations

from ...protocol.records.tag_runs import NO_FIRST_OFFSET, NO_TAG_RUNS, TagRun, TagRuns, one_run
from ..log.log_slice import LogSlice
from .index_format import NO_COUNT, NON_KEYED


def tag_runs_of(log_slice: LogSlice) -> TagRuns:
    """Return the tags that the index has for a slice that was just read, by position in the slice.

    No batch is read: the cost is that of the slice's index entries. Raises OSError.
    """
    segment = log_slice.segment
    if segment is None:
        return NO_TAG_RUNS
    start, end = log_slice.position, log_slice.position + log_slice.size_bytes
    last = segment.index.last_tags(start)
    if last is not None:
        # The usual fetch of a follower: the newest batches of a log.
        return one_run(last[0], not last[1] & NON_KEYED)
    runs: list[TagRun] = []
    receipt = flags = None
    for entry in segment.looked_up(lambda index: index.entries_for(start, end)):
        is_own = entry.num_messages != NO_COUNT and entry.position >= start
        if is_own or entry.receipt != receipt or entry.flags != flags:
            receipt, flags = entry.receipt, entry.flags
            runs.append(
                TagRun(
                    max(entry.position - start, 0),
                    receipt,
                    not flags & NON_KEYED,
                    entry.offset if is_own else NO_FIRST_OFFSET,
                    entry.num_messages if is_own else NO_COUNT,
                )
            )
    return TagRuns(runs)
