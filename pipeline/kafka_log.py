"""The format `kafka_log`: tables straight from log directories."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource

from .schemas import Mode, spark_schema


class KafkaLogSource(DataSource):
    """`spark.read.format("kafka_log")`."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "kafka_log"

    def schema(self) -> str:
        """The columns of the chosen mode."""
        return spark_schema(Mode(self.options.get("mode", "records")))
