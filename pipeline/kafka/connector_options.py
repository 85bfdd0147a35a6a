"""The options of Spark's own Kafka connector, each with its default and what Gregor does with it.

`docs/pipeline.md` has the same table. Source: KafkaSourceProvider.scala and KafkaOffsetReaderAdmin.scala of
spark-sql-kafka-0-10 4.2.0; `tests/pipeline/test_connector_options_with_spark.py` runs both sources side by side.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from ..errors import OptionError

DEFAULT_POLL_TIMEOUT_MS = 120_000
"""The default of `kafkaConsumer.pollTimeoutMs`: the default of `spark.network.timeout`."""
DEFAULT_RETRY_INTERVAL_MS = 1000


class Relation(StrEnum):
    """The relation of an option in Gregor to the same option in the connector."""

    SAME = "same"
    BETTER = "better"
    NO_EFFECT = "no effect in either"
    REFUSED = "refused by both"


@dataclass(frozen=True, slots=True)
class ConnectorOption:
    """An option of the connector; `default` is as in the documents, empty without one."""

    name: str
    default: str
    relation: Relation


SOURCE_OPTIONS = (
    ConnectorOption("kafka.bootstrap.servers", "", Relation.SAME),
    ConnectorOption("subscribe", "", Relation.BETTER),
    ConnectorOption("subscribePattern", "", Relation.SAME),
    ConnectorOption("assign", "", Relation.BETTER),
    ConnectorOption("startingOffsets", "earliest, latest for a stream", Relation.SAME),
    ConnectorOption("endingOffsets", "latest", Relation.BETTER),
    ConnectorOption("startingTimestamp", "", Relation.SAME),
    ConnectorOption("endingTimestamp", "", Relation.SAME),
    ConnectorOption("startingOffsetsByTimestamp", "", Relation.SAME),
    ConnectorOption("endingOffsetsByTimestamp", "", Relation.SAME),
    ConnectorOption("startingOffsetsByTimestampStrategy", "error", Relation.SAME),
    ConnectorOption("failOnDataLoss", "true", Relation.BETTER),
    ConnectorOption("minPartitions", "", Relation.SAME),
    ConnectorOption("maxRecordsPerPartition", "", Relation.BETTER),
    ConnectorOption("maxOffsetsPerTrigger", "", Relation.SAME),
    ConnectorOption("minOffsetsPerTrigger", "", Relation.SAME),
    ConnectorOption("maxTriggerDelay", "15m", Relation.SAME),
    ConnectorOption("includeHeaders", "true, false in the connector", Relation.BETTER),
    ConnectorOption("fetchOffset.numRetries", "retries for a minute, 3 in the connector", Relation.BETTER),
    ConnectorOption("fetchOffset.retryIntervalMs", "1000", Relation.SAME),
    ConnectorOption("kafkaConsumer.pollTimeoutMs", "120000", Relation.SAME),
    ConnectorOption("groupIdPrefix", "", Relation.NO_EFFECT),
    ConnectorOption("kafka.group.id", "", Relation.NO_EFFECT),
    ConnectorOption("kafka.auto.offset.reset", "", Relation.REFUSED),
    ConnectorOption("kafka.key.deserializer", "", Relation.REFUSED),
    ConnectorOption("kafka.value.deserializer", "", Relation.REFUSED),
    ConnectorOption("kafka.enable.auto.commit", "", Relation.REFUSED),
    ConnectorOption("kafka.interceptor.classes", "", Relation.REFUSED),
)
"""The options of `spark.read` and `spark.readStream`."""

SINK_OPTIONS = (
    ConnectorOption("topic", "", Relation.SAME),
    ConnectorOption("kafka.key.serializer", "", Relation.REFUSED),
    ConnectorOption("kafka.value.serializer", "", Relation.REFUSED),
)
"""The options of `df.write` and `writeStream` that are not those of Kafka's producer."""

_REASONS = {
    "kafka.auto.offset.reset": "set the source option 'startingOffsets' to 'earliest' or 'latest' instead",
    "kafka.key.deserializer": "keys are bytes: use DataFrame operations to deserialize the keys",
    "kafka.value.deserializer": "values are bytes: use DataFrame operations to deserialize the values",
    "kafka.enable.auto.commit": "",
    "kafka.interceptor.classes": "",
    "kafka.key.serializer": "keys are bytes or strings: use DataFrame operations to serialize the keys",
    "kafka.value.serializer": "values are bytes or strings: use DataFrame operations to serialize the values",
}


def source_option_names() -> tuple[str, ...]:
    """Return the names of the source's options that do not begin with `kafka.`."""
    return tuple(option.name for option in SOURCE_OPTIONS if not option.name.startswith("kafka."))


def check_supported(options: Mapping[str, str], known: tuple[ConnectorOption, ...]) -> None:
    """Check that no option is given that source or sink refuse. Raises OptionError, worded as by the connector."""
    for option in known:
        if option.relation is Relation.REFUSED and option.name in options:
            reason = _REASONS[option.name]
            name = option.name.removeprefix("kafka.")
            raise OptionError(f"Kafka option '{name}' is not supported{': ' if reason else ''}{reason}")
