"""Replay an archive to topics: each row to its partition, in order, with key, timestamp and headers, exactly once.

Every transaction also commits the position in the archive, as offsets of the group pipeline.NAME at the target. An
interrupted replay continues there; a completed one does nothing. Missing topics are created with their former number of
partitions. The archive's values must be raw, string, or JSON without a schema; for an archive of batches see restore.
With --dead-letters the values that could not be decoded are copied, whatever the archive's values are.

--where takes a condition in Spark SQL over the columns key, value, partition, offset, timestamp, headers ...
"""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from ...protocol.records.compression import Codec
from ..errors import PipelineError
from ..spark_tasks import run_tasks
from .desk import Desk, Summary
from .out_of_archive import add_target_arguments, make_target_topics, target_settings

if TYPE_CHECKING:
    from ..archive.manifest import Manifest
    from ..archive.reading import ArchivedPartition
    from ..archive.replaying import ReplayOptions, ReplayReceipt
    from ..sink.exact_copy import CopyTarget

HELP = "copy an archive to topics, exactly once"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments for the archive, the target, the rows and the rate."""
    add_target_arguments(parser, "write through these brokers")
    parser.add_argument(
        "--name", default="replay", help="name of the progress; a new name replays all again (%(default)s)"
    )
    parser.add_argument(
        "--since", type=milliseconds, metavar="TIME", help="only records from this time on: ISO 8601, or ms"
    )
    parser.add_argument("--until", type=milliseconds, metavar="TIME", help="only records before this time")
    parser.add_argument("--where", metavar="SQL", help="only rows for which this condition is true")
    parser.add_argument(
        "--rate", type=float, default=0.0, metavar="N", help="records per second in total (default: no limit)"
    )
    parser.add_argument(
        "--dead-letters",
        action="store_true",
        help="the dead letters instead of the rows, with reason and place in the headers of Kafka Connect",
    )
    parser.add_argument("--codec", choices=[codec.name.lower() for codec in Codec], default="none")


def run(options: argparse.Namespace, desk: Desk) -> Summary:
    """Replay the rows that are not replayed yet."""
    from ..archive.archive import Archive
    from ..archive.description import Values
    from ..archive.manifest import DEAD_LETTERS
    from ..archive.reading import archived_partitions
    from ..archive.replaying import ReplayOptions
    from ..metrics.copy_progress import CopyProgress, NoProgress
    from ..options import names_of

    # Wrong settings are refused before any work.
    if options.dead_letters and options.where:
        raise PipelineError("--where takes rows, not dead letters")
    target_settings(options)
    archive = Archive.open(options.archive.absolute(), desk)
    description = archive.description
    if description.values is Values.BATCHES:
        raise PipelineError("an archive of batches has no records to replay: use `gregor pipeline restore`")
    if description.value_type not in ("binary", "string") and not options.dead_letters:
        raise PipelineError(f"values were decoded to {description.value_type}: their bytes are not in the archive")
    chosen_files = archive.table.files(DEAD_LETTERS) if options.dead_letters else None
    partitions = archived_partitions(archive, names_of(options.topics or ""), files=chosen_files)
    make_target_topics(options, archive.manifest, partitions)
    _check_targets_differ(options, archive.manifest, {each.topic for each in partitions})
    rate = options.rate / max(len(partitions), 1)
    chosen = ReplayOptions(options.since, options.until, rate, Codec[options.codec.upper()])
    work = [(each, _target(options, each)) for each in partitions]
    progress = CopyProgress([(target, source.spans[0][0], source.until_offset) for source, target in work])
    session = desk.session()
    with progress.shown(desk):
        if options.dead_letters:
            done = run_tasks(session, work, partial(_replay_letters, chosen), NoProgress())
        elif options.where:
            from ..archive.filtered_replay import replay_where

            done = replay_where(session, archive.table, work, chosen, options.where)
        else:
            done = run_tasks(session, work, partial(_replay_partition, chosen), NoProgress())
    ends = {target.place: source.until_offset for source, target in work}
    for receipt in done:
        desk.metrics.done(*receipt.place, records=receipt.records, size_bytes=receipt.size_bytes)
        desk.metrics.position(*receipt.place, ends[receipt.place], ends[receipt.place])
    rows = [(*receipt.place, receipt.began_at, receipt.records) for receipt in done]
    notes = () if any(receipt.records for receipt in done) else ("nothing new: everything is replayed",)
    totals = {"bytes": sum(receipt.size_bytes for receipt in done)}
    return Summary(("TOPIC", "PARTITION", "BEGAN-AT", "RECORDS"), rows, notes, totals=totals)


def _check_targets_differ(options: argparse.Namespace, manifest: Manifest, topics: set[str]) -> None:
    """Raise PipelineError if a topic would get its own records again, which the next run would archive again."""
    from ..kafka.cluster_view import ClusterView

    with ClusterView(target_settings(options)) as cluster:
        found = cluster.topics([options.prefix + topic for topic in sorted(topics)])
    archived_ids = manifest.state.topic_ids
    for topic in sorted(topics):
        name = options.prefix + topic
        if str(found[name].topic_id) == archived_ids.get(topic):
            raise PipelineError(
                f"topic {name} is the source of the archive: replay it under another name with --prefix"
            )


def milliseconds(text: str) -> int:
    """Parse a time since the epoch, from milliseconds or ISO 8601 (UTC without a zone). Raises ValueError."""
    if text.lstrip("-").isdigit():
        return int(text)
    moment = datetime.fromisoformat(text)
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def _target(options: argparse.Namespace, source: ArchivedPartition) -> CopyTarget:
    from ..sink.exact_copy import CopyTarget

    what = f"dead letters of {source.topic}" if options.dead_letters else source.topic
    purpose = f"replay {what} since {options.since} until {options.until} where {options.where}"
    place = (options.prefix + source.topic, source.partition)
    return CopyTarget(target_settings(options), f"pipeline.{options.name}", place, purpose)


def _replay_partition(options: ReplayOptions, work: tuple[ArchivedPartition, CopyTarget]) -> ReplayReceipt:
    from ..archive.replaying import replay

    source, target = work
    return replay(target, options, source.rows)


def _replay_letters(options: ReplayOptions, work: tuple[ArchivedPartition, CopyTarget]) -> ReplayReceipt:
    from ..archive.dead_letters import letters_with_places
    from ..archive.replaying import replay

    source, target = work
    return replay(target, options, partial(letters_with_places, source))
