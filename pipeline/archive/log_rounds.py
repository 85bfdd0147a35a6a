"""The archiving of log directories: the ranges of offsets that the archive lacks, in rounds."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from ...storage.disk import checkpoints, paths
from ..errors import DataLossError
from ..jobs.desk import Desk
from ..kafka.offset_options import Bound, Bounds, WhenNoneIsYounger
from ..logs.log_files import PartitionFiles, ReadOnlyFiles, list_partitions
from ..logs.log_plan import PlanOptions, plan
from ..logs.log_transactions import read_transactions
from .manifest import Manifest
from .manifest_entry import OffsetRange
from .range_rows import LoggedRange
from .writing import ArchiveWriter, RangeReceipt, Share, TopicFacts, known_ids, tell_written

SPLIT_BYTES = 64 << 20


def archive_logs(
    partitions: Sequence[PartitionFiles],
    writer: ArchiveWriter,
    desk: Desk,
    max_bytes: int,
    *,
    fails_on_data_loss: bool = True,
) -> list[RangeReceipt]:
    """Archive missing offsets, about `max_bytes` per round; return the receipts. Raises PipelineError, OSError.

    With `fails_on_data_loss` a log that begins after its last archived offset raises DataLossError.
    """
    facts = _facts(partitions)
    writer.manifest.check_topic_ids(dict(facts.ids))
    if fails_on_data_loss:
        _check_starts(partitions, writer.manifest)
    missing = [each for partition in partitions for each in _missing(partition, writer.manifest)]
    done: list[RangeReceipt] = []
    with desk.progress(len(missing), "ranges") as progress:
        for round_ranges in _rounds(missing, max_bytes):
            share = Share(progress, len(done), len(round_ranges), len(round_ranges))
            written = writer.write_round(desk.session(), round_ranges, facts, share)
            tell_written(desk, written)
            done += written
    return done


def find_partitions(directories: Sequence[str], globs: Sequence[str]) -> list[PartitionFiles]:
    """Return the partitions of log directories; internal topics only if named. Raises PipelineError."""
    found = list_partitions([os.path.abspath(path) for path in directories], globs)
    return [each for each in found if globs or not each.name.topic.startswith("__")]


def cluster_id_of(directories: Iterable[str]) -> str | None:
    """Return the cluster id in the directories' `meta.properties`; None without one."""
    for directory in directories:
        try:
            found = checkpoints.read_properties(ReadOnlyFiles(), f"{directory}/{paths.META_PROPERTIES}")
        except (OSError, checkpoints.MalformedCheckpointError):
            continue
        if "cluster.id" in found:
            return found["cluster.id"]
    return None


def _check_starts(partitions: Sequence[PartitionFiles], manifest: Manifest) -> None:
    positions = manifest.positions()
    for each in partitions:
        reached = positions.get((each.name.topic, each.name.partition))
        if reached is not None and reached < each.log_start_offset:
            raise DataLossError(*each.name, reached, each.log_start_offset, each.log_end_offset)


def _missing(partition: PartitionFiles, manifest: Manifest) -> Iterator[LoggedRange]:
    aborted, end = read_transactions(partition)
    for hole in manifest.missing(OffsetRange(*partition.name, partition.log_start_offset, end)):
        options = PlanOptions(
            starting=Bounds(Bound(hole.from_offset)),
            ending=Bounds(Bound(hole.until_offset)),
            when_none_is_younger=WhenNoneIsYounger.LATEST,
            split_bytes=SPLIT_BYTES,
        )
        yield from (LoggedRange(replace(each, aborted=aborted)) for each in plan([partition], options))


def _rounds(ranges: Iterable[LoggedRange], max_bytes: int) -> Iterator[list[LoggedRange]]:
    gathered: list[LoggedRange] = []
    total = 0
    for each in ranges:
        size = each.log_range.stop - each.log_range.start
        if gathered and total + size > max_bytes:
            yield gathered
            gathered, total = [], 0
        gathered.append(each)
        total += size
    if gathered:
        yield gathered


def _facts(partitions: Sequence[PartitionFiles]) -> TopicFacts:
    counts: dict[str, int] = {}
    ids = {}
    for partition in partitions:
        topic, number = partition.name
        counts[topic] = max(counts.get(topic, 0), number + 1)
        metadata = Path(partition.segments[0].path).with_name(paths.PARTITION_METADATA)
        try:
            ids[topic] = checkpoints.read_topic_id(ReadOnlyFiles(), str(metadata))
        except (OSError, checkpoints.MalformedCheckpointError):
            continue
    return TopicFacts(known_ids(ids), counts)
