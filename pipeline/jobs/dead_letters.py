"""Count the dead letters of an archive by their reasons, or decode them once more with --retry.

After a schema was registered or given, --retry moves the dead letters that can be decoded now to the archive's rows;
the others stay, with the new reason. One entry of the archive's manifest does so, so that an interrupted run changes
nothing. To copy dead letters to a topic see `replay --dead-letters`.
"""

from __future__ import annotations

import argparse

from .archive_options import add_value_arguments, lock_of, value_format
from .desk import Desk, Summary

HELP = "count the values that an archive could not decode, or decode them again"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments for the archive and the schemas."""
    from ..filesystems.locations import location_argument

    parser.add_argument("--archive", type=location_argument, required=True, metavar="DIR", help="the archive's root")
    parser.add_argument("--topics", metavar="NAME,...", help="only these topics (default: all)")
    parser.add_argument("--retry", action="store_true", help="decode the dead letters once more")
    add_value_arguments(parser)


def run(options: argparse.Namespace, desk: Desk) -> Summary:
    """Count the dead letters, or decode them again."""
    from ..archive.archive import Archive
    from ..archive.dead_letters import count_by_reason, retry
    from ..errors import OptionError, PipelineError
    from ..options import names_of

    topics = names_of(options.topics or "")
    if not options.retry:
        if options.schema or options.schema_registry or options.registry_config:
            raise OptionError("schemas are for --retry")
        archive = Archive.open(options.archive.absolute(), desk)
        counts = count_by_reason(archive, topics)
        notes = () if counts else ("no dead letters",)
        return Summary(("TOPIC", "PARTITION", "REASON", "RECORDS"), counts, notes)
    with lock_of(options, desk) as lock:
        archive = Archive.open(options.archive.absolute(), desk)
        known = archive.description
        values = value_format(options, known.values, topics or {topic for topic, *_ in count_by_reason(archive)})
        if str(values.arrow_type()) != known.value_type:
            raise PipelineError(
                f"{options.archive}: the archive has values of type {known.value_type}, and these schemas make "
                f"{values.arrow_type()}: name the version of the archive by --subject NAME:VERSION"
            )
        archive = Archive.establish(options.archive.absolute(), known, values, desk, lock)
        done = retry(archive, values, desk, topics)
    notes = () if done else ("no dead letters",)
    return Summary(("TOPIC", "DECODED", "LEFT"), [(each.topic, each.rows, each.left) for each in done], notes)
