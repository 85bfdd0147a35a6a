"""The options of a `kafka_raw` source as a plan: the tasks of a read, and the rows of a task."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from ...protocol.topic_partition import AnyTopicPartition
from ..columns.listed_ranges import ListedRanges
from ..columns.read_options import ReadOptions
from ..columns.record_batches import ANY_TIME
from ..columns.schemas import Mode
from ..errors import OptionError
from ..options import SourceOptions
from ..worker_process import prepare_worker
from .connector_options import SOURCE_OPTIONS, check_supported
from .fetch_plan import split_ranges
from .fetching import DEFAULT_FETCH_BYTES, FetchOptions, FetchRange, fetch_rows
from .offset_options import ending_bounds, parse_duration_ms, starting_bounds, strategy
from .topic_choice import TopicChoice
from .wire import WireSettings


class ReadPlan:
    """The parsed options, for the batch and the stream reader alike. Raises OptionError for invalid ones."""

    def __init__(self, options: SourceOptions) -> None:
        check_supported(options, SOURCE_OPTIONS)
        self.options = options
        self.settings = WireSettings.from_options(options)
        self.choice = TopicChoice.from_options(options)
        self.strategy = strategy(options)
        self.fails_on_data_loss = options.boolean("failOnDataLoss", True)
        self.read_committed = options.is_read_committed
        self.min_partitions = options.optional_integer("minPartitions", least=1)
        self.max_records = options.optional_integer("maxRecordsPerPartition", least=1)
        self.max_offsets = options.optional_integer("maxOffsetsPerTrigger", least=1)
        self.min_offsets = options.optional_integer("minOffsetsPerTrigger", least=0)
        if self.min_offsets is not None and self.max_offsets is not None and self.min_offsets > self.max_offsets:
            raise OptionError(
                f"The value of minOffsetsPerTrigger({self.min_offsets}) is higher than the "
                f"maxOffsetsPerTrigger({self.max_offsets})."
            )
        self.max_bytes = options.optional_integer("maxBytesPerTrigger", least=1)
        self.most_delay_ms = parse_duration_ms("maxTriggerDelay", options.get("maxTriggerDelay", "15m"))
        # For the errors alone: the readers have different defaults.
        starting_bounds(options)
        ending_bounds(options)
        self._fetch = FetchOptions(
            settings=self.settings,
            max_bytes=options.integer("kafka.max.partition.fetch.bytes", DEFAULT_FETCH_BYTES, least=1),
            read_committed=self.read_committed,
            poll_timeout_ms=options.optional_integer("kafkaConsumer.pollTimeoutMs", least=0),
        )
        self._read = ReadOptions(
            mode=options.mode,
            batch_rows=options.batch_rows,
            checks_crc=options.boolean("checkCrc", options.mode is Mode.RECORDS),
            with_values=options.with_values,
            with_headers=options.with_headers,
            with_uncompressed_size=options.boolean("uncompressedSize", False),
            least_timestamp=ANY_TIME,
            fails_on_data_loss=self.fails_on_data_loss,
        )

    def tasks(self, start: dict[AnyTopicPartition, int], end: dict[AnyTopicPartition, int]) -> list[InputPartition]:
        """Return a task for each range, or one that lists them all in `mode=ranges`; at least one."""
        ranges = split_ranges(start, end, min_partitions=self.min_partitions, max_records=self.max_records)
        if self.options.mode is Mode.RANGES or not ranges:
            return [ListedRanges(tuple(map(_range_row, ranges)))]
        return list(ranges)

    def rows(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task."""
        prepare_worker()
        if isinstance(partition, ListedRanges):
            yield partition.batch(self.options.arrow_schema())
        else:
            yield from fetch_rows(partition, self._fetch, self._read)


def _range_row(item: FetchRange) -> dict[str, Any]:
    return {
        "topic": item.topic,
        "partition": item.partition,
        "fromOffset": item.first_offset,
        "untilOffset": item.end_offset,
    }
