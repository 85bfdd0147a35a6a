"""Restore topics from an archive of batches: the same batches at the same offsets, in a Gregor broker.

The archive must have been made with --values batches. Topics are created with their former number of partitions; an
interrupted restore continues at the end of the log. Records of aborted transactions and transaction markers are not in
the archive: their offsets stay empty, as after compaction.
"""

from __future__ import annotations

import argparse

from ..errors import PipelineError
from ..spark_tasks import run_tasks
from .desk import Desk, Summary
from .out_of_archive import add_target_arguments, make_target_topics, target_settings

HELP = "copy an archive of batches to a broker, at the same offsets"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments for the archive and the target."""
    add_target_arguments(parser, "a Gregor broker")


def run(options: argparse.Namespace, desk: Desk) -> Summary:
    """Restore the batches that the topics lack."""
    from ..archive.archive import Archive
    from ..archive.description import Values
    from ..archive.reading import archived_partitions
    from ..archive.restoring import RestoreWork, restore
    from ..options import names_of

    settings = target_settings(options)
    archive = Archive.open(options.archive.absolute(), desk)
    if archive.description.values is not Values.BATCHES:
        raise PipelineError(
            f"an archive of {archive.description.values} values has no batches: use `gregor pipeline replay`"
        )
    partitions = archived_partitions(archive, names_of(options.topics or ""))
    make_target_topics(options, archive.manifest, partitions)
    work = [RestoreWork(each, options.prefix + each.topic, settings) for each in partitions]
    with desk.progress(len(work), "partitions") as progress:
        done = run_tasks(desk.session(), work, restore, progress)
    rows = [(*receipt.place, receipt.start_offset, receipt.end_offset, receipt.batches) for receipt in done]
    return Summary(("TOPIC", "PARTITION", "FROM", "UNTIL", "BATCHES-SENT"), rows)
