"""Audit topics in brokers, log directories or archives for gaps, duplicates, skew and time order, and compare them.

A log is audited by its batch headers. MARKERS are offsets of control batches; COMPACTED are offsets that compaction has
removed from batches (in a compacted topic also between batches); MISSING are all other absent offsets. DUPLICATES are
batches with a producer and sequence number that occurred before, TIMES-BACK are batches older than the batch before.
SKEW is the partition's share of records, where 1 is an even share. --contents also reads the records and counts EQUAL
ones; --against compares the records with another place. Of an archive every row is read and checked against the
checksums in the manifest.

The exit code is 1 if any record is missing, doubled or different.
"""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...protocol.topic_partition import AnyTopicPartition
from ..errors import OptionError
from ..filesystems.locations import location_argument
from ..local_paths import directory_argument
from ..spark_tasks import parallel_tasks, run_tasks
from .cluster_options import add_config_argument, cluster_settings
from .desk import Desk, Summary
from .passes import make_pass
from .sources import add_source_arguments, broker_options

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    import pyarrow as pa

    from ..logs.log_audit import LogAudit
    from ..statistics.record_contents import Contents, PartContents, Records

HELP = "find gaps, duplicates, skew and wrong time order; compare two places"


@dataclass(slots=True)
class Finding:
    """The findings of one partition; None is unknown."""

    from_offset: int | None = None
    until_offset: int | None = None
    records: int | None = None
    markers: int | None = None
    compacted: int | None = None
    missing: int = 0
    duplicates: int = 0
    times_back: int | None = None
    equal_records: int | None = None
    verdict: str = ""
    notes: list[str] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        """Whether the partition has no fault."""
        return not (self.missing or self.duplicates or self.verdict.startswith("DIFFERS"))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments for the audited place and the place to compare it with."""
    add_source_arguments(parser)
    parser.add_argument("--archive", type=location_argument, metavar="DIR", help="audit this archive instead")
    parser.add_argument("--contents", action="store_true", help="also read records, and count equal ones")
    add_config_argument(parser, "--against-command-config", "of --against-bootstrap-server")
    against = parser.add_mutually_exclusive_group()
    against.add_argument("--against-bootstrap-server", metavar="HOST:PORT,...", help="compare with these brokers")
    against.add_argument(
        "--against-log-dir",
        action="append",
        type=directory_argument,
        metavar="DIR",
        help="compare with this log directory",
    )
    against.add_argument("--against-archive", type=location_argument, metavar="DIR", help="compare with this archive")
    parser.add_argument("--compacted", default="", metavar="NAME,...", help="compacted topics of the log directories")


def run(options: argparse.Namespace, desk: Desk) -> Summary:
    """Audit the partitions, and compare them."""
    is_compared = bool(options.against_bootstrap_server or options.against_log_dir or options.against_archive)
    reads_records = bool(options.archive or options.contents or is_compared)
    # Before any work: an archive in Delta Lake determines the settings of Spark's start.
    ours = _records(options, desk) if reads_records else {}
    theirs = _records(_against(options), desk, only={topic for topic, _ in ours}) if is_compared else {}
    contents = _read_contents(ours, desk) if reads_records else {}
    if options.archive:
        if options.log_dir or options.bootstrap_server:
            raise OptionError("say where to look: --archive, --log-dir or --bootstrap-server")
        findings = _archive_findings(options, desk, contents)
    else:
        findings = _log_findings(options, desk)
    for place, found in contents.items():
        findings.setdefault(place, Finding()).equal_records = found.equal_records
    if is_compared:
        _compare(findings, contents, _read_contents(theirs, desk))
    return _summary(findings)


def _log_findings(options: argparse.Namespace, desk: Desk) -> dict[AnyTopicPartition, Finding]:
    audits = make_pass(options, desk, _audit_log, in_order=True, mode="batches")
    compacted = _compacted_topics(options, {topic for topic, _ in audits})
    findings = {}
    for place, audit in audits.items():
        between = audit.holes_between_batches
        is_compacted = place[0] in compacted
        findings[place] = Finding(
            from_offset=audit.first_offset or 0,
            until_offset=audit.next_offset,
            records=audit.records,
            markers=audit.markers,
            compacted=audit.holes_in_batches + (between if is_compacted else 0),
            missing=0 if is_compacted else between,
            duplicates=audit.duplicates,
            times_back=audit.times_back,
            notes=[] if is_compacted and not audit.duplicates else audit.examples,
        )
    return findings


def _audit_log(rows: Iterable[pa.RecordBatch]) -> LogAudit:
    from ..logs.log_audit import LogAudit

    return LogAudit.of(rows)


def _archive_findings(
    options: argparse.Namespace, desk: Desk, contents: dict[AnyTopicPartition, Contents]
) -> dict[AnyTopicPartition, Finding]:
    from ..archive.archive import Archive
    from ..archive.reading import archived_partitions
    from ..options import names_of
    from ..statistics.checksums import MODULUS

    archive = Archive.open(options.archive.absolute(), desk)
    findings = {}
    for each in archived_partitions(archive, names_of(options.topics or "")):
        place = (each.topic, each.partition)
        holes = [(end, start) for (_, end), (start, _) in zip(each.spans, each.spans[1:], strict=False)]
        findings[place] = Finding(
            from_offset=each.spans[0][0],
            until_offset=each.until_offset,
            records=contents[place].records,
            missing=sum(until - start for start, until in holes),
            notes=[f"offsets {start} to {until - 1} were not archived" for start, until in holes],
        )
    if not options.topics:
        noted = archive.manifest.state.checksum % MODULUS
        found = sum(each.placed_sum for each in contents.values()) % MODULUS
        for finding in findings.values():
            finding.verdict = "as noted" if noted == found else "DIFFERS from the manifest's checksum"
    return findings


def _compare(
    findings: dict[AnyTopicPartition, Finding],
    ours: dict[AnyTopicPartition, Contents],
    theirs: dict[AnyTopicPartition, Contents],
) -> None:
    for place in sorted(set(ours) | set(theirs)):
        finding = findings.setdefault(place, Finding())
        here, there = ours.get(place), theirs.get(place)
        if here is None or there is None:
            records = (here or there).records  # type: ignore[union-attr]
            side = "here" if there is None else "there"
            finding.verdict = f"DIFFERS: {records} records {side} only" if records else "the same"
        elif here.records != there.records:
            finding.verdict = f"DIFFERS: {here.records} records here, {there.records} there"
        elif here.content_sum != there.content_sum:
            finding.verdict = "DIFFERS: other contents"
        else:
            finding.verdict = "the same" if here.placed_sum == there.placed_sum else "the same at other offsets"


def _summary(findings: dict[AnyTopicPartition, Finding]) -> Summary:
    totals: dict[str, list[int]] = {}
    for (topic, _), finding in findings.items():
        totals.setdefault(topic, []).append(finding.records or 0)
    rows: list[tuple[object, ...]] = []
    notes: list[str] = []
    for (topic, partition), finding in sorted(findings.items()):
        counts = totals[topic]
        skew = round((finding.records or 0) * len(counts) / sum(counts), 2) if sum(counts) else None
        rows.append(
            (
                topic,
                partition,
                finding.from_offset,
                finding.until_offset,
                finding.records,
                finding.markers,
                finding.compacted,
                finding.missing,
                finding.duplicates,
                finding.times_back,
                skew,
                finding.equal_records,
                finding.verdict,
            )
        )
        notes += [f"{topic}-{partition}: {note}" for note in finding.notes]
    return Summary(COLUMNS, rows, notes, is_clean=all(finding.is_clean for finding in findings.values()))


COLUMNS = (
    "TOPIC",
    "PARTITION",
    "FROM",
    "UNTIL",
    "RECORDS",
    "MARKERS",
    "COMPACTED",
    "MISSING",
    "DUPLICATES",
    "TIMES-BACK",
    "SKEW",
    "EQUAL",
    "COMPARED",
)


# --- the readers of records ---


def _against(options: argparse.Namespace) -> argparse.Namespace:
    return argparse.Namespace(
        bootstrap_server=options.against_bootstrap_server,
        command_config=options.against_command_config,
        log_dir=options.against_log_dir,
        archive=options.against_archive,
        topics=None,
        option=[],
    )


def _records(
    options: argparse.Namespace, desk: Desk, *, only: Collection[str] | None = None
) -> dict[AnyTopicPartition, list[Records]]:
    """Return the readers of each partition's records; with `only`, of these topics if they exist.

    Raises PipelineError, also for a topic that `options` names and that does not exist.
    """
    found = _all_records(options, desk, only)
    return found if only is None else {place: records for place, records in found.items() if place[0] in only}


def _all_records(
    options: argparse.Namespace, desk: Desk, only: Collection[str] | None
) -> dict[AnyTopicPartition, list[Records]]:
    from ..archive.archive import Archive
    from ..archive.description import Values
    from ..archive.reading import archived_partitions
    from ..kafka.kafka_raw import KNOWN_OPTIONS
    from ..kafka.read_plan import ReadPlan
    from ..options import SourceOptions, names_of
    from ..statistics.record_contents import archived_records, fetched_records, logged_records

    if options.archive:
        archive = Archive.open(options.archive.absolute(), desk)
        description = archive.description
        if description.values is Values.BATCHES or description.value_type not in ("binary", "string"):
            raise OptionError(f"{options.archive}: only archives of raw, string or JSON values can be compared")
        return archived_records(archived_partitions(archive, names_of(options.topics or "")))
    if options.log_dir:
        return logged_records(options.log_dir, names_of(options.topics or ""))
    chosen = broker_options(options)
    if only is not None:
        chosen["subscribePattern"] = f"^({'|'.join(map(re.escape, sorted(only)))})$"
    return fetched_records(ReadPlan(SourceOptions(chosen, KNOWN_OPTIONS)))


def _read_contents(sources: dict[AnyTopicPartition, list[Records]], desk: Desk) -> dict[AnyTopicPartition, Contents]:
    from ..statistics.record_contents import in_pieces, joined_contents, part_contents

    session = desk.session()
    work = in_pieces(sources, parallel_tasks(session))
    with desk.progress(len(work), "ranges") as progress:
        done = run_tasks(session, work, part_contents, progress)
    parts: dict[AnyTopicPartition, list[PartContents]] = {}
    for (place, _), part in zip(work, done, strict=True):
        parts.setdefault(place, []).append(part)
    return {place: joined_contents(found) for place, found in parts.items()}


def _compacted_topics(options: argparse.Namespace, topics: set[str]) -> set[str]:
    """Return the topics whose gaps are due to compaction: by their brokers' configuration, or by --compacted for log
    directories.
    """
    from ...client import Admin
    from ...client.admin import ResourceType
    from ..kafka.clients import bootstrap_of, client_config, run_client
    from ..options import names_of

    if not options.bootstrap_server:
        return set(names_of(options.compacted))
    settings = cluster_settings(options.bootstrap_server, options.command_config)

    async def ask() -> set[str]:
        found = set()
        async with Admin(bootstrap_of(settings), **client_config(settings)) as admin:
            for topic in topics:
                (entry,) = await admin.describe_configs(ResourceType.TOPIC, topic, ["cleanup.policy"])
                if "compact" in (entry.value or ""):
                    found.add(topic)
        return found

    return run_client("asking for cleanup.policy", ask)
