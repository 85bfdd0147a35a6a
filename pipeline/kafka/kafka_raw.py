"""The format `kafka_raw`: tables from a broker of any Kafka, and topics from tables, without the connector's jars.

    spark.read.format("kafka_raw").option("kafka.bootstrap.servers", "localhost:9092").option("subscribe", "clicks")

The options of Spark's own connector have the same meaning here:

    kafka.bootstrap.servers; exactly one of subscribe, subscribePattern, assign; those of `offset_options`;
    failOnDataLoss, minPartitions, maxRecordsPerPartition, maxOffsetsPerTrigger, minOffsetsPerTrigger,
    maxTriggerDelay (15m), fetchOffset.numRetries, fetchOffset.retryIntervalMs (10),
    kafka.isolation.level, kafka.max.partition.fetch.bytes, kafka.request.timeout.ms, kafka.client.id,
    kafka.security.protocol, kafka.ssl.*, kafka.sasl.* (as in docs/security.md)

Two are accepted without effect, as there is no consumer group and no consumer that polls: groupIdPrefix (and
kafka.group.id), kafkaConsumer.pollTimeoutMs. Without fetchOffset.numRetries offset requests are retried for a minute.

The further options are ours: mode, batchRows, checkCrc, values, uncompressedSize as for `kafka_log`, includeHeaders
with the default true, and

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
from .offset_options import OFFSET_OPTIONS, ending_bounds, starting_bounds
from .read_plan import ReadPlan
from .topic_choice import CHOICES, partitions_of, resolve_end, resolve_start

KNOWN_OPTIONS = (
    *CHOICES,
    *OFFSET_OPTIONS,
    "mode",
    "batchRows",
    "checkCrc",
    "values",
    "includeHeaders",
    "uncompressedSize",
    "failOnDataLoss",
    "minPartitions",
    "maxRecordsPerPartition",
    "maxOffsetsPerTrigger",
    "maxBytesPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "groupIdPrefix",
    "kafkaConsumer.pollTimeoutMs",
)


class KafkaRawSource(DataSource):
    """The format of `spark.read.format("kafka_raw")`, and of `readStream`."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "kafka_raw"

    def schema(self) -> str:
        """Return the columns of the chosen mode."""
        options = SourceOptions(self.options, KNOWN_OPTIONS)
        return options.spark_schema()

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

    def partitions(self) -> list[InputPartition]:
        """Return a task for each range. Raises PipelineError."""
        plan = self._plan
        with ClusterView(plan.settings) as cluster:
            places = partitions_of(plan.choice.find(cluster))
            start = resolve_start(
                cluster, places, self._starting, plan.strategy, fails_on_data_loss=plan.fails_on_data_loss
            )
            end = resolve_end(cluster, places, self._ending, read_committed=plan.read_committed)
        return plan.tasks(start, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task. Raises PipelineError."""
        return self._plan.rows(partition)
