"""The dead letters of an archive: their numbers by reason, their copies to topics, and their decoding once more.

Dead letters that can be decoded later (a schema was registered, a decoder was mended) become rows of the archive by one
entry of its manifest, which replaces their files: each record is a row or a dead letter at any moment.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from ..columns.schemas import HEADERS
from ..filesystems.files import parquet_source
from ..filesystems.locations import Location, name_below
from ..spark_tasks import run_tasks
from ..statistics.checksums import MODULUS, sum_of_places
from .archive import Archive
from .description import ArchiveDescription
from .manifest import DATA, DEAD_LETTERS
from .manifest_entry import ArchivedBatch
from .part_files import PartFiles
from .reading import ArchivedPartition
from .value_formats import ValueFormat
from .writing import dead_letter_schema, dead_letters_of, row_schema, with_values

if TYPE_CHECKING:
    from ..jobs.desk import Desk

LONGEST_SHOWN = 80
"""The length of a reason in a table of results."""


@dataclass(frozen=True, slots=True)
class RetryWork:
    """The work of one task: the files of dead letters of one topic."""

    staging: Location
    number: int
    topic: str
    files: Sequence[Location]
    description: ArchiveDescription
    values: ValueFormat


@dataclass(frozen=True, slots=True)
class RetryReceipt:
    """The result of one task: the rows that were decoded, the dead letters that are left, and the files of both."""

    topic: str
    files: Sequence[str]
    rows: int
    left: int
    checksum: int


def count_by_reason(archive: Archive, topics: Sequence[str] = ()) -> list[tuple[str, int, str, int]]:
    """Return topic, partition, reason and the number of dead letters. Raises PipelineError, OSError."""
    counts: Counter[tuple[str, int, str]] = Counter()
    for path, topic in archive.table.files(DEAD_LETTERS):
        if topics and topic not in topics:
            continue
        columns = parquet.ParquetFile(parquet_source(path)).read(["partition", "reason"])
        pairs = zip(columns["partition"].to_pylist(), columns["reason"].to_pylist(), strict=True)
        counts.update((topic, partition, reason[:LONGEST_SHOWN]) for partition, reason in pairs)
    return [(*key, count) for key, count in sorted(counts.items())]


def letters_with_places(source: ArchivedPartition, from_offset: int) -> Iterator[tuple[pa.Table, int]]:
    """Yield dead letters as `ArchivedPartition.rows` does, with topic, partition, offset and reason as headers.

    Source of the names: `org.apache.kafka.connect.runtime.errors.DeadLetterQueueReporter`.
    """
    for rows, next_offset in source.rows(from_offset):
        if not rows.num_rows:
            yield rows, next_offset
            continue
        told = [
            [
                *(given or ()),
                {"key": "__connect.errors.topic", "value": source.topic.encode()},
                {"key": "__connect.errors.partition", "value": b"%d" % source.partition},
                {"key": "__connect.errors.offset", "value": b"%d" % offset},
                {"key": "__connect.errors.exception.message", "value": (reason or "").encode()},
            ]
            for given, offset, reason in zip(
                rows["headers"].to_pylist(), rows["offset"].to_pylist(), rows["reason"].to_pylist(), strict=True
            )
        ]
        at = rows.schema.get_field_index("headers")
        yield rows.set_column(at, "headers", pa.array(told, HEADERS)).drop_columns("reason"), next_offset


def retry(archive: Archive, values: ValueFormat, desk: Desk, topics: Sequence[str] = ()) -> list[RetryReceipt]:
    """Decode the dead letters once more; return the receipt of each topic. Raises PipelineError, OSError.

    The caller holds the archive's lock.
    """
    manifest = archive.manifest
    is_table = archive.description.table_format.is_table
    by_topic: dict[str, list[Location]] = {}
    for path, topic in archive.table.files(DEAD_LETTERS):
        if not topics or topic in topics:
            by_topic.setdefault(topic, []).append(path)
    work = [
        RetryWork(manifest.staging, manifest.next_number, topic, files, archive.description, values)
        for topic, files in sorted(by_topic.items())
    ]
    with desk.progress(len(work), "topics") as progress:
        done = run_tasks(desk.session(), work, retry_topic, progress)
    better = [(each, receipt) for each, receipt in zip(work, done, strict=True) if receipt.rows]
    if better:
        archive.commit(
            ArchivedBatch(
                number=manifest.next_number,
                ranges=(),
                files=[name for _, receipt in better for name in receipt.files],
                rows=sum(receipt.rows for _, receipt in better),
                dead_letters=-sum(receipt.rows for _, receipt in better),
                checksum=sum(receipt.checksum for _, receipt in better) % MODULUS,
                topic_ids={},
                replaces=[]
                if is_table
                else [name_below(path, archive.root) for each, _ in better for path in each.files],
                retried=[each.topic for each, _ in better] if is_table else [],
            )
        )
    archive.sweep()
    return done


def retry_topic(work: RetryWork) -> RetryReceipt:
    """Decode the dead letters of one topic, in a task. Raises PipelineError, OSError."""
    schema = row_schema(work.description, work.values)
    description = work.description
    files = PartFiles(work.staging, DATA, work.topic, work.number, schema, description.period, description.fields)
    letter_schema = dead_letter_schema(description)
    letters = PartFiles(work.staging, DEAD_LETTERS, work.topic, work.number, letter_schema, None)
    decoder = work.values.decoder()
    rows = left = checksum = 0
    for batch in _batches(work, letter_schema):
        decoded, reasons = decoder.decode(batch["value"])
        is_good = pa.array([index not in reasons for index in range(batch.num_rows)])
        if reasons:
            letters.add(dead_letters_of(batch, reasons, letter_schema))
        good = batch.filter(is_good)
        files.add(with_values(batch, decoded, schema, description.fields).filter(is_good))
        rows += good.num_rows
        left += len(reasons)
        for partition in sorted(set(good["partition"].to_pylist())):
            of_partition = good.filter(pc.equal(good["partition"], partition))
            places = of_partition["offset"], [of_partition["key"], of_partition["value"]]
            checksum += sum_of_places(work.topic, partition, *places)
    return RetryReceipt(work.topic, [*files.close(), *letters.close()], rows, left, checksum % MODULUS)


def _batches(work: RetryWork, schema: pa.Schema) -> Iterable[pa.RecordBatch]:
    """Yield the dead letters with the columns and types of the archive, as Spark may have rewritten the files."""
    for path in work.files:
        for batch in parquet.ParquetFile(parquet_source(path), page_checksum_verification=True).iter_batches():
            columns = [batch[field.name].cast(field.type, safe=False) for field in schema]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)
