"""The format `kafka_raw`: tables from a broker, and topics from tables."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource

from .schemas import Mode, spark_schema


class KafkaRawSource(DataSource):
    """`spark.read.format("kafka_raw")`."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "kafka_raw"

    def schema(self) -> str:
        """The columns of the chosen mode."""
        return spark_schema(Mode(self.options.get("mode", "records")))
