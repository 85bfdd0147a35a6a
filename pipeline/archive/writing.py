"""The rounds of an archive: tasks read ranges of offsets and write their rows, which become valid all or none."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc

from ..columns.schemas import RECORDS
from ..errors import PipelineError
from ..filesystems.locations import Location
from ..spark_tasks import run_tasks
from ..statistics.checksums import MODULUS, sum_of_places
from .archive import Archive
from .description import ArchiveDescription, TableFormat, Values
from .field_folders import check_fields, column_name, field_column, field_type
from .manifest import DATA, DEAD_LETTERS
from .manifest_entry import ArchivedBatch, OffsetRange
from .part_files import PartFiles
from .range_rows import STORED_BATCHES, RowSource
from .value_formats import ValueFormat

FIRST_YEAR_US = -62_135_596_800_000_000
YEAR_10000_US = 253_402_300_800_000_000
"""The microseconds from the epoch to the years 1 and 10,000."""

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ..jobs.desk import Desk, Progress


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """The facts of topics in an archive, beside their records: ids, if brokers return them, and partition counts."""

    ids: Mapping[str, str]
    partition_counts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class RangeWork:
    """The work of one task: a range, and the folder where its rows are staged."""

    staging: Location
    number: int
    description: ArchiveDescription
    values: ValueFormat
    source: RowSource


@dataclass(frozen=True, slots=True)
class RangeReceipt:
    """The rows and files that a task has written. `rows` are batches in an archive of batches.

    `size_bytes` are those of keys and values of all records, dead letters included, or of the batches.
    """

    covers: OffsetRange
    files: Sequence[str]
    dead_letter_files: Sequence[str]
    rows: int
    dead_letters: int
    checksum: int
    size_bytes: int = 0


@dataclass(slots=True)
class Share:
    """A round's part of a whole job's progress: `amount` after `before`, in the units of that progress."""

    progress: Progress
    before: int
    amount: int
    tasks: int = 1

    def advance(self, done: int) -> None:
        """Report the number of finished tasks of the round."""
        self.progress.advance(self.before + self.amount * done // self.tasks)


class ArchiveWriter:
    """A writer of rounds to an archive; its user holds the archive's WriterLock."""

    def __init__(self, archive: Archive, values: ValueFormat) -> None:
        self.archive = archive
        self.manifest = archive.manifest
        self._values = values

    def follow_schema(self) -> bool:
        """Decode values by the latest version of the registry's subject, and change the table for it.

        Returns whether there was another version. Raises PipelineError, RegistryError, OSError.
        """
        values = self._values.newest()
        if values is self._values:
            return False
        check_fields(self.archive.description.fields, values.arrow_type())
        self.archive = self.archive.evolved(values)
        self._values = values
        return True

    def write_round(
        self,
        session: SparkSession,
        sources: Sequence[RowSource],
        facts: TopicFacts,
        progress: Progress,
        *,
        confirm: Callable[[], None] = lambda: None,
    ) -> list[RangeReceipt]:
        """Archive these ranges as the next batch; return the receipt of each. Raises PipelineError, OSError.

        `confirm` is called after all ranges are read, and raises if they must not be committed.
        """
        manifest, description = self.manifest, self.archive.description
        work = [
            RangeWork(manifest.staging, manifest.next_number, description, self._values, source) for source in sources
        ]
        receipts = run_tasks(session, work, archive_range, progress)
        confirm()
        topics = {source.covers.topic for source in sources}
        self.archive.commit(
            ArchivedBatch(
                number=manifest.next_number,
                ranges=joined(receipt.covers for receipt in receipts),
                files=[name for receipt in receipts for name in (*receipt.files, *receipt.dead_letter_files)],
                rows=sum(receipt.rows for receipt in receipts),
                dead_letters=sum(receipt.dead_letters for receipt in receipts),
                checksum=sum(receipt.checksum for receipt in receipts) % MODULUS,
                topic_ids={topic: facts.ids[topic] for topic in sorted(topics & set(facts.ids))},
                partition_counts={topic: facts.partition_counts[topic] for topic in sorted(topics)},
            )
        )
        return receipts


def row_schema(description: ArchiveDescription, values: ValueFormat) -> pa.Schema:
    """Return the columns of an archive's files.

    The topic and the fields of their folders are in their path, and for Iceberg also in columns.
    """
    if description.values is Values.BATCHES:
        return STORED_BATCHES
    value_type = values.arrow_type()
    fields = [field.with_type(value_type) if field.name == "value" else field for field in _record_fields(description)]
    if description.table_format is TableFormat.ICEBERG:
        fields += [pa.field(column_name(name), field_type(value_type, name)) for name in description.fields]
    return pa.schema(fields)


def dead_letter_schema(description: ArchiveDescription) -> pa.Schema:
    """Return the columns of an archive's dead letters; for the topic see `row_schema`."""
    return pa.schema([*_record_fields(description), ("reason", pa.string())])


def archive_range(work: RangeWork) -> RangeReceipt:
    """Write one range, in a task. Raises PipelineError, OSError."""
    covers = work.source.covers
    schema = row_schema(work.description, work.values)
    files = PartFiles(
        work.staging,
        DATA,
        covers.topic,
        work.number,
        schema,
        work.description.period,
        work.description.fields,
    )
    letter_schema = dead_letter_schema(work.description)
    letters = PartFiles(work.staging, DEAD_LETTERS, covers.topic, work.number, letter_schema, None)
    rows = dead_letters = checksum = size_bytes = 0
    if work.description.values is Values.BATCHES:
        for batch in work.source.batches():
            files.add(batch)
            rows += batch.num_rows
            size_bytes += bytes_of(batch["raw"])
            checksum += sum_of_places(covers.topic, covers.partition, batch["lastOffset"], [batch["raw"]])
    else:
        decoder = work.values.decoder()
        for batch in work.source.records():
            if work.description.table_format is TableFormat.ICEBERG:
                check_years(batch, covers)
            decoded, reasons = decoder.decode(batch["value"])
            size_bytes += bytes_of(batch["key"]) + bytes_of(batch["value"])
            table_rows = with_values(batch, decoded, schema, work.description.fields)
            if reasons:
                letters.add(dead_letters_of(batch, reasons, letter_schema))
                is_good = pa.array([index not in reasons for index in range(batch.num_rows)])
                table_rows, batch = table_rows.filter(is_good), batch.filter(is_good)
            files.add(table_rows)
            rows += table_rows.num_rows
            dead_letters += len(reasons)
            checksum += sum_of_places(covers.topic, covers.partition, batch["offset"], [batch["key"], batch["value"]])
    return RangeReceipt(covers, files.close(), letters.close(), rows, dead_letters, checksum % MODULUS, size_bytes)


def check_years(rows: pa.RecordBatch, covers: OffsetRange) -> None:
    """Raise PipelineError for a record whose time PyIceberg cannot have: it writes times as dates of Python."""
    micros = rows["timestamp"].view(pa.int64())
    is_outside = pc.or_(pc.less(micros, FIRST_YEAR_US), pc.greater_equal(micros, YEAR_10000_US))
    if pc.any(is_outside).as_py():
        offset = rows["offset"].filter(is_outside)[0].as_py()
        raise PipelineError(
            f"{covers.topic}-{covers.partition} offset {offset}: a timestamp outside of the years 1 to 9999, which "
            "tables of Iceberg do not have: archive this topic with another --format"
        )


def tell_written(desk: Desk, receipts: Iterable[RangeReceipt]) -> None:
    """Add the receipts of a round to the metrics of a job."""
    for each in receipts:
        place = each.covers.topic, each.covers.partition
        desk.metrics.done(*place, records=each.rows, size_bytes=each.size_bytes, dead_letters=each.dead_letters)


def bytes_of(column: pa.Array) -> int:
    """Return the bytes of a column of bytes, without those of its offsets."""
    return pc.sum(pc.binary_length(column)).as_py() or 0


def joined(ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
    """Return the same offsets in as few ranges as possible."""
    found: list[OffsetRange] = []
    for covered in sorted(ranges):
        last = found[-1] if found else None
        if last and (last.topic, last.partition, last.until_offset) == (
            covered.topic,
            covered.partition,
            covered.from_offset,
        ):
            found[-1] = OffsetRange(last.topic, last.partition, last.from_offset, covered.until_offset)
        else:
            found.append(covered)
    return found


def known_ids(ids: Mapping[str, UUID | None]) -> dict[str, str]:
    """Return topic ids as text, without those that brokers do not return."""
    return {name: str(topic_id) for name, topic_id in ids.items() if topic_id is not None and topic_id.int}


def _record_fields(description: ArchiveDescription) -> list[pa.Field]:
    has_topic = description.table_format is TableFormat.ICEBERG
    return [field for field in RECORDS if has_topic or field.name != "topic"]


def with_values(
    batch: pa.RecordBatch, values: pa.Array, schema: pa.Schema, fields: Sequence[str] = ()
) -> pa.RecordBatch:
    """Return rows of the schema with other values, and with the columns of these fields where the schema has them."""
    by_name = {"value": values} | {column_name(field): field_column(values, field) for field in fields}
    columns = [by_name[name] if name in by_name else batch[name] for name in schema.names]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def dead_letters_of(batch: pa.RecordBatch, reasons: Mapping[int, str], schema: pa.Schema) -> pa.RecordBatch:
    """Return the rows with these indexes as dead letters."""
    chosen = batch.take(pa.array(list(reasons), pa.int64()))
    columns = [
        pa.array(list(reasons.values()), pa.string()) if field.name == "reason" else chosen[field.name]
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
