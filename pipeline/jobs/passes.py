"""One pass over a job's source: tasks read rows and return sums by partition."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from ...protocol.topic_partition import AnyTopicPartition
from ..spark_tasks import parallel_tasks, run_tasks
from .desk import Desk
from .sources import open_reader

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import DataSourceReader, InputPartition


class Addable(Protocol):
    """Sums to which others of the same type can be added."""

    def add(self, other: Any, /) -> None:
        """Add the counts of `other`."""


Sums = TypeVar("Sums", bound=Addable)


def make_pass(
    options: argparse.Namespace,
    desk: Desk,
    sum_up: Callable[[Iterable[pa.RecordBatch]], Sums],
    *,
    in_order: bool = False,
    tasks_a_core: int | None = None,
    **settings: str,
) -> dict[AnyTopicPartition, Sums]:
    """Return sums by partition. With `in_order` a task reads a whole partition, else one range of the reader.

    Ranges of brokers' topics have about equal numbers of offsets.

    `tasks_a_core` joins ranges until there are about that many tasks per core: for work that costs less than a task
    does.
    """
    from ..kafka.fetch_plan import shared_evenly
    from ..kafka.fetching import FetchRange

    reader = open_reader(options, **settings)
    ranges = [each for each in reader.partitions() if hasattr(each, "topic")]
    fetched = [each for each in ranges if isinstance(each, FetchRange)]
    if fetched and not in_order and len({(each.topic, each.partition) for each in fetched}) == len(ranges):
        # The user has not chosen a division (--option minPartitions=): a huge partition is read by several tasks.
        ranges = list(shared_evenly(fetched, tasks=parallel_tasks(desk.session())))
    by_place: dict[AnyTopicPartition, list[InputPartition]] = {}
    for each in ranges:
        by_place.setdefault((each.topic, each.partition), []).append(each)
    at_once = len(ranges) if in_order else 1
    if tasks_a_core is not None:
        at_once = math.ceil(len(ranges) / (tasks_a_core * parallel_tasks(desk.session())))
    work = [
        (place, group[start : start + at_once])
        for place, group in by_place.items()
        for start in range(0, len(group), at_once)
    ]
    with desk.progress(len(work), "ranges") as progress:
        done = run_tasks(desk.session(), work, _Task(reader, sum_up), progress)
    sums: dict[AnyTopicPartition, Sums] = {}
    for (place, _), part in zip(work, done, strict=True):
        if place in sums:
            sums[place].add(part)
        else:
            sums[place] = part
    return sums


class _Task(Generic[Sums]):
    """A Spark task that reads ranges and returns their sums."""

    def __init__(self, reader: DataSourceReader, sum_up: Callable[[Iterable[pa.RecordBatch]], Sums]) -> None:
        self._reader = reader
        self._sum_up = sum_up

    def __call__(self, work: tuple[AnyTopicPartition, list[InputPartition]]) -> Sums:
        """Return the sums of one piece of work."""
        _, ranges = work
        return self._sum_up(rows for each in ranges for rows in self._reader.read(each))
