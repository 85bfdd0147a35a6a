"""The contents of a partition in any place: the record count, an order-independent sum, and the number of equal
records.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import pyarrow as pa

from ...protocol.topic_partition import AnyTopicPartition
from ..archive.log_rounds import SPLIT_BYTES, find_partitions
from ..archive.range_rows import FetchedRange, LoggedRange
from ..archive.reading import ArchivedPartition
from ..kafka.cluster_view import ClusterView
from ..kafka.fetching import FetchOptions, FetchRange
from ..kafka.offset_options import Bound, Bounds, WhenNoneIsYounger, ending_bounds, starting_bounds
from ..kafka.read_plan import ReadPlan
from ..kafka.topic_choice import partitions_of, resolve_end, resolve_start
from ..logs.log_plan import PlanOptions, plan
from .checksums import MODULUS, Hashes, content_hashes, sum_of_places, unique_hashes

MOST_HASHES = 32_000_000
"""The records of divided partitions at most: the driver gets eight bytes for each, to count equal ones."""


class Records(Protocol):
    """A reader of a partition's committed records."""

    def records(self) -> Iterator[pa.RecordBatch]:
        """Yield rows with `key`, `value` and `offset`."""


@dataclass(frozen=True, slots=True)
class Contents:
    """The contents of one partition. `placed_sum` includes the offsets, `content_sum` only keys and values."""

    records: int
    content_sum: int
    placed_sum: int
    equal_records: int
    """The number of records whose key and value equal those of an earlier record."""


@dataclass(frozen=True, slots=True)
class ArchivedRecords:
    """A reader of an archived partition's rows."""

    source: ArchivedPartition

    def records(self) -> Iterator[pa.RecordBatch]:
        """Yield rows, see Records."""
        for table, _ in self.source.rows():
            if table.num_rows:
                yield from table.select(["key", "value", "offset"]).to_batches()


@dataclass(frozen=True, slots=True)
class PartContents:
    """The contents of a part of a partition: its sums, and the different hashes of its records."""

    records: int
    content_sum: int
    placed_sum: int
    hashes: Hashes


def part_contents(work: tuple[AnyTopicPartition, Sequence[Records]]) -> PartContents:
    """Read a part of a partition, in a task. Raises PipelineError."""
    place, sources = work
    hashes, placed, count = [], 0, 0
    for rows in (rows for source in sources for rows in source.records()):
        columns = [rows["key"].cast(pa.binary()), rows["value"].cast(pa.binary())]
        hashes.append(content_hashes(columns, rows.num_rows))
        placed += sum_of_places(*place, rows["offset"], columns)
        count += rows.num_rows
    unique, total = unique_hashes(hashes)
    return PartContents(count, total, placed % MODULUS, unique)


def joined_contents(parts: Sequence[PartContents]) -> Contents:
    """Return the contents of a partition from those of its parts."""
    records = sum(part.records for part in parts)
    unique = parts[0].hashes if len(parts) == 1 else unique_hashes([part.hashes for part in parts])[0]
    return Contents(
        records,
        sum(part.content_sum for part in parts) % MODULUS,
        sum(part.placed_sum for part in parts) % MODULUS,
        records - len(unique),
    )


def fetched_records(read: ReadPlan) -> dict[AnyTopicPartition, list[Records]]:
    """Return the readers of brokers' records of the topics in the options. Raises PipelineError."""
    with ClusterView(read.settings) as cluster:
        places = partitions_of(read.choice.find(cluster))
        start = resolve_start(
            cluster, places, starting_bounds(read.options), read.strategy, fails_on_data_loss=read.fails_on_data_loss
        )
        end = resolve_end(cluster, places, ending_bounds(read.options), read_committed=True)
    fetch = FetchOptions(read.settings, read_committed=True)
    return {
        place: [FetchedRange(FetchRange(*place, start[place], end[place]), fetch, read.fails_on_data_loss)]
        for place in places
    }


def logged_records(directories: Sequence[str], globs: Sequence[str]) -> dict[AnyTopicPartition, list[Records]]:
    """Return the readers of log directories' records. Raises PipelineError."""
    found: dict[AnyTopicPartition, list[Records]] = {}
    for partition in find_partitions(directories, globs):
        options = PlanOptions(
            starting=Bounds(Bound(partition.log_start_offset)),
            ending=Bounds(Bound(partition.log_end_offset)),
            when_none_is_younger=WhenNoneIsYounger.LATEST,
            split_bytes=SPLIT_BYTES,
            read_committed=True,
        )
        place = (partition.name.topic, partition.name.partition)
        found[place] = [LoggedRange(each) for each in plan([partition], options)]
    return found


def archived_records(partitions: Iterable[ArchivedPartition]) -> dict[AnyTopicPartition, list[Records]]:
    """Return the readers of an archive's records."""
    return {(each.topic, each.partition): [ArchivedRecords(each)] for each in partitions}


def in_pieces(
    sources: Mapping[AnyTopicPartition, Sequence[Records]], tasks: int
) -> list[tuple[AnyTopicPartition, list[Records]]]:
    """Return the work of each task if `tasks` run at a time: partitions in order, huge ones in several parts."""
    sizes = {place: sum(_offsets(each) for each in readers) for place, readers in sources.items()}
    share = max(1, -(-sum(sizes.values()) // max(1, tasks)))
    hashes_left = MOST_HASHES
    work: list[tuple[AnyTopicPartition, list[Records]]] = []
    for place, readers in sources.items():
        if not share < sizes[place] <= hashes_left:
            work.append((place, list(readers)))
            continue
        hashes_left -= sizes[place]
        waiting: list[Records] = []
        for reader in (part for each in readers for part in _divided(each, share)):
            if waiting and sum(map(_offsets, [*waiting, reader])) > share:
                work.append((place, waiting))
                waiting = []
            waiting.append(reader)
        work.append((place, waiting))
    return work


def _offsets(reader: Records) -> int:
    """Return the number of offsets of a reader."""
    if isinstance(reader, ArchivedRecords):
        return sum(until - start for start, until in reader.source.spans)
    assert isinstance(reader, FetchedRange | LoggedRange)
    return reader.covers.until_offset - reader.covers.from_offset


def _divided(reader: Records, most: int) -> list[Records]:
    """Return readers of at most so many offsets each; a range of a log directory is left as it is."""
    if isinstance(reader, ArchivedRecords):
        spans = [cut for span in reader.source.spans for cut in _cut(*span, most)]
        return [ArchivedRecords(replace(reader.source, spans=(span,))) for span in spans]
    if isinstance(reader, FetchedRange):
        wanted = reader.fetch_range
        cuts = _cut(wanted.first_offset, wanted.end_offset, most)
        return [replace(reader, fetch_range=replace(wanted, first_offset=low, end_offset=high)) for low, high in cuts]
    return [reader]


def _cut(start: int, until: int, most: int) -> list[tuple[int, int]]:
    return [(low, min(low + most, until)) for low in range(start, until, most)]
