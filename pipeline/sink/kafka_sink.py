"""The sink of the format `kafka_raw`: `df.write` and `writeStream`, with the rows' own partitions, times and headers.

    stream.writeStream.format("kafka_raw").option("kafka.bootstrap.servers", ...).option("topic", "clicks")

Columns, in any order: `value` and `key` (binary or string), `topic` (string, unless the option says it), `partition`
(int), `timestamp` (the time of writing where it is null or missing), `headers`. Tables of `kafka_raw` and `kafka_log`
have these columns. The batches in tables of `mode=raw` are written unchanged, codec included, except control batches.

    topic                   where all rows go, whatever their column `topic` says
    delivery                exactly-once (default) by transactions: see `sinking`; or at-least-once
    sinkName                names the transactions: the query's id by default, and for df.write one that is drawn
    batchId                 for df.write in foreachBatch with a sinkName: the number of the micro-batch
    kafka.compression.type  none (default), gzip, snappy, lz4 or zstd
    kafka.batch.size        bytes of a batch before compression (262,144)
    kafka.transaction.timeout.ms, kafka.max.request.size, kafka.request.timeout.ms, kafka.delivery.timeout.ms,
    kafka.client.id, kafka.security.protocol, kafka.ssl.truststore.location
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pyarrow as pa
import trio
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import BinaryType, IntegerType, LongType, ShortType, StringType, StructType, TimestampType

from ...client.errors import ClientError
from ...protocol.errors import BrokerError
from ...protocol.records.compression import Codec
from ..errors import OptionError, PipelineError
from ..kafka import connector_options
from ..kafka.wire import WireSettings
from ..options import SourceOptions
from .sinking import SinkOptions, SinkReceipt, SinkTask, forget_sink, write_rows

SINK_OPTIONS = ("topic", "delivery", "sinkName", "batchId", "includeHeaders", "checkpointLocation", "path")

DEFAULT_BATCH_BYTES = 256 << 10
DEFAULT_MAX_REQUEST_BYTES = 16 << 20
DEFAULT_TRANSACTION_TIMEOUT_MS = 900_000
"""The largest value that Kafka's brokers allow: a task that fills its micro-batch slowly must not lose it."""

QUERY_ID_PROPERTY = "sql.streaming.queryId"
BATCH_ID_PROPERTY = "streaming.sql.batchId"

_COLUMN_TYPES = {
    "key": (BinaryType, StringType),
    "value": (BinaryType, StringType),
    "raw": (BinaryType,),
    "topic": (StringType,),
    "partition": (IntegerType, LongType, ShortType),
    "timestamp": (TimestampType,),
}


class KafkaSinkWriter(DataSourceArrowWriter):
    """The writer of `df.write`: one micro-batch by itself."""

    def __init__(self, schema: StructType, options: SourceOptions) -> None:
        self._options = sink_options(schema, options)
        self._batch_id = options.optional_integer("batchId", least=0)
        name = options.get("sinkName")
        if (name is None) != (self._batch_id is None):
            raise OptionError("df.write needs sinkName and batchId, or neither")
        self._is_named = name is not None
        self._name = name or f"gregor-write-{uuid.uuid4()}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of a task. Raises PipelineError."""
        context = TaskContext.get()
        task = SinkTask(self._name, self._batch_id or 0, context.partitionId(), "")
        return write_rows(iterator, task, self._options)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Delete the notes for repeated tasks, as all rows are written, unless the sink has a name."""
        if self._is_named or not self._options.is_exactly_once:
            return
        names = [message.name for message in messages if isinstance(message, SinkReceipt) and message.rows]
        try:
            trio.run(forget_sink, self._options, names)
        except (BrokerError, ClientError):
            # The committed offsets of the sink expire in any case (offsets.retention.minutes).
            return


class KafkaSinkStreamWriter(DataSourceStreamArrowWriter):
    """The writer of `writeStream`: each micro-batch once."""

    def __init__(self, schema: StructType, options: SourceOptions) -> None:
        self._options = sink_options(schema, options)
        self._name = options.get("sinkName")
        if "batchId" in options:
            raise OptionError("batchId is for df.write; a stream has its own")

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of a task. Raises PipelineError."""
        context = TaskContext.get()
        query_id = context.getLocalProperty(QUERY_ID_PROPERTY)
        batch_id = context.getLocalProperty(BATCH_ID_PROPERTY)
        if query_id is None or batch_id is None:
            raise PipelineError(
                "this version of Spark does not give its tasks the ids of the query and of the micro-batch"
            )
        name = self._name or f"gregor-sink-{query_id}"
        task = SinkTask(name, int(batch_id), context.partitionId(), query_id)
        return write_rows(iterator, task, self._options)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Do nothing: each task has committed its own transaction."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Do nothing: the transactions that tasks have committed are found when the micro-batch is repeated."""


def sink_options(schema: StructType, options: SourceOptions) -> SinkOptions:
    """Check columns and options on the driver, before any task runs. Raises OptionError."""
    is_raw = "raw" in schema.fieldNames()
    _check_columns(schema, options.get("topic"), is_raw=is_raw)
    connector_options.check_supported(options, connector_options.SINK_OPTIONS)
    wire = WireSettings.from_options(options)
    delivery = options.get("delivery", "exactly-once")
    if delivery not in ("exactly-once", "at-least-once"):
        raise OptionError(f"delivery must be exactly-once or at-least-once, not {delivery!r}")
    codec = options.get("kafka.compression.type", "none").upper()
    if codec not in Codec.__members__:
        raise OptionError(f"kafka.compression.type must be none, gzip, snappy, lz4 or zstd, not {codec.lower()!r}")
    is_exactly_once = delivery == "exactly-once"
    producer: dict[str, object] = {
        "max_request_size": options.integer("kafka.max.request.size", DEFAULT_MAX_REQUEST_BYTES, least=1),
        "delivery_timeout_ms": options.integer("kafka.delivery.timeout.ms", 120_000, least=1),
    }
    if is_exactly_once:
        timeout_ms = options.integer("kafka.transaction.timeout.ms", DEFAULT_TRANSACTION_TIMEOUT_MS, least=1)
        producer["transaction_timeout_ms"] = timeout_ms
    return SinkOptions(
        bootstrap=options.required("kafka.bootstrap.servers"),
        topic=options.get("topic"),
        codec=Codec[codec],
        batch_bytes=options.integer("kafka.batch.size", DEFAULT_BATCH_BYTES, least=1),
        is_exactly_once=is_exactly_once,
        is_raw=is_raw,
        producer=producer,
        client={
            "client_id": wire.client_id,
            "request_timeout_ms": int(wire.request_timeout_s * 1000),
            "security": wire.security,
        },
    )


def _check_columns(schema: StructType, topic: str | None, *, is_raw: bool) -> None:
    names = schema.fieldNames()
    wanted = ("raw", "partition") if is_raw else ("value",)
    for name in wanted:
        if name not in names:
            raise OptionError(f"a column {name} is missing; there are {', '.join(names)}")
    if topic is None and "topic" not in names:
        raise OptionError("give the option topic, or a column of that name")
    for column in schema.fields:
        allowed = _COLUMN_TYPES.get(column.name)
        if allowed is not None and not isinstance(column.dataType, allowed):
            kinds = " or ".join(kind.typeName() for kind in allowed)
            raise OptionError(f"column {column.name} must be {kinds}, not {column.dataType.simpleString()}")
