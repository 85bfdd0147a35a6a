"""The common options of archive and backfill, and the writer they describe."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...protocol.topic_partition import AnyTopicPartition
from ..archive.description import ArchiveDescription, Period, TableFormat, Values
from ..archive.writer_lock import ArchiveLock, lock_for
from ..errors import OptionError
from ..filesystems.locations import location_argument
from .desk import Desk, Summary

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from ..archive.archive import Archive
    from ..archive.value_formats import ValueFormat
    from ..archive.writing import ArchiveWriter, RangeReceipt

MIB = 1 << 20


def add_archive_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments for the archive and its contents."""
    made = parser.add_argument_group("archive")
    made.add_argument("--archive", type=location_argument, required=True, metavar="DIR", help="the archive's root")
    made.add_argument(
        "--format",
        type=TableFormat,
        choices=list(TableFormat),
        help="tables of Delta Lake with gregor-broker[delta] or of Iceberg with gregor-broker[iceberg], or plain "
        "Parquet files (default: the format of the archive; for a new one delta, and parquet with --values batches)",
    )
    made.add_argument(
        "--table",
        metavar="CATALOG.DB.NAME",
        help="the name of the rows' table in a catalog of Spark, or for Iceberg of PyIceberg; with _dead_letters it is "
        "that of the dead letters' table (default: tables below the archive's root)",
    )
    made.add_argument(
        "--values",
        type=Values,
        choices=list(Values),
        help="how values are stored; batches archives stored batches instead of records, for `restore` "
        "(default: as the archive has it, raw for a new one)",
    )
    add_value_arguments(made)
    made.add_argument(
        "--by", type=Period, choices=list(Period), help="a folder for each date (default) or hour of the records"
    )
    made.add_argument(
        "--by-field",
        action="append",
        default=[],
        metavar="FIELD",
        help="also a folder for each value of this field of the schema, such as address.country (repeatable)",
    )
    made.add_argument(
        "--max-bytes", type=int, default=512 * MIB, help="approximate size of one round (default: 512 MiB)"
    )
    made.add_argument(
        "--compact",
        action="store_true",
        help="merge small files, and forget old versions of tables: at the end, and with --follow after each 500 new "
        "files",
    )
    made.add_argument(
        "--keep-versions",
        type=float,
        default=168.0,
        metavar="HOURS",
        help="with --compact: how long readers of a table find its earlier versions (default: 168, a week)",
    )


def add_value_arguments(parser: argparse.ArgumentParser | argparse._ArgumentGroup) -> None:
    """Add the arguments for the schemas of values."""
    parser.add_argument(
        "--schema",
        action="append",
        default=[],
        metavar="[ID=]FILE",
        help="an Avro schema, also for JSON; with the writer's id (repeatable; the last one is the table's)",
    )
    parser.add_argument("--schema-registry", metavar="URL,...", help="take the schemas by the ids in values from here")
    parser.add_argument(
        "--registry-config", metavar="FILE", help="properties file for the registry: basic.auth.user.info, ssl.* ..."
    )
    parser.add_argument(
        "--subject",
        metavar="NAME[:VERSION]",
        help="the registered schema that makes the columns (default: the latest version of TOPIC-value)",
    )
    parser.add_argument(
        "--message", metavar="NAME", help="the Protobuf message (default: the first one of the subject)"
    )


def open_writer(options: argparse.Namespace, cluster_id: str | None, desk: Desk, lock: ArchiveLock) -> ArchiveWriter:
    """Open the archive for writing, without the files of an ended run. The caller holds `lock`.

    Raises PipelineError.
    """
    from ..archive.archive import Archive
    from ..archive.field_folders import check_fields
    from ..archive.writing import ArchiveWriter

    root = options.archive.absolute()
    known = ArchiveDescription.read(root)
    kind = options.values or (known.values if known else Values.RAW)
    period = options.by or (known.period if known else Period.DATE)
    new_format = TableFormat.PARQUET if kind is Values.BATCHES else TableFormat.DELTA
    table_format = options.format or (known.table_format if known else new_format)
    table = options.table or (known.table if known else None)
    if table and not table_format.is_table:
        raise OptionError(f"--table {table} needs a format of tables: --format delta")
    if table_format is TableFormat.ICEBERG and kind is Values.BATCHES:
        raise OptionError("stored batches are archived in Parquet files or Delta Lake, not in Iceberg")
    values = value_format(options, kind)
    value_type = values.arrow_type()
    fields = tuple(options.by_field) or (known.fields if known else ())
    check_fields(fields, value_type)
    description = ArchiveDescription(cluster_id, kind, period, str(value_type), table_format, table, fields)
    archive = Archive.establish(root, description, values, desk, lock)
    removed = archive.sweep()
    if removed:
        desk.say(f"removed {len(removed)} files that a run which ended early has left")
    return ArchiveWriter(archive, values)


def value_format(options: argparse.Namespace, kind: Values, topics: Collection[str] | None = None) -> ValueFormat:
    """Return the format of values in the options; `topics` are those of the job, if not those of the options.

    Raises OptionError, RegistryError.
    """
    from ..archive.value_formats import RegisteredValues, ValueFormat
    from ..options import names_of
    from ..values.registry_settings import RegistrySettings

    if options.schema_registry is None and options.registry_config is None:
        if options.subject or options.message:
            raise OptionError("--subject and --message need --schema-registry")
        return ValueFormat.from_options(kind, options.schema)
    if options.schema:
        raise OptionError("give --schema or --schema-registry, not both")
    settings = RegistrySettings.from_file(options.schema_registry, options.registry_config)
    found = names_of(options.topics or "") if topics is None else list(topics)
    subject = options.subject or (f"{found[0]}-value" if len(found) == 1 else None)
    if subject is None:
        raise OptionError("--schema-registry needs --subject, unless --topics names one topic")
    return ValueFormat.from_registry(kind, RegisteredValues.of_subject(settings, subject, options.message))


def lock_of(options: argparse.Namespace, desk: Desk) -> ArchiveLock:
    """Return the archive's lock."""
    return lock_for(options.archive.absolute(), desk.say)


@dataclass(slots=True)
class Tally:
    """The result of a run, by topic and partition: first offset, offset after the last, rows, dead letters."""

    by_place: dict[AnyTopicPartition, tuple[int, int, int, int]] = field(default_factory=dict)
    files_since_compaction: int = 0
    size_bytes: int = 0

    def add(self, done: Iterable[RangeReceipt]) -> None:
        """Add the receipts of a wave."""
        for receipt in done:
            covers = receipt.covers
            found = (covers.from_offset, covers.until_offset, receipt.rows, receipt.dead_letters)
            first, until, rows, letters = self.by_place.get((covers.topic, covers.partition), (*found[:2], 0, 0))
            self.by_place[covers.topic, covers.partition] = (
                min(first, found[0]),
                max(until, found[1]),
                rows + receipt.rows,
                letters + receipt.dead_letters,
            )
            self.size_bytes += receipt.size_bytes
            self.files_since_compaction += len(receipt.files) + len(receipt.dead_letter_files)


def compact(options: argparse.Namespace, desk: Desk, archive: Archive, done: Tally) -> str:
    """Merge small files and remove their sources; return a line for the user. Raises PipelineError, OSError."""
    merged, files = archive.compact(desk, options.keep_versions)
    archive.sweep()
    done.files_since_compaction = 0
    return f"{merged} files became {files}" if merged else "no small files to compact"


def finish(options: argparse.Namespace, desk: Desk, archive: Archive, done: Tally) -> Summary:
    """Compact if requested, remove files of failed tasks, and return the summary."""
    notes = []
    if options.compact:
        notes.append(compact(options, desk, archive, done))
    else:
        archive.sweep()
    if not done.by_place:
        notes.append("nothing new: everything is archived")
    rows = [(*place, *counts) for place, counts in sorted(done.by_place.items())]
    totals = {
        "records": sum(written for _, _, written, _ in done.by_place.values()),
        "dead_letters": sum(letters for _, _, _, letters in done.by_place.values()),
        "bytes": done.size_bytes,
    }
    return Summary(COLUMNS, rows, notes, totals=totals)


COLUMNS = ("TOPIC", "PARTITION", "FROM", "UNTIL", "ROWS", "DEAD-LETTERS")
