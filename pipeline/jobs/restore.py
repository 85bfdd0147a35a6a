"""Restore topics from an archive of batches: the same batches at the same offsets, in a Gregor broker.

The archive is one that was made with --values batches. Topics are made with as many partitions as they had; a restore
that was broken off goes on where the log ends. Records of aborted transactions and markers are not in the archive:
their offsets stay empty, as after compaction.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from ..errors import PipelineError
from ..spark_tasks import run_tasks
from ..wire import WireSettings
from .desk import Desk, Summary

HELP = "an archive of batches into a broker, at the same offsets"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """From where, to where."""
    parser.add_argument("--archive", type=Path, required=True, metavar="DIR", help="the archive's root")
    parser.add_argument("--topics", metavar="NAME,...", help="only these (default: all)")
    parser.add_argument("--bootstrap-server", required=True, metavar="HOST:PORT,...", help="a Gregor broker")
    parser.add_argument("--prefix", default="", help="put this before the names of topics")
    parser.add_argument(
        "--config",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting of topics that are made (default: retention.ms=-1)",
    )


def run(options: argparse.Namespace, desk: Desk) -> Summary:
    """Restore what is not there yet."""
    from ..archive.description import Values
    from ..archive.reading import archived_partitions, open_archive, partition_counts
    from ..archive.restoring import RestoreWork, restore
    from ..options import names_of
    from ..topic_making import make_topics

    description, manifest = open_archive(options.archive.absolute())
    if description.values is not Values.BATCHES:
        raise PipelineError(f"an archive of {description.values} values has no batches: `replay` is for it")
    settings = WireSettings.from_options({"kafka.bootstrap.servers": options.bootstrap_server})
    partitions = archived_partitions(description, manifest, names_of(options.topics or ""))
    counts = partition_counts(manifest)
    wanted = {options.prefix + each.topic: counts.get(each.topic, 1) for each in partitions}
    make_topics(settings, wanted, options.config)
    work = [RestoreWork(each, options.prefix + each.topic, settings) for each in partitions]
    with desk.progress(len(work), "partitions") as progress:
        done = run_tasks(desk.session(), work, restore, progress)
    rows = [(*receipt.place, receipt.start_offset, receipt.end_offset, receipt.batches) for receipt in done]
    return Summary(("TOPIC", "PARTITION", "FROM", "UNTIL", "BATCHES-SENT"), rows)
