"""Copy topics between clusters in raw batches, which tasks fetch and produce, exactly once.

Batches do not change, nor does their codec; transaction markers and records of aborted transactions are left out.
Each partition is copied to the partition of the same number, so keys keep their partitions. Progress is stored at the
target, as offsets of the group pipeline.NAME. --offsets-map keeps a table of source and target offsets.

`gregor mirror` does the same without Spark, and without end; this one spreads partitions over a cluster of machines
and ends when all is copied that is there now.
"""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING

from ...protocol.errors import BrokerError, ErrorCode
from ..errors import OptionError, PipelineError
from ..filesystems.locations import location_argument
from ..kafka.wire import WireSettings
from ..spark_tasks import run_tasks
from .cluster_options import add_config_argument, cluster_settings
from .desk import Desk, Summary
from .sources import add_data_loss_argument

if TYPE_CHECKING:
    from ..sink.shallow_mirror import MirrorWork

HELP = "copy topics between clusters, batch by batch"

MIB = 1 << 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments for both clusters and the topics."""
    parser.add_argument("--from", dest="source", required=True, metavar="HOST:PORT,...", help="the cluster to read")
    parser.add_argument("--to", dest="target", required=True, metavar="HOST:PORT,...", help="the cluster to write to")
    add_config_argument(parser, "--consumer.config", "of --from", destination="source_config")
    add_config_argument(parser, "--producer.config", "of --to", destination="target_config")
    parser.add_argument("--topics", required=True, metavar="REGEX", help="copy topics whose whole name matches")
    parser.add_argument(
        "--name", default="mirror", help="name of the progress; a new name copies all again (%(default)s)"
    )
    parser.add_argument(
        "--offsets-map",
        type=location_argument,
        metavar="DIR",
        help="keep a table of offsets in this directory, as Parquet",
    )
    add_data_loss_argument(parser)
    parser.add_argument(
        "--transaction-bytes",
        type=int,
        default=16 * MIB,
        metavar="N",
        help="approximate size of a transaction (16 MiB)",
    )


def run(options: argparse.Namespace, desk: Desk) -> Summary:
    """Copy the offsets that are not copied yet."""
    from ..metrics.copy_progress import CopyProgress, NoProgress
    from ..sink.shallow_mirror import mirror_partition

    work = plan(options)
    progress = CopyProgress([(each.target, each.earliest_offset, each.end_offset) for each in work])
    session = desk.session()
    with progress.shown(desk):
        done = run_tasks(session, work, mirror_partition, NoProgress())
    for each in done:
        desk.metrics.done(*each.place, records=each.records, size_bytes=each.size_bytes)
        desk.metrics.position(*each.place, each.until, each.until)
    columns = ("TOPIC", "PARTITION", "FROM", "UNTIL", "RECORDS", "BYTES", "REBUILT-BATCHES")
    rows = [
        (*each.place, each.began_at, each.until, each.records, each.size_bytes, each.rebuilt_batches) for each in done
    ]
    return Summary(columns, rows)


def plan(options: argparse.Namespace) -> list[MirrorWork]:
    """Return a task for each partition, after creating its topic at the target. Raises PipelineError, OptionError."""
    from ..kafka.cluster_view import ClusterView
    from ..kafka.fetching import FetchOptions
    from ..kafka.offset_options import EARLIEST, LATEST
    from ..sink.exact_copy import CopyTarget
    from ..sink.shallow_mirror import MirrorWork

    source = cluster_settings(options.source, options.source_config)
    target = cluster_settings(options.target, options.target_config)
    max_batch_bytes = _prepare_topics(options, source, target)
    with ClusterView(source) as cluster, ClusterView(target) as copies:
        topics = cluster.topics(max_batch_bytes)
        for name, copy in copies.topics(topics).items():
            if copy.partitions != topics[name].partitions:
                raise PipelineError(
                    f"topic {name} has {len(copy.partitions)} partitions at the target and "
                    f"{len(topics[name].partitions)} at the source: the records of a key would change their partition"
                )
        places = [(name, partition) for name, topic in sorted(topics.items()) for partition in topic.partitions]
        ends = cluster.list_offsets(dict.fromkeys(places, LATEST), read_committed=True)
        begins = cluster.list_offsets(dict.fromkeys(places, EARLIEST))
        purpose = f"mirror of {cluster.cluster_id}"
    group = f"pipeline.{options.name}"
    return [
        MirrorWork(
            source=FetchOptions(source, read_committed=True),
            topic_id=topics[place[0]].topic_id,
            earliest_offset=begins[place] or 0,
            end_offset=ends[place] or 0,
            target=CopyTarget(target, group, place, f"{purpose} {topics[place[0]].topic_id}"),
            max_batch_bytes=max_batch_bytes[place[0]],
            transaction_bytes=options.transaction_bytes,
            offsets_root=options.offsets_map and options.offsets_map.absolute(),
            fails_on_data_loss=options.fail_on_data_loss,
        )
        for place in places
    ]


def _prepare_topics(options: argparse.Namespace, source: WireSettings, target: WireSettings) -> dict[str, int]:
    """Create the missing topics with the source's settings; return max.message.bytes at the target by name."""
    from ...client import Admin
    from ...client.mirroring.topics import check_clusters_differ, matching_topics, prepare_topic
    from ..kafka.clients import bootstrap_of, client_config, run_client

    try:
        pattern = re.compile(options.topics)
    except re.error as fault:
        raise OptionError(f"--topics is not a regular expression: {fault}") from fault

    async def prepare() -> dict[str, int]:
        async with (
            Admin(bootstrap_of(source), **client_config(source)) as here,
            Admin(bootstrap_of(target), **client_config(target)) as there,
        ):
            await check_clusters_differ(here, there)
            sizes = {}
            for topic in await matching_topics(here, pattern):
                try:
                    sizes[topic.name] = await prepare_topic(here, there, topic)
                except BrokerError as fault:
                    # A request whose answer was lost has created the topic: only its configuration has to be read.
                    if fault.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                        raise
                    sizes[topic.name] = await prepare_topic(here, there, topic)
            return sizes

    sizes = run_client("preparing topics", prepare)
    if not sizes:
        raise PipelineError(f"no topic at {options.source} whose whole name matches {options.topics}")
    return sizes
