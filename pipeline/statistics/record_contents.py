"""The contents of a partition in any place: the record count, an order-independent sum, and the number of equal
records.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from ...protocol.topic_partition import AnyTopicPartition
from ..archive.log_rounds import find_partitions
from ..archive.range_rows import FetchedRange, LoggedRange
from ..archive.reading import ArchivedPartition
from ..kafka.cluster_view import ClusterView
from ..kafka.fetching import FetchOptions, FetchRange
from ..kafka.offset_options import Bound, Bounds, WhenNoneIsYounger, ending_bounds, starting_bounds
from ..kafka.read_plan import ReadPlan
from ..kafka.topic_choice import partitions_of, resolve_end, resolve_start
from ..logs.log_plan import PlanOptions, plan
from .checksums import MODULUS, content_hashes, sum_of_places, unique_count

SPLIT_BYTES = 1 << 62


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


def contents_of(work: tuple[AnyTopicPartition, Sequence[Records]]) -> Contents:
    """Read a partition, in a task. Raises PipelineError."""
    place, sources = work
    hashes, placed, count = [], 0, 0
    for rows in (rows for source in sources for rows in source.records()):
        columns = [rows["key"].cast(pa.binary()), rows["value"].cast(pa.binary())]
        hashes.append(content_hashes(columns, rows.num_rows))
        placed += sum_of_places(*place, rows["offset"], columns)
        count += rows.num_rows
    unique, total = unique_count(hashes)
    return Contents(count, total, placed % MODULUS, count - unique)


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
