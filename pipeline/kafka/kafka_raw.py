"""The format `kafka_raw`: tables from a broker of any Kafka, and topics from tables, without the connector's jars.

    spark.read.format("kafka_raw").option("kafka.bootstrap.servers", "localhost:9092").option("subscribe", "clicks")

The options of Spark's own connector have the same meaning here (`connector_options`, and the table in
docs/pipeline.md); of Kafka's own these have an effect:

    kafka.bootstrap.servers, kafka.isolation.level, kafka.max.partition.fetch.bytes, kafka.request.timeout.ms,
    kafka.client.id, kafka.security.protocol, kafka.ssl.*, kafka.sasl.* (as in docs/security.md)

The further options are ours: mode, batchRows, checkCrc, values, uncompressedSize as for `kafka_log`, and

    maxBytesPerTrigger  about how many stored bytes one micro-batch of a stream reads

A stream's offsets are JSON in its checkpoint: {"offsets": {"topic": {"0": 23}}, "topicIds": {"topic": "..."}}. A topic
that was deleted and created again has another id, and the stream does not continue with it. For the sink see
`kafka_sink`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.types import StructType

from ..errors import OptionError
from ..options import SourceOptions
from .cluster_view import ClusterView
from .connector_options import source_option_names
from .offset_options import check_batch_bounds, ending_bounds, starting_bounds
from .read_plan import ReadPlan
from .topic_choice import check_named, partitions_of, resolve_end, resolve_start

KNOWN_OPTIONS = (
    *source_option_names(),
    "mode",
    "batchRows",
    "checkCrc",
    "values",
    "uncompressedSize",
    "maxBytesPerTrigger",
)


class KafkaRawSource(DataSource):
    """The format of `spark.read.format("kafka_raw")`, and of `readStream`."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "kafka_raw"

    def schema(self) -> str:
        """Return the columns of the chosen mode, after checking all options: `load` raises OptionError."""
        return ReadPlan(SourceOptions(self.options, KNOWN_OPTIONS)).options.spark_schema()

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a batch query."""
        return KafkaRawReader(ReadPlan(SourceOptions(self.options, KNOWN_OPTIONS)))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return the reader of a streaming query."""
        from .kafka_raw_stream import KafkaRawStreamReader

        return KafkaRawStreamReader(ReadPlan(SourceOptions(self.options, KNOWN_OPTIONS)))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Return the writer that appends rows to topics; a topic cannot be overwritten."""
        from ..sink.kafka_sink import SINK_OPTIONS, KafkaSinkWriter

        if overwrite:
            raise OptionError('a topic can only be appended to: use mode("append")')
        return KafkaSinkWriter(schema, SourceOptions(self.options, SINK_OPTIONS))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802
        """Return the writer that appends the rows of each micro-batch to topics."""
        from ..sink.kafka_sink import SINK_OPTIONS, KafkaSinkStreamWriter

        return KafkaSinkStreamWriter(schema, SourceOptions(self.options, SINK_OPTIONS))


class KafkaRawReader(DataSourceReader):
    """A reader that resolves offsets on the driver and fetches in tasks."""

    def __init__(self, plan: ReadPlan) -> None:
        self._plan = plan
        self._starting = starting_bounds(plan.options)
        self._ending = ending_bounds(plan.options)
        check_batch_bounds(self._starting, self._ending)

    def partitions(self) -> list[InputPartition]:
        """Return a task for each range. Raises PipelineError."""
        plan = self._plan
        with ClusterView(plan.settings) as cluster:
            places = partitions_of(plan.choice.find(cluster))
            for bounds in (self._starting, self._ending):
                check_named(bounds.option, places, bounds)
            start = resolve_start(
                cluster, places, self._starting, plan.strategy, fails_on_data_loss=plan.fails_on_data_loss
            )
            end = resolve_end(cluster, places, self._ending, read_committed=plan.read_committed)
        return plan.tasks(start, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task. Raises PipelineError."""
        return self._plan.rows(partition)
