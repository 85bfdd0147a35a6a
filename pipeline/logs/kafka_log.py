"""The format `kafka_log`: tables directly from log directories, without a broker.

    spark.read.format("kafka_log").option("topic", "clicks").load("/var/lib/kafka")

Options beside those of `offset_options`:

    path                one or more log directories, or directories of single partitions, with commas between them
    assign              partitions by topic, as JSON: {"clicks": [0, 1]}
    topic               names or globs with commas between them; all topics by default
    mode                records (default), batches, raw or ranges: see `schemas`
    splitBytes          about how much one task reads (128 MiB)
    batchRows           rows of an Arrow batch at most, where batches are not larger (10,000)
    checkCrc            whether CRCs are checked (true; in mode=batches false, where nothing else reads the records)
    values              false leaves out key, value and headers; includeHeaders=false the headers alone
    uncompressedSize    true has mode=batches inflate each batch to tell how large it was
    kafka.isolation.level  read_committed leaves out what is not committed, after a look at all headers
    failOnDataLoss      whether starting offsets that retention has removed are an error (true)
    pushdown            true leaves out, by the index, what the query's filters on topic, partition, offset and
                        timestamp do not want; only for a DataFrame that is used with one set of filters

`pushdown` is off by default because Spark 4.2.0 keeps the plan of a filtered query of a DataFrame, and reads only its
partitions in the next query of the same DataFrame without the filter. Offsets, times and partitions in options are
safe.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from ...protocol.topic_partition import AnyTopicPartition
from ..columns.filters import Pruning, pruning_of
from ..columns.listed_ranges import ListedRanges
from ..columns.read_options import ReadOptions
from ..columns.schemas import Mode
from ..errors import OptionError
from ..kafka.offset_options import OFFSET_OPTIONS, ending_bounds, starting_bounds, strategy
from ..options import SourceOptions, names_of, parse_assign
from ..worker_process import prepare_worker
from .log_files import list_partitions
from .log_plan import PlanOptions, plan
from .log_reading import range_row, read_range

KNOWN_OPTIONS = (
    "path",
    "topic",
    "assign",
    "pushdown",
    "mode",
    "splitBytes",
    "batchRows",
    "checkCrc",
    "values",
    "includeHeaders",
    "uncompressedSize",
    "failOnDataLoss",
    *OFFSET_OPTIONS,
)
DEFAULT_SPLIT_BYTES = 128 << 20


class KafkaLogSource(DataSource):
    """The format of `spark.read.format("kafka_log")`."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "kafka_log"

    def schema(self) -> str:
        """Return the columns of the chosen mode."""
        options = SourceOptions(self.options, KNOWN_OPTIONS)
        return options.spark_schema()

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader; with `pushdown` it uses the query's filters."""
        options = SourceOptions(self.options, KNOWN_OPTIONS)
        return KafkaLogReaderWithPushdown(options) if options.boolean("pushdown", False) else KafkaLogReader(options)


class KafkaLogReader(DataSourceReader):
    """A reader that plans on the driver and reads in tasks."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._paths = names_of(options.required("path"))
        self._topics = names_of(options.get("topic", ""))
        self._assigned = parse_assign(options["assign"]) if "assign" in options else None
        self._starting = starting_bounds(options)
        self._ending = ending_bounds(options)
        self._strategy = strategy(options)
        self._split_bytes = options.integer("splitBytes", DEFAULT_SPLIT_BYTES, least=1)
        self._fails_on_data_loss = options.boolean("failOnDataLoss", True)
        self._checks_crc = options.boolean("checkCrc", options.mode is Mode.RECORDS)
        self._with_uncompressed_size = options.boolean("uncompressedSize", False)
        self._pruning = Pruning()

    def partitions(self) -> list[InputPartition]:
        """Return a task for each range of bytes. Raises DamagedLogError, DataLossError, OptionError."""
        listed = list(list_partitions(self._paths, self._topics))
        self._check_assigned({(item.name.topic, item.name.partition) for item in listed})
        found = [item for item in listed if self._wants(*item.name)]
        ranges = plan(
            found,
            PlanOptions(
                starting=self._starting,
                ending=self._ending,
                when_none_is_younger=self._strategy,
                split_bytes=self._split_bytes,
                fails_on_data_loss=self._fails_on_data_loss,
                read_committed=self._options.is_read_committed,
                least_timestamp=self._pruning.least_timestamp,
                least_offset=self._pruning.least_offset,
                end_offset=self._pruning.end_offset,
            ),
        )
        if not ranges or self._options.mode is Mode.RANGES:
            return [ListedRanges(tuple(map(range_row, ranges)))]
        return list(ranges)

    def _check_assigned(self, known: set[AnyTopicPartition]) -> None:
        """Raise OptionError if `assign` names a partition that is in none of the directories."""
        for topic, numbers in (self._assigned or {}).items():
            for number in numbers:
                if (topic, number) not in known:
                    raise OptionError(f"assign: no partition {topic}-{number} in {', '.join(self._paths)}")

    def _wants(self, topic: str, partition: int) -> bool:
        is_assigned = self._assigned is None or partition in self._assigned.get(topic, ())
        return is_assigned and self._pruning.wants(topic, partition)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task. Raises DamagedLogError, DataLossError."""
        prepare_worker()
        options = self._options
        if isinstance(partition, ListedRanges):
            yield partition.batch(options.arrow_schema())
            return
        yield from read_range(
            partition,
            ReadOptions(
                mode=options.mode,
                batch_rows=options.batch_rows,
                checks_crc=self._checks_crc,
                with_values=options.with_values,
                with_headers=options.with_headers,
                with_uncompressed_size=self._with_uncompressed_size,
                least_timestamp=self._pruning.least_timestamp,
                fails_on_data_loss=self._fails_on_data_loss,
            ),
        )


class KafkaLogReaderWithPushdown(KafkaLogReader):
    """A reader that leaves out partitions, offsets and times by the query's filters."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Note the filters for the plan; Spark applies all of them again."""
        if self._options.mode is Mode.RECORDS:
            self._pruning = pruning_of(filters)
        else:
            whole = pruning_of(filters)
            self._pruning = Pruning(topics=whole.topics, partitions=whole.partitions)
        return filters
