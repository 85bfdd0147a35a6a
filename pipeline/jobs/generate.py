"""Generate a topic from a seed, with records by size, keys, skew, compressibility, format and codec, at any scale.

The same options give the same records in every run, and byte for byte the same segment files. With --log-dir the job
writes segment files that a broker can use (and that the format kafka_log reads); with --bootstrap-server it produces.
An interrupted job continues where it ended: records that a partition has are taken for the first generated ones. A
topic that the job creates keeps its records without limit (retention.ms=-1), as their timestamps are in 2020.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ...protocol.records.compression import Codec
from ..local_paths import path_argument
from ..logs.segment_files import segment_path, write_segment
from ..spark_tasks import run_tasks
from ..synthetic.synthetic import Recipe
from .cluster_options import add_config_argument, cluster_settings
from .desk import Desk, Summary

HELP = "generate topics, in a broker or as segment files"

SEGMENT_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class SegmentTask:
    """The work of one segment file: records `first_offset` to `end_offset` (exclusive) of a partition."""

    partition: int
    first_offset: int
    end_offset: int


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments for the target and the recipe."""
    parser.add_argument("--topic", required=True, help="name of the topic")
    target = parser.add_mutually_exclusive_group(required=True)
    target.add_argument("--log-dir", type=path_argument, metavar="DIR", help="write segment files to this directory")
    target.add_argument("--bootstrap-server", metavar="HOST:PORT,...", help="produce to these brokers instead")
    add_config_argument(parser)
    parser.add_argument("--segment-bytes", type=int, default=SEGMENT_BYTES, help="approximate size (default: 256 MiB)")
    made = parser.add_argument_group("records")
    made.add_argument("--records", type=int, default=100_000, help="number of all records (default: 100,000)")
    made.add_argument("--partitions", type=int, default=3)
    made.add_argument("--value-bytes", type=int, default=1000, help="size of a value (default: 1,000)")
    made.add_argument("--keys", type=int, default=0, help="number of different keys; 0: no keys (default)")
    made.add_argument(
        "--key-skew", type=float, default=0.0, help="0: all keys equally frequent; 1: Zipf's law (default: 0)"
    )
    made.add_argument("--repetitive", type=float, default=0.5, help="share of a value that compresses (default: 0.5)")
    made.add_argument("--format", type=int, choices=(0, 1, 2), default=2, dest="magic", help="message format version")
    made.add_argument("--codec", choices=[codec.name.lower() for codec in Codec], default="none")
    made.add_argument("--batch-records", type=int, default=500, help="records in a batch (default: 500)")
    made.add_argument("--seed", type=int, default=1, help="seed of the records (default: 1)")


def run(options: argparse.Namespace, desk: Desk) -> Summary:
    """Generate the records that do not exist yet."""
    recipe = _recipe(options)
    return _produce(recipe, options, desk) if options.bootstrap_server else _write_segments(recipe, options, desk)


def _produce(recipe: Recipe, options: argparse.Namespace, desk: Desk) -> Summary:
    from ..kafka.topic_making import make_topics
    from ..synthetic.synthetic_topics import PartitionWork, produce_partition

    settings = cluster_settings(options.bootstrap_server, options.command_config)
    make_topics(settings, {options.topic: recipe.partitions})
    work = [PartitionWork(recipe, settings, options.topic, partition) for partition in range(recipe.partitions)]
    with desk.progress(len(work), "partitions") as progress:
        made = run_tasks(desk.session(), work, produce_partition, progress)
    rows = [(options.topic, each.partition, each.found, each.records) for each in made]
    return Summary(("TOPIC", "PARTITION", "WERE-THERE", "RECORDS"), rows)


def _write_segments(recipe: Recipe, options: argparse.Namespace, desk: Desk) -> Summary:
    tasks = _segments(recipe, options.segment_bytes)
    missing = [
        task
        for task in tasks
        if not segment_path(options.log_dir, options.topic, task.partition, task.first_offset).exists()
    ]
    if len(missing) < len(tasks):
        desk.say(f"{len(tasks) - len(missing)} of {len(tasks)} segments are there already")
    if missing:
        session = desk.session()
        with desk.progress(len(missing), "segments") as progress:
            run_tasks(session, missing, partial(_write, recipe, options.log_dir.absolute(), options.topic), progress)
    rows = []
    for partition, records in enumerate(recipe.partition_records()):
        files = [
            segment_path(options.log_dir, options.topic, partition, task.first_offset)
            for task in tasks
            if task.partition == partition
        ]
        rows.append((options.topic, partition, records, len(files), sum(path.stat().st_size for path in files)))
    return Summary(("TOPIC", "PARTITION", "RECORDS", "SEGMENTS", "BYTES"), rows)


def _recipe(options: argparse.Namespace) -> Recipe:
    return Recipe(
        seed=options.seed,
        records=options.records,
        partitions=options.partitions,
        value_bytes=options.value_bytes,
        keys=options.keys,
        key_skew=options.key_skew,
        repetitive=options.repetitive,
        magic=options.magic,
        codec=Codec[options.codec.upper()],
        batch_records=options.batch_records,
    )


def _segments(recipe: Recipe, segment_bytes: int) -> list[SegmentTask]:
    """Divide the records into segments of complete batches, about `segment_bytes` each before compression."""
    batch_bytes = recipe.batch_records * (recipe.value_bytes + 64)
    records_each = max(1, segment_bytes // batch_bytes) * recipe.batch_records
    return [
        SegmentTask(partition, first, min(first + records_each, count))
        for partition, count in enumerate(recipe.partition_records())
        for first in range(0, count, records_each)
    ]


def _write(recipe: Recipe, log_dir: Path, topic: str, task: SegmentTask) -> int:
    path = segment_path(log_dir, topic, task.partition, task.first_offset)
    return write_segment(
        path, recipe.batches(task.partition, from_offset=task.first_offset, end_offset=task.end_offset)
    )
