"""The archiving of topics up to their current end, in rounds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from ...protocol.topic_partition import AnyTopicPartition
from ..errors import PipelineError
from ..jobs.desk import Desk
from ..kafka.clients import commit_positions
from ..kafka.cluster_view import ClusterView, TopicView
from ..kafka.fetch_plan import even_ranges, limit_bytes
from ..kafka.fetching import FetchOptions
from ..kafka.offset_options import LATEST, Bound, Bounds, starting_bounds
from ..kafka.read_plan import ReadPlan
from ..kafka.topic_choice import partitions_of, resolve_end, resolve_start
from ..spark_tasks import parallel_tasks
from .range_rows import FetchedRange
from .writing import ArchiveWriter, RangeReceipt, Share, TopicFacts, known_ids, tell_written


@dataclass(frozen=True, slots=True)
class WaveOptions:
    """The options of a wave: about `max_bytes` of stored batches per round; positions are committed for `group`, if
    given.
    """

    plan: ReadPlan
    max_bytes: int
    group: str | None


def archive_wave(options: WaveOptions, cluster: ClusterView, writer: ArchiveWriter, desk: Desk) -> list[RangeReceipt]:
    """Archive all records up to the current end; return the receipts. Raises PipelineError, OSError."""
    topics = options.plan.choice.find(cluster)
    ids = known_ids({name: topic.topic_id for name, topic in topics.items()})
    writer.manifest.check_topic_ids(ids)
    facts = TopicFacts(ids, {name: len(topic.partitions) for name, topic in topics.items()})
    start, end = _bounds(options.plan, cluster, writer, topics)
    total = _amount(start, end)
    # After the end is known, as a producer registers a schema before it writes the first record with that schema.
    if total and writer.follow_schema():
        desk.say("the registry has another version of the schema: the table has its columns from now on")
    done: list[RangeReceipt] = []
    _tell_positions(desk, start, end)
    with desk.progress(total, "offsets") as progress:
        while left := _amount(start, end):
            until = limit_bytes(cluster, start, end, options.max_bytes)
            share = Share(progress, total - left, _amount(start, until))
            confirm = partial(_confirm, cluster, topics)
            written = _round(options.plan, writer, desk, facts, share, (start, until), confirm)
            tell_written(desk, written)
            done += written
            start = until
            _tell_positions(desk, start, end)
            _commit_group(options, writer)
    if not done:
        # A run that was killed may have completed everything except this commit.
        _commit_group(options, writer)
    return done


def _tell_positions(desk: Desk, start: Mapping[AnyTopicPartition, int], end: Mapping[AnyTopicPartition, int]) -> None:
    for (topic, partition), until in end.items():
        desk.metrics.position(topic, partition, start[topic, partition], until)


def _bounds(
    plan: ReadPlan, cluster: ClusterView, writer: ArchiveWriter, topics: Mapping[str, TopicView]
) -> tuple[dict[AnyTopicPartition, int], dict[AnyTopicPartition, int]]:
    places = partitions_of(topics)
    wanted = starting_bounds(plan.options)
    known = {place: Bound(offset) for place, offset in writer.manifest.positions().items()}
    start = resolve_start(
        cluster,
        places,
        Bounds(wanted.default, {**wanted.by_partition, **known}),
        plan.strategy,
        fails_on_data_loss=plan.fails_on_data_loss,
    )
    end = resolve_end(cluster, places, Bounds(Bound(LATEST)), read_committed=plan.read_committed)
    return start, {place: max(end[place], start[place]) for place in places}


def _round(
    plan: ReadPlan,
    writer: ArchiveWriter,
    desk: Desk,
    facts: TopicFacts,
    share: Share,
    bounds: tuple[dict[AnyTopicPartition, int], dict[AnyTopicPartition, int]],
    confirm: Callable[[], None],
) -> list[RangeReceipt]:
    session = desk.session()
    fetch = FetchOptions(plan.settings, read_committed=plan.read_committed)
    ranges = even_ranges(*bounds, tasks=parallel_tasks(session))
    share.tasks = len(ranges)
    sources = [FetchedRange(each, fetch, plan.fails_on_data_loss) for each in ranges]
    return writer.write_round(session, sources, facts, share, confirm=confirm)


def _confirm(cluster: ClusterView, topics: Mapping[str, TopicView]) -> None:
    """Raise PipelineError if the records may be of a topic that was deleted and created again meanwhile."""
    for name, topic in cluster.topics(topics).items():
        if topic.topic_id != topics[name].topic_id:
            raise PipelineError(
                f"topic {name} was deleted and recreated while it was read: this batch is not committed"
            )


def _commit_group(options: WaveOptions, writer: ArchiveWriter) -> None:
    positions = writer.manifest.positions()
    if options.group is not None and positions:
        commit_positions(options.plan.settings, options.group, positions)


def _amount(start: Mapping[AnyTopicPartition, int], end: Mapping[AnyTopicPartition, int]) -> int:
    return sum(end[place] - start[place] for place in end)
